import { isIP } from "node:net";
import type { EngineTraits, JsonObject } from "@espalier/core";
import { type EngineAddress, engineAt } from "../discovered-engine.ts";
import { type KubernetesObject, listOf, objectOf, portOf, textOf, textsOf } from "./api-objects.ts";
import { readHints, withLocation } from "./engine-hints.ts";
import type { FoundEngines } from "./engine-publisher.ts";

/** Most labels of a pod that are copied to its engines. */
const maxLabels = 56;

/**
 * The engines of a pod that runs, is ready and is not being deleted: one for each port.
 *
 * @param ports numbers, or names of ports of the pod's containers
 */
export function readPod(
  { name, body }: KubernetesObject,
  ports: readonly (number | string)[],
  traits: EngineTraits,
): FoundEngines {
  const { metadata, spec, status } = objectOf(body);
  const { labels, namespace } = objectOf(metadata);
  const { nodeName } = objectOf(spec);
  const hints = readHints(body, traits);
  if (!isReady(status)) return { name, engines: [], problems: hints.problems };
  const labelled = Object.fromEntries(Object.entries(textsOf(labels)).slice(0, maxLabels));
  const location = { pod: name, namespace, node: nodeName, zone: undefined };
  const located = withLocation({ ...hints.traits, labels: { ...labelled, ...hints.traits.labels } }, location);
  const engines = addressesOfPod(body, ports).map(({ at, family }) => ({ family, spec: engineAt(at, located) }));
  return { name, engines, problems: hints.problems };
}

function isReady(status: unknown): boolean {
  const ready = listOf(objectOf(status).conditions)
    .map(objectOf)
    .find(({ type }) => type === "Ready");
  return ready?.status === "True";
}

export interface PodAddress {
  readonly at: EngineAddress;
  readonly family: 4 | 6;
}

/**
 * The addresses of a pod that runs, has an IP and is not being deleted: one for each port that it has.
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

/** Sidecars, which are among the init containers, may have ports too. */
function containerPort({ containers, initContainers }: JsonObject, name: string): number | undefined {
  const ports = [...listOf(containers), ...listOf(initContainers)].flatMap((one) => listOf(objectOf(one).ports));
  return portOf(ports.map(objectOf).find((port) => port.name === name)?.containerPort);
}
