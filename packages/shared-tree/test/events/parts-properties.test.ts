import { createSeededRandom, type Random } from "@espalier/core";
import { createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { LagTracker } from "../../src/events/feed-record.ts";
import { MessageQueue, ReorderBuffer } from "../../src/events/message-queue.ts";
import { createReplayGate, ReplayAllowance } from "../../src/events/replay-run.ts";
import { createWorkSlices, type SliceWorker } from "../../src/events/work-slices.ts";
import { createTurns } from "./busy-time.ts";

const seeds = Array.from({ length: 20 }, (_, at) => at + 1);
const message = (sequence: number, sizeBytes: number) => ({ sequence, payload: new Uint8Array(sizeBytes) });

describe("LagTracker", () => {
  const windowMs = 60_000;

  test.each(seeds)("seed %i: agrees with one that keeps every difference", (seed) => {
    const random = createSeededRandom(seed);
    const tracker = new LagTracker();
    const kept: { readonly window: number; readonly differenceMs: number }[] = [];
    const offsetMs = random.integer(1_000_000) - 500_000;
    let nowMs = random.integer(1_000);
    // Windows begin with the first message after the end of the one before, so they are counted as they come.
    let window = 0;
    let beganMs = nowMs;
    for (let step = 0; step < 300; step++) {
      nowMs += random.integer(20) === 0 ? random.integer(3 * windowMs) : random.integer(10_000);
      const passedMs = nowMs - beganMs;
      if (kept.length === 0) beganMs = nowMs;
      else if (passedMs >= windowMs) {
        window += passedMs < 2 * windowMs ? 1 : 2;
        beganMs = nowMs;
      }
      const lagMs = random.integer(40) - (random.integer(30) === 0 ? 100 : 0);
      kept.push({ window, differenceMs: offsetMs + lagMs });
      const recent = kept.filter((one) => one.window >= window - 1).map(({ differenceMs }) => differenceMs);
      const lowest = Math.min(...recent);
      expect(tracker.observe(nowMs - lagMs, nowMs + offsetMs, nowMs), `step ${step}`).toBe(offsetMs + lagMs - lowest);
      expect(tracker.offsetMs).toBe(lowest);
    }
  });

  test("a window is exactly a minute, and the one before it counts for exactly another", () => {
    const lagAt = (laterMs: number): number => {
      const tracker = new LagTracker();
      tracker.observe(0, 10, 0);
      return tracker.observe(laterMs, laterMs + 25, laterMs);
    };
    expect([59_999, 60_000, 119_999, 120_000].map(lagAt)).toEqual([15, 15, 15, 0]);
  });
});

describe("ReplayAllowance", () => {
  test.each(seeds)("seed %i: agrees with a list of all starts", (seed) => {
    const random = createSeededRandom(seed);
    const { clock, advance } = createVirtualTime();
    const cooldownMs = 500 + random.integer(20_000);
    const allowance = new ReplayAllowance(clock, cooldownMs);
    let starts: number[] = [];
    let cooldownUntilMs = Number.NEGATIVE_INFINITY;
    for (let step = 0; step < 400; step++) {
      advance([0, 1, random.integer(2_000), random.integer(12_000)][random.integer(4)]!);
      const nowMs = clock.nowMs();
      starts = starts.filter((startMs) => startMs > nowMs - 10_000);
      const isOpen = nowMs >= cooldownUntilMs && starts.length < 8;
      expect(allowance.isOpen, `step ${step}`).toBe(isOpen);
      const action = random.integer(12);
      if (action < 8 && isOpen) {
        allowance.started();
        starts.push(nowMs);
      } else if (action === 8) {
        allowance.failed();
        cooldownUntilMs = nowMs + cooldownMs;
      } else if (action === 9) {
        allowance.reconnected();
        cooldownUntilMs = Number.NEGATIVE_INFINITY;
      }
    }
  });
});

describe("the gate of replays", () => {
  test.each(seeds)("seed %i: agrees with two lists, whoever leaves, gives up or leaves twice", (seed) => {
    const random = createSeededRandom(seed);
    const limit = 1 + random.integer(4);
    const gate = createReplayGate(limit);
    const leaves: (() => void)[] = [];
    const entered: number[] = [];
    let inside: number[] = [];
    let waiting: number[] = [];
    const admitted: number[] = [];
    const admit = (): void => {
      while (waiting.length > 0 && inside.length < limit) {
        const next = waiting.shift()!;
        inside.push(next);
        admitted.push(next);
      }
    };
    for (let step = 0; step < 300; step++) {
      if (leaves.length === 0 || random.integer(2) === 0) {
        const who = leaves.length;
        waiting.push(who);
        admit();
        leaves.push(gate.acquire(() => entered.push(who))!);
      } else {
        const who = random.integer(leaves.length);
        inside = inside.filter((one) => one !== who);
        waiting = waiting.filter((one) => one !== who);
        admit();
        leaves[who]!();
      }
      expect(entered, `step ${step}`).toEqual(admitted);
    }
  });

  test("one who enters may let others in, and leave, within the call that lets him in", () => {
    const gate = createReplayGate(1);
    const order: string[] = [];
    const leaveFirst = gate.acquire(() => order.push("first"))!;
    let leaveSecond = (): void => {};
    leaveSecond = gate.acquire(() => {
      order.push("second");
      gate.acquire(() => order.push("fourth"));
      leaveSecond();
    })!;
    gate.acquire(() => order.push("third"));
    leaveFirst();
    expect(order).toEqual(["first", "second", "third"]);
  });
});

describe("bounds, and one past them", () => {
  test.each([
    { count: 3, bytes: 30, fits: [10, 10, 10], beyond: 0 },
    { count: 9, bytes: 30, fits: [10, 10, 10], beyond: 1 },
    { count: 9, bytes: 30, fits: [31], beyond: 0 },
    { count: 1, bytes: 30, fits: [1], beyond: 1 },
    { count: 9, bytes: 1, fits: [0, 1, 0], beyond: 1 },
  ])("$fits fit into $count messages and $bytes bytes, $beyond more do not", ({ count, bytes, fits, beyond }) => {
    const bounds = { maxMessages: count, maxBytes: bytes };
    const queue = new MessageQueue(bounds);
    const buffer = new ReorderBuffer(bounds);
    for (const [at, size] of fits.entries()) {
      expect(queue.push(message(at, size))).toBe(true);
      expect(buffer.add(message(at, size))).toBe("added");
    }
    expect(queue.push(message(99, beyond))).toBe(false);
    expect(buffer.add(message(99, beyond))).toBe("full");
    expect([queue.count, buffer.count, buffer.has(99)]).toEqual([fits.length, fits.length, false]);
    // What is refused takes no room: once one is gone there is some again.
    expect(queue.shift()?.sequence).toBe(0);
    expect(buffer.takeLowest()?.sequence).toBe(0);
    expect(buffer.add(message(99, 0))).toBe("added");
    expect(queue.push(message(99, 0))).toBe(true);
  });

  test.each([
    { sizes: [], isHigh: false },
    { sizes: [1, 1], isHigh: false },
    { sizes: [1, 1, 1], isHigh: true },
    { sizes: [24, 0], isHigh: false },
    { sizes: [25], isHigh: true },
  ])("of 6 messages and 50 bytes, $sizes are half: $isHigh", ({ sizes, isHigh }) => {
    const queue = new MessageQueue({ maxMessages: 6, maxBytes: 50 });
    for (const [at, size] of sizes.entries()) queue.push(message(at, size));
    expect(queue.isHigh).toBe(isHigh);
  });

  test("what is put back counts, and nothing else finds room until it is gone", () => {
    const queue = new MessageQueue({ maxMessages: 2, maxBytes: 10 });
    queue.push(message(9, 4));
    queue.putBack([message(1, 20), message(2, 20)]);
    expect([queue.count, queue.bytes, queue.push(message(10, 0))]).toEqual([3, 44, false]);
    expect([queue.shift(), queue.shift()].map((one) => one?.sequence)).toEqual([1, 2]);
    expect([queue.count, queue.bytes, queue.push(message(10, 6))]).toEqual([1, 4, true]);
  });
});

describe("work slices", () => {
  /** Workers of random work, each step of which takes random time. */
  function randomWorkers(random: Random, onStep: (who: number, tookMs: number) => void) {
    return Array.from({ length: 2 + random.integer(4) }, (_, who) => {
      let left = 1 + random.integer(20);
      const worker: SliceWorker = {
        step() {
          left -= 1;
          onStep(who, random.integer(3));
          return left > 0;
        },
      };
      return { worker, isDone: () => left === 0 };
    });
  }

  test.each(seeds)(
    "seed %i: all work is done, no turn exceeds a slice and a step, and none waits for another's end",
    (seed) => {
      const random = createSeededRandom(seed);
      const time = createVirtualTime();
      let spentMs = 0;
      let thisTurnMs = 0;
      let longestTurnMs = 0;
      const order: number[] = [];
      const clock = { nowMs: () => time.clock.nowMs() + spentMs, wallMs: time.clock.wallMs };
      const slices = createWorkSlices({ clock, scheduler: createTurns(time), sliceMs: 5 });
      const workers = randomWorkers(random, (who, tookMs) => {
        order.push(who);
        spentMs += tookMs;
        thisTurnMs += tookMs;
        longestTurnMs = Math.max(longestTurnMs, thisTurnMs);
      });
      for (const { worker } of workers) slices.request(worker);
      for (let turn = 0; turn < 500 && !workers.every(({ isDone }) => isDone()); turn++) {
        thisTurnMs = 0;
        time.advance(1);
      }
      expect(workers.every(({ isDone }) => isDone())).toBe(true);
      expect(longestTurnMs).toBeLessThanOrEqual(5 + 2);
      // Between two steps of one worker, every other that has work left takes at most one.
      for (const who of workers.keys()) {
        const own = order.flatMap((one, at) => (one === who ? [at] : []));
        for (const [index, at] of own.entries()) {
          const between = order.slice(at + 1, own[index + 1] ?? at + 1);
          expect(new Set(between).size).toBe(between.length);
        }
      }
    },
  );
});
