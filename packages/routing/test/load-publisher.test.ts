import type { LoadGauge } from "@espalier/shared-tree";
import { createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { createLoadPublisher } from "../src/load-publisher.ts";
import { type ScriptedTarget, scriptedTarget } from "./scripted-target.ts";

describe("what this router has sent to an engine", () => {
  function publish() {
    const time = createVirtualTime();
    const reported: (readonly [string, LoadGauge])[] = [];
    const plane = { set: (key: string, gauge: LoadGauge) => void reported.push([key, gauge]) };
    const publisher = createLoadPublisher(plane, time.scheduler);
    const target: ScriptedTarget = scriptedTarget(0, "engine-a", { onLoad: () => publisher.changed(target) });
    return { time, reported, publisher, target };
  }
  const size = { promptTokens: 100, uncachedTokens: 60, expectedOutputTokens: 30, workMs: 30 };

  test("is told at once when a request begins and ends, and soon when it reaches its first token", async () => {
    const { time, reported, publisher, target } = publish();
    await publisher.start();
    const activeBlocks = { chain: Uint32Array.of(1, 2), blockCount: 1, blockSize: 48 };
    const ticket = target.load.begin({ ...size, activeBlocks });
    expect(reported).toHaveLength(1);
    ticket.firstToken();
    expect(reported).toHaveLength(1);
    time.advance(8);
    expect(reported).toHaveLength(2);
    ticket.end();
    expect(reported).toEqual([
      [
        "engine-a",
        {
          inFlight: 1,
          pendingPrefillTokens: 60,
          decodeTokens: 0,
          pendingWorkMs: 30,
          activeTokens: 48,
          lendingTokens: 0,
          yieldingInFlight: 0,
          answers: 0,
        },
      ],
      [
        "engine-a",
        {
          inFlight: 1,
          pendingPrefillTokens: 0,
          decodeTokens: 100,
          pendingWorkMs: 0,
          activeTokens: 48,
          lendingTokens: 0,
          yieldingInFlight: 0,
          answers: 1,
        },
      ],
      [
        "engine-a",
        {
          inFlight: 0,
          pendingPrefillTokens: 0,
          decodeTokens: 0,
          pendingWorkMs: 0,
          activeTokens: 0,
          lendingTokens: 0,
          yieldingInFlight: 0,
          answers: 0,
        },
      ],
    ]);
    await publisher.stop();
  });

  test("a first token is told with the end that comes soon after it, and with another request that begins", async () => {
    const { time, reported, publisher, target } = publish();
    await publisher.start();
    const first = target.load.begin(size);
    const second = target.load.begin(size);
    reported.length = 0;
    first.firstToken();
    first.end();
    second.firstToken();
    const third = target.load.begin({ ...size, uncachedTokens: 90 });
    const numbers = reported.map(([, { inFlight, pendingPrefillTokens }]) => [inFlight, pendingPrefillTokens]);
    expect(numbers).toEqual([
      [1, 60],
      [2, 90],
    ]);
    time.advance(1_000);
    expect(reported).toHaveLength(2);
    second.end();
    third.end();
    expect(reported.at(-1)?.[1].inFlight).toBe(0);
    await publisher.stop();
    expect(reported).toHaveLength(4);
  });

  test("an end among others is told at once, too: at its bound an engine is passed by for one request", async () => {
    const { reported, publisher, target } = publish();
    await publisher.start();
    const tickets = [1, 2, 3].map(() => target.load.begin(size));
    reported.length = 0;
    for (const ticket of tickets) ticket.end();
    expect(reported.map(([, { inFlight }]) => inFlight)).toEqual([2, 1, 0]);
    await publisher.stop();
  });

  test("is told every 50 ms while answers go on, and only then", async () => {
    const { time, reported, publisher, target } = publish();
    await publisher.start();
    const ticket = target.load.begin(size);
    ticket.firstToken();
    time.advance(8);
    reported.length = 0;
    for (let at = 0; at < 20; at++) ticket.progress(1);
    expect(reported).toEqual([]);
    time.advance(50);
    expect(reported).toEqual([
      [
        "engine-a",
        {
          inFlight: 1,
          pendingPrefillTokens: 0,
          decodeTokens: 120,
          pendingWorkMs: 0,
          activeTokens: 0,
          lendingTokens: 0,
          yieldingInFlight: 0,
          answers: 1,
        },
      ],
    ]);
    time.advance(1_000);
    expect(reported).toHaveLength(1);
    ticket.progress(5);
    ticket.end();
    expect(reported).toHaveLength(2);
    time.advance(1_000);
    expect(reported.at(-1)?.[1]).toMatchObject({ inFlight: 0, decodeTokens: 0 });
    expect(reported).toHaveLength(2);
    await publisher.stop();
  });

  test("is not told any more after the end", async () => {
    const { time, reported, publisher, target } = publish();
    await publisher.start();
    const ticket = target.load.begin(size);
    ticket.firstToken();
    ticket.progress(1);
    await publisher.stop();
    reported.length = 0;
    time.advance(1_000);
    expect(reported).toEqual([]);
  });
});
