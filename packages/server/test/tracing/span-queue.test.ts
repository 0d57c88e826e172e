import { createSeededRandom } from "@espalier/core";
import { createRecordingLogger, createSeriesMeter, createVirtualTime } from "@espalier/testing";
import type { SpanExporter } from "@opentelemetry/sdk-trace-base";
import { expect, test } from "vitest";
import {
  batchSpans,
  createSpanMeters,
  createTracing,
  flushMs,
  maxQueuedSpans,
  sendEveryMs,
} from "../../src/tracing/index.ts";

type Settle = Parameters<SpanExporter["export"]>[1];

/** A collector whose batches are answered when a test says so. */
class HeldExporter implements SpanExporter {
  readonly batches: string[][] = [];
  readonly open: Settle[] = [];
  isShut = false;

  readonly export: SpanExporter["export"] = (spans, settle) => {
    this.batches.push(spans.map(({ name }) => name));
    this.open.push(settle);
  };

  /** Answers the batch that has waited longest. */
  answer(error?: Error): void {
    this.open.shift()!(error ? { code: 1, error } : { code: 0 });
  }

  async shutdown(): Promise<void> {
    this.isShut = true;
  }
}

async function started<Exporter extends SpanExporter>(exporter: Exporter) {
  const time = createVirtualTime();
  const logger = createRecordingLogger();
  const meter = createSeriesMeter();
  const tracing = createTracing({
    ...{ serviceName: "s", instanceId: "i", sample: 1, createExporter: async () => exporter },
    ...{ clock: time.clock, scheduler: time.scheduler, random: createSeededRandom(1) },
    ...{ logger, meters: createSpanMeters(meter) },
  });
  await tracing.start();
  let made = 0;
  return {
    ...{ time, tracing, exporter, lines: logger.lines },
    add(count: number): void {
      for (let at = 0; at < count; at++)
        tracing.begin(undefined, { name: String(made++), kind: "server", startMs: 0 }).end(1);
    },
    counts: () =>
      ["sent", "failed", "dropped"].map((outcome) => meter.value("espalier_trace_spans_total", outcome) ?? 0),
  };
}

test("spans wait for others for a while, and go at once when they are a batch", async () => {
  const { time, exporter, add, counts } = await started(new HeldExporter());
  add(2);
  time.advance(sendEveryMs - 1);
  expect(exporter.batches).toEqual([]);
  time.advance(1);
  expect(exporter.batches).toEqual([["0", "1"]]);
  exporter.answer();
  add(batchSpans);
  expect(exporter.batches[1]).toHaveLength(batchSpans);
  exporter.answer();
  expect(counts()).toEqual([2 + batchSpans, 0, 0]);
  expect(time.pendingCount).toBe(0);
});

test("one batch goes after the other, in order", async () => {
  const { exporter, add, time } = await started(new HeldExporter());
  add(3 * batchSpans + 1);
  expect(exporter.open).toHaveLength(1);
  exporter.answer();
  exporter.answer();
  exporter.answer();
  expect(exporter.open).toHaveLength(0);
  time.advance(sendEveryMs);
  expect(exporter.batches.flat()).toEqual(Array.from({ length: 3 * batchSpans + 1 }, (_, at) => String(at)));
});

test("one past the bound is dropped and counted, and never waits", async () => {
  const { exporter, add, counts } = await started(new HeldExporter());
  add(batchSpans + maxQueuedSpans);
  expect(counts()).toEqual([0, 0, 0]);
  add(1);
  expect(counts()).toEqual([0, 0, 1]);
  exporter.answer();
  add(1);
  expect(counts()).toEqual([batchSpans, 0, 1]);
});

test("a collector that fails is logged once for each time it begins to, and its spans are counted", async () => {
  const { exporter, add, counts, lines, time } = await started(new HeldExporter());
  const round = (error?: Error): void => {
    add(1);
    time.advance(sendEveryMs);
    exporter.answer(error);
  };
  round();
  round(new Error("no"));
  round(new Error("no"));
  round();
  round();
  round(new Error("again"));
  expect(counts()).toEqual([3, 3, 0]);
  expect(lines.map(({ level }) => level)).toEqual(["warn", "info", "warn"]);
});

test("after a failure the next batch waits its time, however many there are", async () => {
  const { exporter, add, time } = await started(new HeldExporter());
  add(3 * batchSpans);
  exporter.answer(new Error("no"));
  expect(exporter.batches).toHaveLength(1);
  time.advance(sendEveryMs);
  expect(exporter.batches).toHaveLength(2);
});

test("an exporter that throws, or answers twice, is no more than a failure", async () => {
  const throwing: SpanExporter = {
    export() {
      throw new Error("broken");
    },
    shutdown: async () => {},
  };
  const broken = await started(throwing);
  broken.add(batchSpans);
  expect(broken.counts()).toEqual([0, batchSpans, 0]);

  const { exporter, add, counts } = await started(new HeldExporter());
  add(batchSpans);
  const [settle] = exporter.open;
  settle!({ code: 0 });
  settle!({ code: 1 });
  expect(counts()).toEqual([batchSpans, 0, 0]);
});

test("the end sends what waits", async () => {
  const { exporter, tracing, add, counts } = await started(new HeldExporter());
  add(batchSpans + 3);
  const stopped = tracing.stop();
  expect(exporter.open).toHaveLength(1);
  exporter.answer();
  exporter.answer();
  await stopped;
  expect(exporter.batches.map(({ length }) => length)).toEqual([batchSpans, 3]);
  expect(counts()).toEqual([batchSpans + 3, 0, 0]);
  expect(exporter.isShut).toBe(true);
});

test("the end does not wait for a collector that is silent, and counts what is lost", async () => {
  const { exporter, tracing, add, counts, time } = await started(new HeldExporter());
  add(batchSpans + 3);
  let isStopped = false;
  const stopped = tracing.stop().then(() => {
    isStopped = true;
  });
  await time.advanceAsync(flushMs - 1);
  expect(isStopped).toBe(false);
  await time.advanceAsync(1);
  await stopped;
  expect(counts()).toEqual([0, 0, 3]);
  exporter.answer();
  expect(exporter.batches).toHaveLength(1);
  expect(time.pendingCount).toBe(0);
});

test("an end with nothing to send is at once", async () => {
  const { exporter, tracing } = await started(new HeldExporter());
  await tracing.stop();
  expect([exporter.batches, exporter.isShut]).toEqual([[], true]);
});
