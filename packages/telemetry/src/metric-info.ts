export type MetricType = "counter" | "gauge" | "histogram";

/** What one metric is, for generated documents and for the exposition. */
export interface MetricInfo {
  readonly name: string;
  readonly help: string;
  readonly type: MetricType;
  /** Label names, in the order in which `series` takes their values. */
  readonly labels: readonly string[];
}

const metricName = /^espalier_[a-z0-9]+(_[a-z0-9]+)*$/;
const labelName = /^[a-z][a-z0-9_]*$/;

/** @throws TypeError when a name does not follow the house form or a label is reserved or named twice */
export function assertMetricInfo({ name, help, type, labels }: MetricInfo): void {
  if (!metricName.test(name)) throw new TypeError(`metric name ${name} is not espalier_ and lower-case words`);
  if (help.trim() === "") throw new TypeError(`metric ${name} has no help text`);
  for (const label of labels) {
    if (!labelName.test(label)) throw new TypeError(`label ${label} of metric ${name} is not a lower-case word`);
    if (type === "histogram" && label === "le") throw new TypeError(`label le of histogram ${name} is reserved`);
  }
  if (new Set(labels).size !== labels.length) throw new TypeError(`metric ${name} has a label twice`);
}

/** @throws TypeError unless the upper bounds are finite, ascending and at least one */
export function assertBuckets(name: string, buckets: readonly number[]): void {
  const ascending = buckets.every((bound, at) => Number.isFinite(bound) && bound > (buckets[at - 1] ?? -Infinity));
  if (buckets.length === 0 || !ascending) throw new TypeError(`buckets of ${name} are not ascending finite numbers`);
}
