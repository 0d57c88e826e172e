/** Named values that accompany a log line. Never a prompt, a completion, a key or a body. */
export type LogFields = Readonly<Record<string, unknown>>;

/** The port for structured logs. */
export interface Logger {
  debug(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  error(message: string, fields?: LogFields): void;
  /** A logger that adds `fields` to every line. */
  child(fields: LogFields): Logger;
}

const ignore = (): void => {};

/** Discards everything. */
export const silentLogger: Logger = {
  debug: ignore,
  info: ignore,
  warn: ignore,
  error: ignore,
  child: () => silentLogger,
};

/** A series with its label values. Keep it: looking it up costs more than using it. */
export interface CounterSeries {
  add(amount?: number): void;
}

export interface GaugeSeries {
  set(value: number): void;
}

export interface HistogramSeries {
  observe(value: number): void;
}

/** One metric. */
export interface Metric<Series> {
  /** @param values in the order of the metric's labels. The same ones always give the same series. */
  series(...values: readonly string[]): Series;
  /** Removes the series that have this value of a label: an engine has gone, for example. */
  forget(label: string, value: string): void;
}

/**
 * The port for metrics. A name begins with `espalier_` and ends in its unit; the values of a label come from a bounded set.
 * Registering a name twice with the same help and labels returns the same metric.
 */
export interface Meter {
  counter(name: string, help: string, labels?: readonly string[]): Metric<CounterSeries>;
  gauge(name: string, help: string, labels?: readonly string[]): Metric<GaugeSeries>;
  /** @param buckets upper bounds, ascending, in the metric's unit */
  histogram(
    name: string,
    help: string,
    buckets: readonly number[],
    labels?: readonly string[],
  ): Metric<HistogramSeries>;
}

const silentMetric: Metric<CounterSeries & GaugeSeries & HistogramSeries> = {
  series: () => ({ add: ignore, set: ignore, observe: ignore }),
  forget: ignore,
};

/** Discards everything. */
export const silentMeter: Meter = {
  counter: () => silentMetric,
  gauge: () => silentMetric,
  histogram: () => silentMetric,
};

/** A counter without labels. @returns adds to it, 1 by default */
export function counterOf(meter: Meter, name: string, help: string): (amount?: number) => void {
  const series = meter.counter(name, help).series();
  return (amount) => series.add(amount);
}

/** A counter with one label. @returns adds to the series of a value, 1 by default */
export function counterBy<Value extends string>(
  meter: Meter,
  label: string,
  name: string,
  help: string,
): (value: Value, amount?: number) => void {
  const counter = meter.counter(name, help, [label]);
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
  const series = meter.gauge(name, help).series();
  return (value) => series.set(value);
}

/** A histogram of seconds without labels. @returns observes milliseconds; negative ones, from two clocks, count as 0 */
export function secondsOf(
  meter: Meter,
  buckets: readonly number[],
  name: string,
  help: string,
): (milliseconds: number) => void {
  const series = meter.histogram(name, help, buckets).series();
  return (milliseconds) => series.observe(Math.max(0, milliseconds) / 1_000);
}

/** OpenTelemetry's kind of a span: a request received, a request sent, or work in between. */
export type SpanKind = "server" | "client" | "internal";

/** Undefined values are left out. Never a prompt, an answer or a secret: traces are exported. */
export type SpanAttributes = Readonly<Record<string, string | number | boolean | undefined>>;

export interface SpanStart {
  readonly name: string;
  readonly kind: SpanKind;
  /** Milliseconds on the monotonic clock, like every time here. */
  readonly startMs: number;
  readonly attributes?: SpanAttributes;
}

/** One operation in a trace. It is exported when it has ended. */
export interface Span {
  /** W3C `traceparent` for requests sent within it. */
  readonly traceparent: string;
  child(start: SpanStart): Span;
  rename(name: string): void;
  set(attributes: SpanAttributes): void;
  event(name: string, atMs: number): void;
  /** @param errorType what went wrong, from a small set; undefined when nothing did */
  end(endMs: number, errorType?: string): void;
}

/** The caller's trace context, from its headers. */
export interface TraceParent {
  /** A valid W3C `traceparent`. */
  readonly traceparent: string;
  readonly tracestate: string | undefined;
}

/** The port for traces. */
export interface Tracer {
  /** False if nothing is ever recorded; then no other method needs to be called. */
  readonly isOn: boolean;
  /**
   * Decides before a trace begins whether to record a request: as its caller decided, or at random.
   *
   * @param traceparent the caller's, valid; undefined for a request that begins a trace
   */
  samples(traceparent: string | undefined): boolean;
  /** Begins the trace of a request that is recorded, or this router's part of its caller's. */
  begin(parent: TraceParent | undefined, start: SpanStart): Span;
  /**
   * Begins a span after the fact, for a request that was not recorded and has failed.
   *
   * @param traceparent the one sent to engines, valid; undefined if no engine was asked
   * @returns undefined if the limit of such spans is reached
   */
  keep(traceparent: string | undefined, start: SpanStart): Span | undefined;
}

const silentSpan: Span = {
  traceparent: "00-00000000000000000000000000000000-0000000000000000-00",
  child: () => silentSpan,
  rename() {},
  set() {},
  event() {},
  end() {},
};

/** Records nothing. */
export const silentTracer: Tracer = {
  isOn: false,
  samples: () => false,
  begin: () => silentSpan,
  keep: () => undefined,
};
