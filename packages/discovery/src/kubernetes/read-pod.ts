import { isIP } from "node:net";
import type { EngineTraits } from "@espalier/common";
import { engineAt } from "../discovered-engine.ts";
import { readHints } from "./engine-hints.ts";
import type { FoundEngines } from "./found-engines.ts";
import { listOf, objectOf, portOf, textOf, textsOf } from "./json.ts";
import { withPlace } from "./place-labels.ts";
import type { KubernetesObject } from "./watch-event.ts";

/** Labels of a pod that its engines have too. */
const maxLabels = 56;

/**
 * The engines of a pod: none unless it runs, is ready and is not being deleted; else one for each port.
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
  const address = textOf(objectOf(status).podIP) ?? "";
  const family = isIP(address);
  const hints = readHints(body, traits);
  if ((family !== 4 && family !== 6) || !isReady(metadata, status))
    return { name, engines: [], problems: hints.problems };
  const labelled = Object.fromEntries(Object.entries(textsOf(labels)).slice(0, maxLabels));
  const place = { pod: name, namespace, node: nodeName, zone: undefined };
  const placed = withPlace({ ...hints.traits, labels: { ...labelled, ...hints.traits.labels } }, place);
  const own: 4 | 6 = family;
  const engines = ports.flatMap((wanted) => {
    const port = typeof wanted === "number" ? wanted : containerPort(spec, wanted);
    return port === undefined ? [] : [{ family: own, spec: engineAt({ address, port }, placed) }];
  });
  return { name, engines, problems: hints.problems };
}

function isReady(metadata: unknown, status: unknown): boolean {
  const { phase, conditions } = objectOf(status);
  const ready = listOf(conditions)
    .map(objectOf)
    .find(({ type }) => type === "Ready");
  return phase === "Running" && ready?.status === "True" && objectOf(metadata).deletionTimestamp === undefined;
}

/** Sidecars, which stand among the init containers, may have ports too. */
function containerPort(spec: unknown, name: string): number | undefined {
  const { containers, initContainers } = objectOf(spec);
  const ports = [...listOf(containers), ...listOf(initContainers)].flatMap((one) => listOf(objectOf(one).ports));
  return portOf(ports.map(objectOf).find((port) => port.name === name)?.containerPort);
}
