import { createSeededRandom, type Span } from "@espalier/core";
import { createRecordingLogger, createSeriesMeter, createVirtualTime } from "@espalier/testing";
import { InMemorySpanExporter } from "@opentelemetry/sdk-trace-base";
import { expect, test } from "vitest";
import {
  createSpanMeters,
  createTracing,
  maxAttributeLength,
  maxAttributes,
  maxEvents,
  maxKeptPerSecond,
  sendEveryMs,
  type Tracing,
} from "../../src/tracing/index.ts";

const traceId = "4bf92f3577b34da6a3ce929d0e0e4736";
const parentId = "00f067aa0ba902b7";
const sampled = `00-${traceId}-${parentId}-01`;
const unsampled = `00-${traceId}-${parentId}-00`;
const startWallMs = 1_700_000_000_000;

async function started(sample = 1) {
  const time = createVirtualTime(startWallMs);
  const exporter = new InMemorySpanExporter();
  const tracing = createTracing({
    ...{ serviceName: "routers", instanceId: "router-1", sample, createExporter: async () => exporter },
    ...{ clock: time.clock, scheduler: time.scheduler, random: createSeededRandom(7) },
    ...{ logger: createRecordingLogger(), meters: createSpanMeters(createSeriesMeter()) },
  });
  await tracing.start();
  /** Everything that has ended, by name. */
  const spans = () => {
    time.advance(sendEveryMs);
    return new Map(exporter.getFinishedSpans().map((span) => [span.name, span]));
  };
  return { time, tracing, spans };
}

const begin = (tracing: Tracing, startMs = 0): Span =>
  tracing.begin(undefined, { name: "whole", kind: "server", startMs });

test("spans keep names, kinds, times, attributes and events, and stand below each other", async () => {
  const { time, tracing, spans } = await started();
  time.advance(50);
  const whole = tracing.begin(undefined, {
    name: "?",
    kind: "server",
    startMs: 10.25,
    attributes: { a: 1, left: undefined },
  });
  const call = whole.child({ name: "call", kind: "client", startMs: 20 });
  call.event("first_byte", 30.5);
  call.end(40);
  whole.rename("whole");
  whole.set({ b: "two", c: true, left: undefined });
  whole.end(45);

  const [seenWhole, seenCall] = [spans().get("whole")!, spans().get("call")!];
  expect([seenWhole.kind, seenCall.kind]).toEqual([1, 2]);
  expect(seenWhole.attributes).toEqual({ a: 1, b: "two", c: true });
  expect(seenWhole.startTime).toEqual([startWallMs / 1_000, 10_250_000]);
  expect(seenWhole.endTime).toEqual([startWallMs / 1_000, 45_000_000]);
  expect(seenCall.events.map(({ name, time: at }) => [name, at])).toEqual([
    ["first_byte", [startWallMs / 1_000, 30_500_000]],
  ]);
  expect(seenWhole.parentSpanContext).toBeUndefined();
  expect(seenCall.parentSpanContext?.spanId).toBe(seenWhole.spanContext().spanId);
  expect(seenCall.spanContext().traceId).toBe(seenWhole.spanContext().traceId);
  expect(seenWhole.resource.attributes).toEqual({ "service.name": "routers", "service.instance.id": "router-1" });
  expect([seenWhole.status.code, seenCall.status.code]).toEqual([0, 0]);
});

test("what a called one is told is the span's own place", async () => {
  const { tracing, spans } = await started();
  const whole = begin(tracing);
  const call = whole.child({ name: "call", kind: "client", startMs: 0 });
  expect(call.traceparent).toMatch(/^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/);
  call.end(1);
  whole.end(1);
  for (const [name, { traceparent }] of [
    ["whole", whole],
    ["call", call],
  ] as const) {
    const context = spans().get(name)!.spanContext();
    expect(traceparent).toBe(`00-${context.traceId}-${context.spanId}-01`);
  }
});

test("a caller's trace is continued, with its state", async () => {
  const { tracing, spans } = await started(0);
  tracing
    .begin({ traceparent: sampled, tracestate: "vendor=1,other=2" }, { name: "whole", kind: "server", startMs: 0 })
    .end(1);
  const span = spans().get("whole")!;
  expect(span.parentSpanContext).toMatchObject({ traceId, spanId: parentId, isRemote: true });
  expect(span.spanContext().traceState?.serialize()).toBe("vendor=1,other=2");
});

test("an error has its type, and only an error", async () => {
  const { tracing, spans } = await started();
  begin(tracing).end(1, "upstream_reset");
  const span = spans().get("whole")!;
  expect([span.status.code, span.attributes]).toEqual([2, { "error.type": "upstream_reset" }]);
});

