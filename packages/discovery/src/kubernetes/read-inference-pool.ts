import { listOf, objectOf, portOf, textsOf } from "./json.ts";
import type { KubernetesObject } from "./watch-event.ts";

/** An InferencePool has at most 8; more are left out. */
const maxPorts = 8;

/** What an InferencePool of the Gateway API Inference Extension says of its pods. */
export interface InferencePool {
  /** Labels of its pods. Empty when it names none, which then stands for no pod. */
  readonly labels: Readonly<Record<string, string>>;
  /** Each is an engine of its own. */
  readonly ports: readonly number[];
}

/**
 * Reads `spec.selector.matchLabels` and `spec.targetPorts` of inference.networking.k8s.io/v1, or `spec.selector` and
 * `spec.targetPortNumber` of inference.networking.x-k8s.io/v1alpha2.
 */
export function readInferencePool({ body }: KubernetesObject): InferencePool {
  const { selector, targetPorts, targetPortNumber } = objectOf(objectOf(body).spec);
  const { matchLabels } = objectOf(selector);
  const labels = textsOf(matchLabels === undefined ? selector : matchLabels);
  const numbers =
    targetPorts === undefined ? [targetPortNumber] : listOf(targetPorts).map((port) => objectOf(port).number);
  const ports = numbers.map(portOf).filter((port) => port !== undefined);
  return { labels, ports: [...new Set(ports)].slice(0, maxPorts) };
}
