import { createSeededRandom } from "@espalier/core";
import { type NumberedMessage, readReplayAnswer, readSequence, writeSequence } from "@espalier/engine-model/kv-events";
import { createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { LagTracker } from "../../src/events/feed-record.ts";
import { MessageQueue, ReorderBuffer } from "../../src/events/message-queue.ts";
import { createReplayGate, ReplayAllowance } from "../../src/events/replay-run.ts";
import { SequenceTracker } from "../../src/events/stream-follower.ts";
import { createWorkSlices } from "../../src/events/work-slices.ts";
import { createTurns } from "./busy-time.ts";

const message = (sequence: number, sizeBytes = 1) => ({ sequence, payload: new Uint8Array(sizeBytes) });

test("sequence numbers survive the wire up to 2^53 - 1, and not one more", () => {
  for (const sequence of [0, 1, 255, 2 ** 32 - 1, 2 ** 32, 2 ** 53 - 1]) {
    const frame = writeSequence(sequence);
    expect(Buffer.from(frame).readBigUInt64BE()).toBe(BigInt(sequence));
    expect(readSequence(frame)).toBe(sequence);
  }
  const beyond = Buffer.alloc(8);
  beyond.writeBigUInt64BE(2n ** 53n);
  expect(readSequence(beyond)).toBeUndefined();
  expect(readSequence(new Uint8Array(9))).toBeUndefined();
});

test("any frames are read as an answer, or called malformed", () => {
  const random = createSeededRandom(7);
  for (let round = 0; round < 5_000; round++) {
    const frames = Array.from({ length: random.integer(6) }, () =>
      Uint8Array.from({ length: [0, 0, 8, 3][random.integer(4)]! }, () => (random.integer(2) === 0 ? 0xff : 0)),
    );
    const { kind } = readReplayAnswer(frames);
    if (kind !== "malformed") expect(frames.at(-2)).toHaveLength(8);
    if (kind === "end") expect(frames.at(-1)).toHaveLength(0);
  }
});

describe("SequenceTracker", () => {
  test("agrees with a map of everything, for numbers that it remembers", () => {
    for (let seed = 1; seed <= 20; seed++) {
      const random = createSeededRandom(seed);
      const remembered = 1 + random.integer(8);
      const tracker = new SequenceTracker(remembered);
      let all = new Map<number, number>();
      let last = -1;
      for (let step = 0; step < 300; step++) {
        const sequence = Math.max(0, last + 4 - random.integer(14));
        const checksum = random.integer(3);
        const known = sequence > last - remembered ? all.get(sequence) : undefined;
        const behind = known === undefined ? "unknown" : known === Math.max(1, checksum) ? "same" : "changed";
        const expected = sequence === last + 1 ? "next" : sequence > last ? "ahead" : behind;
        expect(tracker.relate(sequence, checksum), `seed ${seed}, step ${step}`).toBe(expected);
        if (sequence > last && random.integer(3) > 0) {
          tracker.accept(sequence, checksum);
          all.set(sequence, Math.max(1, checksum));
          last = sequence;
        } else if (random.integer(100) === 0) {
          tracker.reset();
          all = new Map();
          last = -1;
        }
        expect(tracker.last).toBe(last);
      }
    }
  });

  test("a jump far ahead costs no time", () => {
    const tracker = new SequenceTracker(4_096);
    tracker.accept(0, 5);
    tracker.accept(2 ** 52, 6);
    expect(tracker.relate(2 ** 52 - 1, 5)).toBe("unknown");
    expect(tracker.relate(2 ** 52, 6)).toBe("same");
  });
});

describe("MessageQueue", () => {
  test("agrees with an array, under any order of operations", () => {
    const random = createSeededRandom(3);
    const bounds = { maxMessages: 10, maxBytes: 40 };
    const queue = new MessageQueue(bounds);
    let naive: NumberedMessage[] = [];
    const bytesOf = (): number => naive.reduce((sum, { payload }) => sum + payload.length, 0);
    for (let step = 0; step < 3_000; step++) {
      const next = message(step, random.integer(12));
      const action = random.integer(20);
      if (action < 9) {
        const fits = naive.length === 0 || (naive.length < 10 && bytesOf() + next.payload.length <= 40);
        expect(queue.push(next)).toBe(fits);
        if (fits) naive.push(next);
      } else if (action < 18) expect(queue.shift()).toBe(naive.shift());
      else if (action < 19) {
        queue.putBack([next]);
        naive.unshift(next);
      } else {
        queue.clear();
        naive = [];
      }
      expect([queue.count, queue.bytes]).toEqual([naive.length, bytesOf()]);
    }
  });

  test("an empty queue takes one message of any size", () => {
    const queue = new MessageQueue({ maxMessages: 2, maxBytes: 10 });
    expect(queue.push(message(0, 1_000))).toBe(true);
    expect(queue.push(message(1, 1))).toBe(false);
    expect(queue.isHigh).toBe(true);
  });
});

test("ReorderBuffer agrees with a sorted list", () => {
  const random = createSeededRandom(5);
  const buffer = new ReorderBuffer({ maxMessages: 6, maxBytes: 30 });
  let naive: NumberedMessage[] = [];
  const bytesOf = (): number => naive.reduce((sum, { payload }) => sum + payload.length, 0);
  for (let step = 0; step < 3_000; step++) {
    const next = message(random.integer(12), random.integer(10));
    const action = random.integer(10);
    const isHeld = naive.some(({ sequence }) => sequence === next.sequence);
    expect(buffer.has(next.sequence)).toBe(isHeld);
    if (action < 7) {
      const fits = naive.length === 0 || (naive.length < 6 && bytesOf() + next.payload.length <= 30);
      expect(buffer.add(next)).toBe(isHeld ? "duplicate" : fits ? "added" : "full");
      if (!isHeld && fits) naive = [...naive, next].sort((a, b) => a.sequence - b.sequence);
    } else if (action < 9) expect(buffer.takeLowest()).toBe(naive.shift());
    else {
      expect(buffer.takeAll()).toEqual(naive);
      naive = [];
    }
    expect(buffer.count).toBe(naive.length);
  }
});

test("ReplayAllowance: so many starts in a window and not one more; failures rest until a new connection", () => {
  const { clock, advance } = createVirtualTime();
  const allowance = new ReplayAllowance(clock, 30_000);
  for (let start = 0; start < 8; start++) {
    expect(allowance.isOpen).toBe(true);
    allowance.started();
    advance(100);
  }
  expect(allowance.isOpen).toBe(false);
  allowance.reconnected();
  expect(allowance.isOpen).toBe(false);
  advance(10_000 - 800);
  expect(allowance.isOpen).toBe(true);
  allowance.failed();
  advance(29_999);
  expect(allowance.isOpen).toBe(false);
  advance(1);
  expect(allowance.isOpen).toBe(true);
  allowance.failed();
  allowance.reconnected();
  expect(allowance.isOpen).toBe(true);
});

describe("the gate of replays", () => {
  test("lets in as many as it may, others in order, and takes back a place once", () => {
    const gate = createReplayGate(2);
    const entered: number[] = [];
    const leave = [0, 1, 2, 3, 4].map((who) => gate.acquire(() => entered.push(who))!);
    expect(entered).toEqual([0, 1]);
    leave[2]!();
    leave[0]!();
    leave[0]!();
    expect(entered).toEqual([0, 1, 3]);
    leave[1]!();
    leave[3]!();
    expect(entered).toEqual([0, 1, 3, 4]);
  });

  test("a caller that throws keeps no place", () => {
    const gate = createReplayGate(1);
    const enter = (): void => {
      throw new Error("no descriptor");
    };
    expect(() => gate.acquire(enter)).toThrow("no descriptor");
    let entered = false;
    gate.acquire(() => {
      entered = true;
    });
    expect(entered).toBe(true);
  });

  test("turns away whoever is one too many", () => {
    const gate = createReplayGate(1);
    const enter = (): void => {};
    const places = Array.from({ length: 1 + 16_384 }, () => gate.acquire(enter));
    expect(places.every((leave) => leave !== undefined)).toBe(true);
    expect(gate.acquire(enter)).toBeUndefined();
  });
});

describe("work slices", () => {
  const worker = (log: string[], name: string, steps: number, onStep = (): void => {}) => {
    let left = steps;
    const step = (): boolean => {
      if (left === 0) return false;
      log.push(name);
      onStep();
      return --left > 0;
    };
    return { step };
  };

  test("workers take turns, a slice in all between two turns of the loop", () => {
    const time = createVirtualTime();
    let spentMs = 0;
    const log: string[] = [];
    const clock = { nowMs: () => time.clock.nowMs() + spentMs, wallMs: time.clock.wallMs };
    const slices = createWorkSlices({ clock, scheduler: createTurns(time), sliceMs: 4 });
    const work = (): void => {
      spentMs += 1;
    };
    slices.request(worker(log, "a", 6, work));
    slices.request(worker(log, "b", 3, work));
    expect(log.join("")).toBe("aaaa");
    time.advance(1);
    expect(log.join("")).toBe("aaaaabab");
    time.advance(1);
    expect(log.join("")).toBe("aaaaababb");
  });

  test("readers go on within a slice, then wait for the next turn, which workers have first", async () => {
    const time = createVirtualTime();
    let spentMs = 0;
    const clock = { nowMs: () => time.clock.nowMs() + spentMs, wallMs: time.clock.wallMs };
    const slices = createWorkSlices({ clock, scheduler: createTurns(time), sliceMs: 4 });
    const log: string[] = [];
    expect(slices.waitForTurn()).toBeUndefined();
    spentMs = 3;
    expect(slices.waitForTurn()).toBeUndefined();
    spentMs = 4;
    const waits = [slices.waitForTurn(), slices.waitForTurn()];
    for (const wait of waits) wait?.then(() => log.push("reader"));
    slices.request(worker(log, "worker", 1));
    await time.advanceAsync(0);
    expect(log).toEqual([]);
    await time.advanceAsync(1);
    expect(log).toEqual(["worker", "reader", "reader"]);
    expect(slices.waitForTurn()).toBeUndefined();
  });

  test("a worker that asks from within a step is not run inside it; a forgotten one not at all", () => {
    const { clock, scheduler, advance } = createVirtualTime();
    const slices = createWorkSlices({ clock, scheduler });
    const log: string[] = [];
    const other = worker(log, "b", 1);
    const gone = worker(log, "c", 1);
    slices.request(
      worker(log, "a", 1, () => {
        for (const one of [other, gone]) slices.request(one);
        slices.forget(gone);
        log.push("end of a");
      }),
    );
    advance(0);
    expect(log).toEqual(["a", "end of a", "b"]);
  });

  test("a worker that throws does not stop the others", () => {
    const { clock, scheduler, advance } = createVirtualTime();
    const slices = createWorkSlices({ clock, scheduler });
    const log: string[] = [];
    const failing = worker(log, "a", 1, () => {
      throw new Error("a fails");
    });
    expect(() => slices.request(failing)).toThrow("a fails");
    slices.request(worker(log, "b", 1));
    advance(0);
    expect(log).toEqual(["a", "b"]);
  });
});

describe("LagTracker", () => {
  test.each([-3_600_000, 0, 86_400_000])("an offset of %i ms between the clocks does not matter", (offsetMs) => {
    const tracker = new LagTracker();
    expect(tracker.offsetMs).toBeUndefined();
    expect(tracker.observe(1_000 - offsetMs, 1_002, 0)).toBe(0);
    expect(tracker.observe(2_000 - offsetMs, 2_040, 1_000)).toBe(38);
    expect(tracker.observe(3_000 - offsetMs, 3_001, 2_000)).toBe(0);
    expect(tracker.offsetMs).toBe(offsetMs + 1);
  });

  test("a lowest value is forgotten after two windows, so that drift does not add up", () => {
    const tracker = new LagTracker();
    const lags: number[] = [];
    // The engine's clock loses 10 ms a minute.
    for (let minute = 0; minute < 60; minute++) {
      const atMs = minute * 60_000;
      lags.push(tracker.observe(atMs - 10 * minute, atMs, atMs));
    }
    expect(Math.max(...lags)).toBe(10);
  });

  test("after a long silence the old offset counts no more", () => {
    const tracker = new LagTracker();
    tracker.observe(0, 0, 0);
    expect(tracker.observe(1_000_000, 1_000_500, 1_000_000)).toBe(0);
  });
});