test("the caller decides, whatever the share, and without one chance does", async () => {
  for (const share of [0, 1]) {
    const { tracing } = await started(share);
    expect([sampled, unsampled, `${sampled.slice(0, -2)}03`, undefined].map(tracing.samples)).toEqual([
      true,
      false,
      true,
      share === 1,
    ]);
  }
  const { tracing } = await started(0.1);
  const taken = Array.from({ length: 10_000 }, () => tracing.samples(undefined)).filter(Boolean).length;
  expect(taken).toBeGreaterThan(850);
  expect(taken).toBeLessThan(1_150);
});

test("before its start, and after its end, it records nothing and does not mind", async () => {
  const exporter = new InMemorySpanExporter();
  const time = createVirtualTime();
  const meter = createSeriesMeter();
  const tracing = createTracing({
    ...{ serviceName: "s", instanceId: "i", sample: 1, createExporter: async () => exporter },
    ...{ clock: time.clock, scheduler: time.scheduler, random: createSeededRandom(1) },
    ...{ logger: createRecordingLogger(), meters: createSpanMeters(meter) },
  });
  expect([tracing.isOn, tracing.samples(sampled), tracing.samples(undefined)]).toEqual([true, false, false]);
  expect(tracing.keep(undefined, { name: "kept", kind: "server", startMs: 0 })).toBeUndefined();
  const early = begin(tracing);
  early.child({ name: "child", kind: "internal", startMs: 0 }).end(1);
  early.end(1);
  await tracing.start();
  const late = begin(tracing);
  await tracing.stop();
  late.end(1);
  expect(exporter.getFinishedSpans()).toEqual([]);
  expect(meter.value("espalier_trace_spans_total", "dropped")).toBe(1);
  expect(time.pendingCount).toBe(0);
});

test("a failed request is kept under the ids that engines were told, and so many of them in a second", async () => {
  const { time, tracing, spans } = await started(0);
  const keep = (traceparent?: string) => tracing.keep(traceparent, { name: "kept", kind: "server", startMs: 0 });
  const kept = keep(unsampled);
  kept?.child({ name: "below", kind: "internal", startMs: 0 }).end(1);
  kept?.end(1, "500");
  const { traceId: keptTrace, spanId } = spans().get("kept")!.spanContext();
  expect([keptTrace, spanId]).toEqual([traceId, parentId]);
  expect(spans().get("below")!.spanContext().spanId).not.toBe(parentId);
  expect(keep()?.traceparent).not.toContain(traceId);

  time.advance(1_000);
  const count = () => Array.from({ length: maxKeptPerSecond + 1 }, () => keep()).filter(Boolean).length;
  expect(count()).toBe(maxKeptPerSecond);
  time.advance(999);
  expect(keep()).toBeUndefined();
  time.advance(1);
  expect(count()).toBe(maxKeptPerSecond);
});

test("what a span holds is bounded: attributes, their length, events", async () => {
  const { tracing, spans } = await started();
  const span = begin(tracing);
  span.set({ long: "x".repeat(maxAttributeLength + 1) });
  for (let at = 0; at < maxAttributes + 1; at++) span.set({ [`a${at}`]: at });
  for (let at = 0; at < maxEvents + 1; at++) span.event(`e${at}`, at);
  span.end(1);
  const seen = spans().get("whole")!;
  expect(seen.attributes.long).toHaveLength(maxAttributeLength);
  expect(Object.keys(seen.attributes)).toHaveLength(maxAttributes);
  expect(seen.events).toHaveLength(maxEvents);
});

test("a clock that is set back in the middle of a trace does not turn its times around", async () => {
  const time = createVirtualTime();
  let wallMs = startWallMs;
  const exporter = new InMemorySpanExporter();
  const tracing = createTracing({
    ...{ serviceName: "s", instanceId: "i", sample: 1, createExporter: async () => exporter },
    clock: { nowMs: time.clock.nowMs, wallMs: () => wallMs },
    ...{ scheduler: time.scheduler, random: createSeededRandom(1) },
    ...{ logger: createRecordingLogger(), meters: createSpanMeters(createSeriesMeter()) },
  });
  await tracing.start();
  const span = begin(tracing);
  wallMs -= 3_600_000;
  span.child({ name: "child", kind: "internal", startMs: 5 }).end(6);
  span.end(10);
  time.advance(sendEveryMs);
  const starts = exporter.getFinishedSpans().map(({ name, duration, startTime }) => [name, duration, startTime[0]]);
  expect(starts).toEqual([
    ["child", [0, 1_000_000], startWallMs / 1_000],
    ["whole", [0, 10_000_000], startWallMs / 1_000],
  ]);
});
