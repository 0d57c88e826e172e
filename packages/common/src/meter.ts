/** What a metric is called and which labels it carries. `name` starts with `espalier_` and ends in its unit. */
export interface MetricDescription {
  readonly name: string;
  readonly help: string;
  /** Label names. Every label's values must come from a bounded set. */
  readonly labels?: readonly string[];
}

export interface HistogramDescription extends MetricDescription {
  /** Upper bounds of the buckets, ascending, in the metric's unit. */
  readonly buckets: readonly number[];
}

/** A series with its labels filled in. Hold on to it: looking one up is dearer than using it. */
export interface CounterSeries {
  add(amount?: number): void;
}

export interface GaugeSeries {
  set(value: number): void;
}

export interface HistogramSeries {
  observe(value: number): void;
}

/** One metric: the same label values always give the same series. */
export interface Metric<Series> {
  /** `values` in the order of the description's `labels`. */
  series(...values: readonly string[]): Series;
  /** Forgets the series with these label values, so that what has left the fleet leaves the exposition too. */
  remove(...values: readonly string[]): void;
}

/** Metrics as the code may use them. Registering a name twice with the same description returns the same metric. */
export interface Meter {
  counter(description: MetricDescription): Metric<CounterSeries>;
  gauge(description: MetricDescription): Metric<GaugeSeries>;
  histogram(description: HistogramDescription): Metric<HistogramSeries>;
}

const ignore = (): void => {};
const silentMetric: Metric<CounterSeries & GaugeSeries & HistogramSeries> = {
  series: () => ({ add: ignore, set: ignore, observe: ignore }),
  remove: ignore,
};

/** Discards everything. */
export const silentMeter: Meter = {
  counter: () => silentMetric,
  gauge: () => silentMetric,
  histogram: () => silentMetric,
};

/** A counter without labels. @returns adds to it, one if nothing else is said */
export function counterOf(meter: Meter, name: string, help: string): (amount?: number) => void {
  const series = meter.counter({ name, help }).series();
  return (amount) => series.add(amount);
}

/** A counter with one label. @returns adds to the series of a value, one if nothing else is said */
export function counterBy<Value extends string>(
  meter: Meter,
  label: string,
  name: string,
  help: string,
): (value: Value, amount?: number) => void {
  const counter = meter.counter({ name, help, labels: [label] });
  const known = new Map<Value, CounterSeries>();
  return (value, amount) => {
    let series = known.get(value);
    if (series === undefined) {
      series = counter.series(value);
      known.set(value, series);
    }
    series.add(amount);
  };
}

/** A gauge without labels. @returns sets it */
export function gaugeOf(meter: Meter, name: string, help: string): (value: number) => void {
  const series = meter.gauge({ name, help }).series();
  return (value) => series.set(value);
}

/** A histogram of seconds without labels. @returns observes milliseconds; what two clocks make less than nothing counts as 0 */
export function secondsOf(
  meter: Meter,
  buckets: readonly number[],
  name: string,
  help: string,
): (milliseconds: number) => void {
  const series = meter.histogram({ name, help, buckets }).series();
  return (milliseconds) => series.observe(Math.max(0, milliseconds) / 1_000);
}
