import type { LoadGauge } from "@espalier/replication";
import { createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { createLoadPublisher } from "../../src/shared/load-publisher.ts";
import { type ScriptedTarget, scriptedTarget } from "../scripted-target.ts";

describe("what this router has sent to an engine", () => {
  function publish() {
    const time = createVirtualTime();
    const told: (readonly [string, LoadGauge])[] = [];
    const plane = { set: (key: string, gauge: LoadGauge) => void told.push([key, gauge]) };
    const publisher = createLoadPublisher(plane, time.scheduler);
    const target: ScriptedTarget = scriptedTarget(0, "engine-a", { onLoad: () => publisher.changed(target) });
    return { time, told, publisher, target };
  }
  const size = { promptTokens: 100, uncachedTokens: 60, expectedOutputTokens: 30, workMs: 30 };

  test("is told at once when a request begins, and soon when it reaches its first token and ends", async () => {
    const { time, told, publisher, target } = publish();
    await publisher.start();
    const ticket = target.load.begin(size);
    expect(told).toHaveLength(1);
    ticket.firstToken();
    expect(told).toHaveLength(1);
    time.advance(8);
    expect(told).toHaveLength(2);
    ticket.end();
    time.advance(8);
    expect(told).toEqual([
      ["engine-a", { inFlight: 1, pendingPrefillTokens: 60, decodeTokens: 0, pendingWorkMs: 30 }],
      ["engine-a", { inFlight: 1, pendingPrefillTokens: 0, decodeTokens: 100, pendingWorkMs: 0 }],
      ["engine-a", { inFlight: 0, pendingPrefillTokens: 0, decodeTokens: 0, pendingWorkMs: 0 }],
    ]);
    await publisher.stop();
  });

  test("what ends while another request begins is told with it", async () => {
    const { time, told, publisher, target } = publish();
    await publisher.start();
    const first = target.load.begin(size);
    const second = target.load.begin(size);
    told.length = 0;
    first.end();
    const third = target.load.begin({ ...size, uncachedTokens: 90 });
    expect(told.map(([, { inFlight, pendingPrefillTokens }]) => [inFlight, pendingPrefillTokens])).toEqual([[2, 150]]);
    time.advance(1_000);
    expect(told).toHaveLength(1);
    second.end();
    third.end();
    await publisher.stop();
    expect(told.at(-1)?.[1].inFlight).toBe(0);
  });

  test("is told every 50 ms while answers go on, and only then", async () => {
    const { time, told, publisher, target } = publish();
    await publisher.start();
    const ticket = target.load.begin(size);
    ticket.firstToken();
    time.advance(8);
    told.length = 0;
    for (let at = 0; at < 20; at++) ticket.progress(1);
    expect(told).toEqual([]);
    time.advance(50);
    expect(told).toEqual([["engine-a", { inFlight: 1, pendingPrefillTokens: 0, decodeTokens: 120, pendingWorkMs: 0 }]]);
    time.advance(1_000);
    expect(told).toHaveLength(1);
    ticket.progress(5);
    ticket.end();
    time.advance(1_000);
    expect(told.at(-1)?.[1]).toMatchObject({ inFlight: 0, decodeTokens: 0 });
    expect(told).toHaveLength(2);
    await publisher.stop();
  });

  test("is not told any more after the end", async () => {
    const { time, told, publisher, target } = publish();
    await publisher.start();
    const ticket = target.load.begin(size);
    ticket.firstToken();
    ticket.progress(1);
    await publisher.stop();
    told.length = 0;
    time.advance(1_000);
    expect(told).toEqual([]);
  });
});
