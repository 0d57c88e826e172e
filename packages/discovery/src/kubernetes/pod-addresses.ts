import { isIP } from "node:net";
import type { EngineAddress } from "../discovered-engine.ts";
import { type Json, listOf, objectOf, portOf, textOf } from "./json.ts";

export interface PodAddress {
  readonly at: EngineAddress;
  readonly family: 4 | 6;
}

/**
 * Where a pod that runs, has an address and is not being deleted can be reached: at each port that it has.
 *
 * @param body the pod, as the API gives it
 * @param ports numbers, or names of ports of the pod's containers
 */
export function addressesOfPod(body: unknown, ports: readonly (number | string)[]): readonly PodAddress[] {
  const { metadata, spec, status } = objectOf(body);
  const { podIP, phase } = objectOf(status);
  const address = textOf(podIP) ?? "";
  const family = isIP(address);
  if ((family !== 4 && family !== 6) || phase !== "Running") return [];
  if (objectOf(metadata).deletionTimestamp !== undefined) return [];
  return ports.flatMap((wanted) => {
    const port = typeof wanted === "number" ? wanted : containerPort(objectOf(spec), wanted);
    return port === undefined ? [] : [{ at: { address, port }, family }];
  });
}

/** Sidecars, which stand among the init containers, may have ports too. */
function containerPort({ containers, initContainers }: Json, name: string): number | undefined {
  const ports = [...listOf(containers), ...listOf(initContainers)].flatMap((one) => listOf(objectOf(one).ports));
  return portOf(ports.map(objectOf).find((port) => port.name === name)?.containerPort);
}
