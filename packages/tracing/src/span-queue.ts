import type { Cancel, CounterSeries, Logger, Meter, Scheduler } from "@espalier/common";
import type { ReadableSpan, SpanExporter, SpanProcessor } from "@opentelemetry/sdk-trace-base";

/** Spans that wait to be sent; further ones are dropped. About 300 requests' worth. */
export const maxQueuedSpans = 2_048;
/** Spans in one batch: a batch is made into text in one go, and no request should wait for that for long. */
export const batchSpans = 64;
/** How long a span waits for others at most. */
export const sendEveryMs = 1_000;
/** For one batch, with what is tried again; less than `flushMs`, so that nothing of it outlives the router. */
export const exportTimeoutMs = 2_000;
/** How long the end of a router waits for the last spans. */
export const flushMs = 3_000;
/** Of one span; a longer value is cut, further ones are left out. */
export const maxAttributeLength = 256;
export const maxAttributes = 64;
export const maxEvents = 32;
/** Failed requests that were not recorded and are kept all the same, in a second: an outage fails thousands alike. */
export const maxKeptPerSecond = 10;

/** What became of spans that were recorded. */
export interface SpanMeters {
  /** Taken by the collector. */
  readonly sent: CounterSeries;
  /** Refused by it, or it was not to be reached. */
  readonly failed: CounterSeries;
  /** Never tried: the queue was full, or the router ended. */
  readonly dropped: CounterSeries;
}

/** Registers the counter and looks its series up once. */
export function createSpanMeters(meter: Meter): SpanMeters {
  const spans = meter.counter({
    name: "espalier_trace_spans_total",
    help: "Recorded spans, by what became of them: sent, failed (the collector did not take them) or dropped (the queue was full).",
    labels: ["outcome"],
  });
  return { sent: spans.series("sent"), failed: spans.series("failed"), dropped: spans.series("dropped") };
}

/** The exporter's word for success; its type is of a package beneath. */
const exported = 0;

interface SpanQueueOptions {
  readonly exporter: SpanExporter;
  readonly scheduler: Scheduler;
  readonly logger: Logger;
  readonly meters: SpanMeters;
}

/**
 * Holds ended spans until they are sent, one batch at a time. Whatever the collector does, adding a span takes no time
 * and never fails: what does not fit is dropped and counted.
 */
export class SpanQueue implements SpanProcessor {
  readonly #options: SpanQueueOptions;
  readonly #spans: ReadableSpan[] = [];
  #timer: Cancel | undefined;
  #sending = 0;
  /** Whether the last batch was refused: that is logged once, and once more when it is over. */
  #isFailing = false;
  #isOver = false;
  #emptied: (() => void) | undefined;

  constructor(options: SpanQueueOptions) {
    this.#options = options;
  }

  onStart(): void {}

  onEnd(span: ReadableSpan): void {
    if (this.#isOver || this.#spans.length >= maxQueuedSpans) {
      this.#options.meters.dropped.add();
      return;
    }
    this.#spans.push(span);
    if (this.#spans.length >= batchSpans) this.#send();
    else this.#sendLater();
  }

  /** Sends what waits, and comes back when it is sent or given up, after `flushMs` at the latest. */
  forceFlush(): Promise<void> {
    if (this.#spans.length === 0 && this.#sending === 0) return Promise.resolve();
    return new Promise((resolve) => {
      const cancel = this.#options.scheduler.after(flushMs, resolve);
      this.#emptied = () => {
        cancel();
        resolve();
      };
      this.#send();
    });
  }

  /** Flushes; what has not gone by then never goes. */
  async shutdown(): Promise<void> {
    await this.forceFlush();
    this.#isOver = true;
    this.#timer?.();
    this.#options.meters.dropped.add(this.#spans.splice(0).length);
  }

  #sendLater(): void {
    this.#timer ??= this.#options.scheduler.after(sendEveryMs, () => this.#send());
  }

  #send(): void {
    this.#timer?.();
    this.#timer = undefined;
    if (this.#sending > 0 || this.#spans.length === 0) return;
    const batch = this.#spans.splice(0, batchSpans);
    this.#sending = batch.length;
    let isSettled = false;
    const settle = (error: Error | undefined): void => {
      if (isSettled) return;
      isSettled = true;
      this.#settled(batch.length, error);
    };
    try {
      this.#options.exporter.export(batch, ({ code, error }) =>
        settle(code === exported ? undefined : (error ?? new Error("the collector did not take them"))),
      );
    } catch (thrown) {
      settle(thrown instanceof Error ? thrown : new Error(String(thrown)));
    }
  }

  #settled(count: number, error: Error | undefined): void {
    const { meters, logger } = this.#options;
    this.#sending = 0;
    (error ? meters.failed : meters.sent).add(count);
    if (error && !this.#isFailing) logger.warn("spans are lost: the trace collector does not take them", { error });
    if (!error && this.#isFailing) logger.info("the trace collector takes spans again", {});
    this.#isFailing = error !== undefined;
    if (this.#isOver) return;
    if (this.#spans.length === 0) this.#emptied?.();
    // Where it failed, waiting gives the collector time, and the queue bounds what comes meanwhile.
    else if (this.#emptied || (!error && this.#spans.length >= batchSpans)) this.#send();
    else this.#sendLater();
  }
}
