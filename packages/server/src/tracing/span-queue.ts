import type { Cancel, CounterSeries, Logger, Meter, Scheduler } from "@espalier/core";
import type { ReadableSpan, SpanExporter, SpanProcessor } from "@opentelemetry/sdk-trace-base";

/** Maximum spans in the queue, enough for about 300 requests; further ones are dropped. */
export const maxQueuedSpans = 2_048;
/** Spans in one batch: a batch is serialised at once, and should not delay requests. */
export const batchSpans = 64;
/** Longest wait of a span for its batch to fill. */
export const sendEveryMs = 1_000;
/** Time limit of one batch including retries; less than `flushMs`, so that it ends before the router does. */
export const exportTimeoutMs = 2_000;
/** How long a stopping router waits for the last spans. */
export const flushMs = 3_000;
/** Limits for one span: longer values are cut, further ones are left out. */
export const maxAttributeLength = 256;
/** Attributes of a span; further ones are left out. */
export const maxAttributes = 64;
/** Events of a span; the oldest is left out. */
export const maxEvents = 32;
/** Maximum unsampled failed requests recorded per second, because an outage fails thousands in the same way. */
export const maxKeptPerSecond = 10;

/** Outcomes of recorded spans. */
export interface SpanMeters {
  /** Accepted by the collector. */
  readonly sent: CounterSeries;
  /** Refused by the collector, or it was unreachable. */
  readonly failed: CounterSeries;
  /** Never sent: the queue was full, or the router stopped. */
  readonly dropped: CounterSeries;
}

/** Registers the counter and looks up its series once. */
export function createSpanMeters(meter: Meter): SpanMeters {
  const spans = meter.counter(
    "espalier_trace_spans_total",
    "Recorded spans by outcome: sent, failed (the collector did not accept them) or dropped (the queue was full).",
    ["outcome"],
  );
  return { sent: spans.series("sent"), failed: spans.series("failed"), dropped: spans.series("dropped") };
}

/** The exporter's code for success; its enum is in a package that is not a dependency. */
export const exported = 0;

interface SpanQueueOptions {
  readonly exporter: SpanExporter;
  readonly scheduler: Scheduler;
  readonly logger: Logger;
  readonly meters: SpanMeters;
}

/**
 * Queues ended spans and sends them, one batch at a time. Adding a span never waits and never fails, even if the
 * collector does. Spans that do not fit are dropped and counted.
 */
export class SpanQueue implements SpanProcessor {
  readonly #options: SpanQueueOptions;
  readonly #spans: ReadableSpan[] = [];
  #timer: Cancel | undefined;
  #sending = 0;
  /** Whether the last batch failed: logged once when it begins and once when it is over. */
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

  /** Sends the queue. Resolves when every span is sent or given up, after `flushMs` at the latest. */
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

  /** Flushes; spans that are not sent by then are dropped. */
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
        settle(code === exported ? undefined : (error ?? new Error("rejected by the collector"))),
      );
    } catch (thrown) {
      settle(thrown instanceof Error ? thrown : new Error(String(thrown)));
    }
  }

  #settled(count: number, error: Error | undefined): void {
    const { meters, logger } = this.#options;
    this.#sending = 0;
    (error ? meters.failed : meters.sent).add(count);
    if (error && !this.#isFailing) logger.warn("trace collector unavailable: spans lost", { error });
    if (!error && this.#isFailing) logger.info("trace collector recovered", {});
    this.#isFailing = error !== undefined;
    if (this.#isOver) return;
    if (this.#spans.length === 0) this.#emptied?.();
    // After a failure, waiting gives the collector time, and the queue bounds the spans added in the meantime.
    else if (this.#emptied || (!error && this.#spans.length >= batchSpans)) this.#send();
    else this.#sendLater();
  }
}
