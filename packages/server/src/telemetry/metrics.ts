import { type CounterSeries, type Meter, type Metric, type Scheduler, systemScheduler } from "@espalier/core";
import { collectDefaultMetrics, type Metric as PromMetric, Registry } from "prom-client";
import {
  type Cell,
  createCounterCell,
  createFamily,
  createGaugeCell,
  createHistogramCell,
  type Family,
} from "./family.ts";

export interface MetricsOptions {
  /** Maximum series per metric before further label sets share one; 1,000 by default. */
  readonly maxSeriesPerMetric?: number;
  /**
   * Whether to expose `process_*` and `nodejs_*` (CPU, memory, event-loop delay, garbage collection); yes by default.
   * Their observers run until the process ends.
   */
  readonly processMetrics?: boolean;
  readonly scheduler?: Scheduler;
}

/** A metric whose text is longer, in characters, took milliseconds to print. */
const largePartLength = 65_536;

/** An answer to a scrape: Prometheus text format 0.0.4. */
export interface Exposition {
  readonly contentType: string;
  readonly body: string;
}

export interface Metrics {
  readonly meter: Meter;
  /** Lets other work run after each metric with many series, so that a large exposition does not delay requests. */
  render(): Promise<Exposition>;
  /** Every metric registered so far, by name. */
  describe(): readonly MetricInfo[];
}

/** What prom-client's registry needs to print a metric, and `describe` reads back. */
interface RegisteredMetric {
  readonly name: string;
  readonly help: string;
  readonly type: MetricType;
  readonly labelNames: readonly string[];
}

interface Registration {
  readonly info: MetricInfo;
  readonly buckets: readonly number[] | undefined;
  readonly metric: unknown;
}

/**
 * Metrics in a separate registry, so that two instances in one process do not interfere.
 *
 * A metric with `maxSeriesPerMetric` series gives every further label set one shared series with each label `other`;
 * `espalier_metrics_overflow_total` counts those lookups. Values that are not finite numbers, and negative amounts for
 * counters, are skipped and counted by `espalier_metrics_refused_total`. A wrong measurement must not fail the request
 * that made it.
 */
export function createMetrics(options: MetricsOptions = {}): Metrics {
  const { maxSeriesPerMetric = 1_000, processMetrics = true, scheduler = systemScheduler } = options;
  const registry = new Registry();
  if (processMetrics) collectDefaultMetrics({ register: registry });
  const registrations = new Map<string, Registration>();

  const register = <Series>(
    info: MetricInfo,
    createCell: (refuse: () => void) => Cell<Series>,
    { buckets, maxSeries = maxSeriesPerMetric }: { buckets?: readonly number[]; maxSeries?: number } = {},
  ): Metric<Series> => {
    const { name } = info;
    const known = registrations.get(name);
    if (known) {
      if (isSame(known, info, buckets)) return known.metric as Metric<Series>;
      throw new TypeError(`metric ${name} is registered already with another description`);
    }
    assertMetricInfo(info);
    const refuse = (): void => refusals.series(name).add();
    const onOverflow = (): void => overflows.series(name).add();
    const family = createFamily({ info, maxSeries, createCell: () => createCell(refuse), onOverflow });
    registrations.set(name, { info, buckets, metric: family.metric });
    registry.registerMetric(asPromMetric(info, family));
    return family.metric;
  };

  // Their label is a metric's name. The code has a fixed number of these, and a limit would make the counters count
  // themselves.
  const ofEveryMetric = (name: string, help: string): Metric<CounterSeries> =>
    register({ name, help, type: "counter", labels: ["metric"] }, createCounterCell, { maxSeries: Infinity });
  const overflows = ofEveryMetric(
    "espalier_metrics_overflow_total",
    "Label sets beyond a metric's series limit, counted in its series labelled other.",
  );
  const refusals = ofEveryMetric(
    "espalier_metrics_refused_total",
    "Metric values rejected as not finite, or negative for a counter.",
  );

  return {
    meter: {
      counter: (name, help, labels = []) => register({ name, help, type: "counter", labels }, createCounterCell),
      gauge: (name, help, labels = []) => register({ name, help, type: "gauge", labels }, createGaugeCell),
      histogram: (name, help, buckets, labels = []) => {
        assertBuckets(name, buckets);
        const createCell = (refuse: () => void) => createHistogramCell(buckets, refuse);
        return register({ name, help, type: "histogram", labels }, createCell, { buckets });
      },
    },
    async render() {
      const parts: string[] = [];
      for (const { name } of registry.getMetricsAsArray()) {
        const part = await registry.getSingleMetricAsString(name);
        parts.push(part);
        if (part.length > largePartLength) await new Promise<void>((resolve) => scheduler.after(0, resolve));
      }
      return { contentType: registry.contentType, body: `${parts.join("\n\n")}\n` };
    },
    describe: () =>
      (registry.getMetricsAsArray() as unknown as readonly RegisteredMetric[])
        .map(({ name, help, type, labelNames }) => ({ name, help, type, labels: labelNames }))
        .sort((one, other) => (one.name < other.name ? -1 : 1)),
  };
}

function isSame(known: Registration, info: MetricInfo, buckets: readonly number[] | undefined): boolean {
  return JSON.stringify([known.info, known.buckets]) === JSON.stringify([info, buckets]);
}

/** The registry reads only these fields of a metric and `get`, which the typings do not show. */
function asPromMetric<Series>(info: MetricInfo, family: Family<Series>): PromMetric {
  const exposed: RegisteredMetric & { get(): Promise<unknown> } = {
    name: info.name,
    help: info.help,
    type: info.type,
    labelNames: info.labels,
    get: async () => ({ name: info.name, help: info.help, type: info.type, values: family.values() }),
  };
  return exposed as unknown as PromMetric;
}

export type MetricType = "counter" | "gauge" | "histogram";

/** The description of one metric, for generated documents and for the exposition. */
export interface MetricInfo {
  readonly name: string;
  readonly help: string;
  readonly type: MetricType;
  /** Label names, in the order in which `series` takes their values. */
  readonly labels: readonly string[];
}

const metricName = /^espalier_[a-z0-9]+(_[a-z0-9]+)*$/;
const labelName = /^[a-z][a-z0-9_]*$/;

/** @throws TypeError when a name violates the naming rules, or a label is reserved or repeated */
function assertMetricInfo({ name, help, type, labels }: MetricInfo): void {
  if (!metricName.test(name)) throw new TypeError(`metric name ${name} is not espalier_ and lower-case words`);
  if (help.trim() === "") throw new TypeError(`metric ${name} has no help text`);
  for (const label of labels) {
    if (!labelName.test(label)) throw new TypeError(`label ${label} of metric ${name} is not a lower-case word`);
    if (type === "histogram" && label === "le") throw new TypeError(`label le of histogram ${name} is reserved`);
  }
  if (new Set(labels).size !== labels.length) throw new TypeError(`metric ${name} has a label twice`);
}

/** @throws TypeError unless the upper bounds are finite, ascending and at least one */
function assertBuckets(name: string, buckets: readonly number[]): void {
  const ascending = buckets.every((bound, at) => Number.isFinite(bound) && bound > (buckets[at - 1] ?? -Infinity));
  if (buckets.length === 0 || !ascending) throw new TypeError(`buckets of ${name} are not ascending finite numbers`);
}
