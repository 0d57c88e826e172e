import { EspalierError, silentLogger } from "@espalier/core";
import { createRecordingLogger, createSeriesMeter, createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { createOverload, type Overload } from "../src/lifecycle/overload.ts";

/** A router whose event loop comes late to its timers, and whose heap fills, as the test says. */
async function setUp() {
  const time = createVirtualTime();
  const state = { lateMs: 0, heap: 0.2, mesh: 0, bodies: 0, skewMs: 0 };
  const limits = { maxEventLoopDelayMs: 200, maxHeapShare: 0.9, maxMeshBufferBytes: 1_000 };
  const meter = createSeriesMeter();
  const logger = createRecordingLogger();
  const overload = createOverload({
    clock: { ...time.clock, nowMs: () => time.clock.nowMs() + state.skewMs },
    scheduler: time.scheduler,
    ...{ logger, meter, limits: () => limits, heapShare: () => state.heap },
    ...{ bodyBytes: () => state.bodies, meshBytes: () => state.mesh },
  });
  await overload.start();
  return {
    ...{ overload, state, limits, meter, logger, time },
    /** Lets so many looks pass, each as late as the state says. */
    look(count: number) {
      for (let turn = 0; turn < count; turn++) {
        state.skewMs += state.lateMs;
        time.advance(100);
      }
    },
  };
}

/** Of so many requests, how many are refused. */
function refused(overload: Overload, count = 1_000): number {
  let refusals = 0;
  for (let request = 0; request < count; request++) {
    try {
      overload.admit();
    } catch (error) {
      expect(error).toMatchObject({ code: "overloaded", retryAfterSeconds: 2 });
      expect(error).toBeInstanceOf(EspalierError);
      refusals += 1;
    }
  }
  return refusals;
}

describe("new requests", () => {
  test("are all taken while there is time and memory", async () => {
    const { overload, look, state, limits } = await setUp();
    state.lateMs = limits.maxEventLoopDelayMs;
    state.heap = limits.maxHeapShare;
    look(100);
    expect(refused(overload)).toBe(0);
  });

  test("are taken through a single long pause", async () => {
    const { overload, look, state } = await setUp();
    look(10);
    state.lateMs = 5_000;
    look(4);
    state.lateMs = 0;
    look(1);
    expect(refused(overload)).toBe(0);
  });

  test("are refused, a growing share of them, while the event loop is late all the time", async () => {
    const { overload, look, state } = await setUp();
    state.lateMs = 201;
    look(5);
    expect(refused(overload)).toBeCloseTo(100, -1);
    look(3);
    expect(refused(overload)).toBeCloseTo(400, -1);
    look(20);
    expect(refused(overload)).toBe(1_000);
  });

  test("are refused while the heap is nearly full", async () => {
    const { overload, look, state } = await setUp();
    state.heap = 0.91;
    look(1);
    expect(refused(overload)).toBeCloseTo(100, -1);
    look(30);
    expect(refused(overload)).toBe(1_000);
  });

  test("are refused while too much waits for other routers, and say so", async () => {
    const { overload, look, state, limits, meter } = await setUp();
    state.mesh = limits.maxMeshBufferBytes;
    look(100);
    expect(refused(overload)).toBe(0);
    state.mesh += 1;
    look(20);
    expect(() => overload.admit()).toThrow("The router is short of bandwidth to other routers.");
    expect(meter.value("espalier_shed_requests_total", "mesh")).toBe(1);
    state.mesh = 0;
    look(20);
    expect(refused(overload)).toBe(0);
  });

  test("are taken again little by little", async () => {
    const { overload, look, state, logger } = await setUp();
    state.heap = 0.95;
    look(10);
    state.heap = 0.5;
    look(10);
    expect(refused(overload)).toBeCloseTo(500, -1);
    look(11);
    expect(refused(overload)).toBe(0);
    expect(logger.lines.map(({ level }) => level)).toEqual(["warn", "info"]);
  });
});

test("limits are read anew at each look", async () => {
  const { overload, look, state, limits } = await setUp();
  state.heap = 0.8;
  look(5);
  expect(refused(overload)).toBe(0);
  limits.maxHeapShare = 0.7;
  look(1);
  expect(refused(overload)).toBeCloseTo(100, -1);
});

test("metrics tell the pressure and what was refused for it", async () => {
  const { overload, look, state, meter } = await setUp();
  Object.assign(state, { lateMs: 300, mesh: 7, bodies: 8 });
  look(6);
  const count = refused(overload);
  expect(meter.value("espalier_shed_requests_total", "event-loop")).toBe(count);
  expect(meter.value("espalier_event_loop_delay_seconds")).toBeCloseTo(0.3, 5);
  expect(meter.value("espalier_heap_used_ratio")).toBe(0.2);
  expect(meter.value("espalier_mesh_queued_bytes")).toBe(7);
  expect(meter.value("espalier_request_body_bytes")).toBe(8);
  expect(meter.value("espalier_shed_ratio")).toBeCloseTo(0.2, 5);
});

test("nothing runs after the stop, and the heap of this process is known", async () => {
  const { overload, time } = await setUp();
  await overload.stop();
  time.advance(10_000);
  const meter = createSeriesMeter();
  const { clock, scheduler } = time;
  const limits = () => ({ maxEventLoopDelayMs: 1_000, maxHeapShare: 1, maxMeshBufferBytes: 1 });
  const others = { bodyBytes: () => 0, meshBytes: () => 0 };
  const own = createOverload({ clock, scheduler, logger: silentLogger, meter, limits, ...others });
  await own.start();
  time.advance(100);
  const share = meter.value("espalier_heap_used_ratio");
  expect(share).toBeGreaterThan(0);
  expect(share).toBeLessThan(1);
  await own.stop();
});
