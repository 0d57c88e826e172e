import { createVirtualTime } from "@espalier/testing";
import { describe, expect, it } from "vitest";
import { PeerRates, Readiness } from "../../src/exchange/backend.ts";
import { DocumentNumbers } from "../../src/exchange/document-broadcaster.ts";
import { HeldUpdates } from "../../src/exchange/document-exchange.ts";
import { createLoopLag } from "../../src/membership/process-time.ts";
import { createLinkStub } from "./link-stub.ts";

describe("held changes", () => {
  const update = (name: string, from: number, bytes: number) => ({
    name,
    from,
    to: from + 1,
    committedWallMs: 0,
    bytes: new Uint8Array(bytes),
  });

  it("come out once, in the order of their writer", () => {
    const held = new HeldUpdates({ maxHeldBytesPerDocument: 1_000, maxHeldBytes: 1_000 });
    for (const from of [5, 3, 4]) held.hold(update("x", from, 10));
    expect(held.take("x").map(({ from }) => from)).toEqual([3, 4, 5]);
    expect(held.take("x")).toEqual([]);
    expect(held.byteLength).toBe(0);
  });

  it("past the bounds give way to newer ones, empty ones too", () => {
    const held = new HeldUpdates({ maxHeldBytesPerDocument: 1_000, maxHeldBytes: 1_500 });
    for (let from = 0; from < 100; from++) held.hold(update("x", from, 36));
    expect(held.byteLength).toBe(1_000);
    for (let from = 0; from < 100; from++) held.hold(update("y", from, 0));
    expect(held.byteLength).toBeLessThanOrEqual(1_500);
    const kept = held.take("x").map(({ from }) => from);
    expect(kept.at(0)).toBe(90);
    expect(
      held
        .take("y")
        .map(({ from }) => from)
        .at(-1),
    ).toBe(99);
    held.hold(update("z", 0, 1_001));
    expect(held.take("z")).toEqual([]);
    expect(held.byteLength).toBe(0);
  });
});

describe("numbers of documents", () => {
  it("are used again once a document is gone, and end at the bound", () => {
    const numbers = new DocumentNumbers(2);
    expect([numbers.numberOf("x"), numbers.numberOf("y"), numbers.numberOf("x")]).toEqual([0, 1, 0]);
    expect(numbers.numberOf("z")).toBeUndefined();
    expect(numbers.retain((name) => name !== "x")).toEqual([0]);
    expect(numbers.numberOf("z")).toBe(0);
    expect(numbers.numberOf("w")).toBeUndefined();
  });
});

describe("readiness", () => {
  function setUp() {
    const time = createVirtualTime();
    const is = { tried: false, snapshot: false, gauges: false };
    const readiness = new Readiness({
      clock: time.clock,
      graceMs: 3_000,
      hasTriedAll: () => is.tried,
      conditions: { snapshot: () => is.snapshot, gauges: () => is.gauges },
    });
    time.advance(500);
    readiness.start();
    return { time, is, readiness };
  }

  it("waits for peers first, then for what they have, and never again", () => {
    const { is, readiness } = setUp();
    expect(readiness.waitingFor).toEqual(["peers"]);
    is.tried = true;
    expect(readiness.waitingFor).toEqual(["snapshot", "gauges"]);
    is.snapshot = true;
    expect(readiness.waitingFor).toEqual(["gauges"]);
    is.gauges = true;
    expect(readiness.waitingFor).toEqual([]);
    is.gauges = false;
    expect(readiness.waitingFor).toEqual([]);
  });

  it("ends the search for peers with the grace, and the wait for what they have after as long again", () => {
    const { time, readiness } = setUp();
    time.advance(2_999);
    expect(readiness.isLooking).toBe(true);
    time.advance(1);
    expect(readiness.waitingFor).toEqual(["snapshot", "gauges"]);
    time.advance(2_999);
    expect(readiness.waitingFor).toEqual(["snapshot", "gauges"]);
    time.advance(1);
    expect(readiness.waitingFor).toEqual([]);
  });
});

describe("lag of the event loop", () => {
  it("is the worst lateness of the last one to two seconds", () => {
    const time = createVirtualTime();
    let lateMs = 0;
    const clock = { ...time.clock, nowMs: () => time.clock.nowMs() + lateMs };
    const lag = createLoopLag({ clock, scheduler: time.scheduler });
    time.advance(500);
    expect(lag.lagMs()).toBe(0);
    lateMs = 300;
    expect(lag.lagMs()).toBeGreaterThan(200);
    time.advance(50);
    expect(lag.lagMs()).toBe(300);
    time.advance(900);
    expect(lag.lagMs()).toBe(300);
    time.advance(2_000);
    expect(lag.lagMs()).toBe(0);
    lag.stop();
    expect(time.pendingCount).toBe(0);
  });
});

describe("rates of a link", () => {
  it("are what passed between the two latest samples", () => {
    const time = createVirtualTime();
    const rates = new PeerRates(time.clock);
    const link = createLinkStub("b");
    expect(rates.of(link)).toEqual({ sentBytesPerS: 0, receivedBytesPerS: 0 });
    rates.sample([link]);
    time.advance(2_000);
    link.stats.sentBytes += 500;
    link.stats.receivedBytes += 100;
    rates.sample([link]);
    expect(rates.of(link)).toEqual({ sentBytesPerS: 250, receivedBytesPerS: 50 });
    rates.sample([]);
    expect(rates.of(link)).toEqual({ sentBytesPerS: 0, receivedBytesPerS: 0 });
  });
});
