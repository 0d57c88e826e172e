/** Whose work a span is: a client's request, a request to somebody else, or something in between. */
export type SpanKind = "server" | "client" | "internal";

/** What is undefined is left out. Never a prompt, an answer or a secret: traces leave the house. */
export type SpanAttributes = Readonly<Record<string, string | number | boolean | undefined>>;

export interface SpanStart {
  readonly name: string;
  readonly kind: SpanKind;
  /** Like every time here: milliseconds on the clock's monotonic axis. */
  readonly startMs: number;
  readonly attributes?: SpanAttributes;
}

/** One piece of work in a trace. It is told of when it has ended. */
export interface Span {
  /** W3C `traceparent` for whoever is called within it. */
  readonly traceparent: string;
  child(start: SpanStart): Span;
  rename(name: string): void;
  set(attributes: SpanAttributes): void;
  event(name: string, atMs: number): void;
  /** @param errorType what went wrong, from a small set; undefined when nothing did */
  end(endMs: number, errorType?: string): void;
}

/** The caller's place in a trace, as its headers say. */
export interface TraceParent {
  /** A valid W3C `traceparent`. */
  readonly traceparent: string;
  readonly tracestate: string | undefined;
}

/** Traces as the code may write them. */
export interface Tracer {
  /** False when nothing is ever recorded: then there is nothing to ask. */
  readonly isOn: boolean;
  /**
   * Decides, before anything of a trace is made, whether a request is recorded: as its caller decided, or by chance.
   *
   * @param traceparent the caller's, valid; undefined for a request that begins a trace
   */
  samples(traceparent: string | undefined): boolean;
  /** Begins the trace of a request that is recorded, or this router's part of its caller's. */
  begin(parent: TraceParent | undefined, start: SpanStart): Span;
  /**
   * Begins a span after the fact, for a request that was not recorded and has failed.
   *
   * @param traceparent what engines were told, valid; undefined when nobody was asked
   * @returns undefined when enough of them have been kept
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
