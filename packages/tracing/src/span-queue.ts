import type { Cancel, Logger, Scheduler } from "@espalier/common";
import type { ReadableSpan, SpanExporter, SpanProcessor } from "@opentelemetry/sdk-trace-base";
import { batchSpans, flushMs, maxQueuedSpans, sendEveryMs } from "./bounds.ts";
import type { SpanMeters } from "./span-meters.ts";

/** The exporter's word for success; its type is of a package beneath. */
const exported = 0;

export interface SpanQueueOptions {
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
