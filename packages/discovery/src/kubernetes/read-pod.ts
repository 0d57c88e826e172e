import type { EngineTraits } from "@espalier/common";
import { engineAt } from "../discovered-engine.ts";
import { readHints } from "./engine-hints.ts";
import type { FoundEngines } from "./found-engines.ts";
import { listOf, objectOf, textsOf } from "./json.ts";
import { withPlace } from "./place-labels.ts";
import { addressesOfPod } from "./pod-addresses.ts";
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
  const hints = readHints(body, traits);
  if (!isReady(status)) return { name, engines: [], problems: hints.problems };
  const labelled = Object.fromEntries(Object.entries(textsOf(labels)).slice(0, maxLabels));
  const place = { pod: name, namespace, node: nodeName, zone: undefined };
  const placed = withPlace({ ...hints.traits, labels: { ...labelled, ...hints.traits.labels } }, place);
  const engines = addressesOfPod(body, ports).map(({ at, family }) => ({ family, spec: engineAt(at, placed) }));
  return { name, engines, problems: hints.problems };
}

function isReady(status: unknown): boolean {
  const ready = listOf(objectOf(status).conditions)
    .map(objectOf)
    .find(({ type }) => type === "Ready");
  return ready?.status === "True";
}
