import { isIP } from "node:net";
import { type EngineAddress, maxEnginesPerSource } from "../discovered-engine.ts";
import { type Json, listOf, objectOf, portOf, textOf } from "./json.ts";

export interface SliceEndpoint {
  readonly at: EngineAddress;
  readonly family: 4 | 6;
  /** As the API gives it. */
  readonly endpoint: Json;
}

/**
 * The endpoints of an EndpointSlice (discovery.k8s.io/v1) that have an address.
 *
 * @param port a number, a name of one of the slice's ports, or undefined for the first of them
 * @param counts whether an endpoint with such conditions is meant
 */
export function endpointsOf(
  body: unknown,
  port: number | string | undefined,
  counts: (conditions: Json) => boolean,
): readonly SliceEndpoint[] {
  const { ports, endpoints } = objectOf(body);
  const found = typeof port === "number" ? port : portOfSlice(ports, port);
  if (found === undefined) return [];
  return listOf(endpoints)
    .slice(0, maxEnginesPerSource)
    .flatMap((entry) => {
      const endpoint = objectOf(entry);
      // Of several addresses consumers are to take the first.
      const address = textOf(listOf(endpoint.addresses)[0]) ?? "";
      const family = isIP(address);
      if ((family !== 4 && family !== 6) || !counts(objectOf(endpoint.conditions))) return [];
      return [{ at: { address, port: found }, family, endpoint }];
    });
}

function portOfSlice(ports: unknown, name: string | undefined): number | undefined {
  const all = listOf(ports).map(objectOf);
  return portOf((name === undefined ? all[0] : all.find((port) => port.name === name))?.port);
}
