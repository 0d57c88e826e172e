import { isIP } from "node:net";
import type { EngineTraits, JsonObject } from "@espalier/core";
import { type EngineAddress, engineAt, maxEnginesPerSource } from "../discovered-engine.ts";
import { type KubernetesObject, listOf, objectOf, portOf, textOf } from "./api-objects.ts";
import { readHints, withLocation } from "./engine-hints.ts";
import type { FoundEngines } from "./engine-publisher.ts";

/**
 * The engines of an EndpointSlice (discovery.k8s.io/v1) that are ready and not terminating.
 *
 * @param port see `endpointsOf`
 */
export function readEndpointSlice(
  { name, body }: KubernetesObject,
  port: number | string | undefined,
  traits: EngineTraits,
): FoundEngines {
  const hints = readHints(body, traits);
  const engines = endpointsOf(body, port, isReady).map(({ at, family, endpoint }) => {
    const { kind, name: pod, namespace } = objectOf(endpoint.targetRef);
    const location = { pod: kind === "Pod" ? pod : undefined, namespace, node: endpoint.nodeName, zone: endpoint.zone };
    return { family, spec: engineAt(at, withLocation(hints.traits, location)) };
  });
  return { name, engines, problems: hints.problems };
}

/** A missing condition counts as ready. */
const isReady = ({ ready, terminating }: JsonObject): boolean => ready !== false && terminating !== true;

interface SliceEndpoint {
  readonly at: EngineAddress;
  readonly family: 4 | 6;
  /** As the API gives it. */
  readonly endpoint: JsonObject;
}

/**
 * The endpoints of an EndpointSlice (discovery.k8s.io/v1) that have an address.
 *
 * @param port a number, a name of one of the slice's ports, or undefined for the first of them
 * @param accepts whether to include an endpoint with these conditions
 */
export function endpointsOf(
  body: unknown,
  port: number | string | undefined,
  accepts: (conditions: JsonObject) => boolean,
): readonly SliceEndpoint[] {
  const { ports, endpoints } = objectOf(body);
  const found = typeof port === "number" ? port : portOfSlice(ports, port);
  if (found === undefined) return [];
  return listOf(endpoints)
    .slice(0, maxEnginesPerSource)
    .flatMap((entry) => {
      const endpoint = objectOf(entry);
      // Of several addresses, consumers must use the first.
      const address = textOf(listOf(endpoint.addresses)[0]) ?? "";
      const family = isIP(address);
      if ((family !== 4 && family !== 6) || !accepts(objectOf(endpoint.conditions))) return [];
      return [{ at: { address, port: found }, family, endpoint }];
    });
}

function portOfSlice(ports: unknown, name: string | undefined): number | undefined {
  const all = listOf(ports).map(objectOf);
  return portOf((name === undefined ? all[0] : all.find((port) => port.name === name))?.port);
}
