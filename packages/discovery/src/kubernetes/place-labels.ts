import type { EngineTraits } from "@espalier/common";
import { textOf } from "./json.ts";

/** Where an engine runs, by the names that OpenTelemetry has for it. */
export interface Place {
  readonly pod: unknown;
  readonly namespace: unknown;
  readonly node: unknown;
  readonly zone: unknown;
}

/** Adds where an engine runs to its labels, as far as it is known. Labels of the configuration stay. */
export function withPlace(traits: EngineTraits, { pod, namespace, node, zone }: Place): EngineTraits {
  const known = Object.entries({
    "k8s.pod.name": textOf(pod),
    "k8s.namespace.name": textOf(namespace),
    "k8s.node.name": textOf(node),
    "cloud.availability_zone": textOf(zone),
  }).filter((entry): entry is [string, string] => entry[1] !== undefined);
  return { ...traits, labels: { ...Object.fromEntries(known), ...traits.labels } };
}
