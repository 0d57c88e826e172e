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
