import { createSeededRandom, type Scheduler, silentMeter } from "@espalier/core";
import { createVirtualTime } from "@espalier/testing";
import { describe, expect, it } from "vitest";
import {
  type BulkMessage,
  type BulkOutcome,
  BulkReceiver,
  BulkSender,
  decodeBulkMessage,
} from "../../src/exchange/bulk-transfer.ts";
import { createExchangeMeter, defaultExchangeLimits } from "../../src/exchange/exchange-parts.ts";
import { createLinkStub, type LinkStub } from "./link-stub.ts";

const limits = { ...defaultExchangeLimits, bulkCreditBytes: 1_000, bulkFrameBytes: 400, maxAnswersPerLink: 3 };

function setUp() {
  const time = createVirtualTime();
  const errors: unknown[] = [];
  let turns = 0;
  let stepMs = 0;
  let clockMs = 0;
  const scheduler: Scheduler = {
    ...time.scheduler,
    after(delayMs, task) {
      return time.scheduler.after(delayMs, () => {
        turns += 1;
        task();
      });
    },
  };
  const sender = new BulkSender({
    clock: { nowMs: () => time.clock.nowMs() + clockMs, wallMs: () => 0 },
    scheduler,
    limits,
    meter: createExchangeMeter(silentMeter),
    failed: (_, error) => errors.push(error),
  });
  const link = createLinkStub("b");
  sender.linkUp(link);
  return {
    time,
    sender,
    link,
    errors,
    turns: () => turns,
    setStepMs: (ms: number) => {
      stepMs = ms;
    },
    *messages(count: number, bytes: number): Generator<Uint8Array, void, undefined> {
      for (let index = 0; index < count; index++) {
        clockMs += stepMs;
        yield new Uint8Array(bytes).fill(index);
      }
    },
  };
}

const bulkOf = (link: LinkStub): BulkMessage[] => link.frames("bulk").map(decodeBulkMessage);
const partBytes = (link: LinkStub): number =>
  bulkOf(link).reduce((sum, message) => sum + (message.kind === "part" ? message.bytes.length : 0), 0);

describe("bulk answers", () => {
  it("never have more under way than was granted", () => {
    const { sender, link, time, messages } = setUp();
    sender.answer(link, { request: 1, kind: "piece", messages: messages(10, 300) });
    time.advance(1_000);
    expect(partBytes(link)).toBe(1_000);
    sender.granted(link, 250);
    time.advance(10);
    expect(partBytes(link)).toBe(1_250);
    sender.granted(link, 999_999);
    time.advance(10);
    expect(partBytes(link)).toBe(2_250);
    sender.granted(link, 1_000);
    time.advance(10);
    expect(partBytes(link)).toBe(3_000);
    expect(bulkOf(link).at(-1)).toEqual({ kind: "end", request: 1, outcome: "whole" });
  });

  it("are computed only when they can be sent, and in short turns", () => {
    const { sender, link, time, messages, turns, setStepMs } = setUp();
    setStepMs(3);
    let computed = 0;
    function* counted(): Generator<Uint8Array, void, undefined> {
      for (const message of messages(100, 50)) {
        computed += 1;
        yield message;
      }
    }
    sender.answer(link, { request: 1, kind: "piece", messages: counted() });
    expect(computed).toBe(0);
    time.advance(10);
    expect(computed).toBe(20);
    expect(turns()).toBeGreaterThanOrEqual(10);
  });

  it("give snapshots before pieces, and every link its turn", () => {
    const { sender, link, time, messages } = setUp();
    const other = createLinkStub("c");
    sender.linkUp(other);
    sender.answer(link, { request: 1, kind: "piece", messages: messages(1, 100) });
    sender.answer(link, { request: 2, kind: "snapshot", messages: messages(2, 100) });
    sender.answer(other, { request: 1, kind: "piece", messages: messages(1, 100) });
    time.advance(10);
    const ends = bulkOf(link).flatMap((message) => (message.kind === "end" ? [message.request] : []));
    expect(ends).toEqual([2, 1]);
    expect(bulkOf(other)).toHaveLength(2);
  });

  it("beyond what one link may have waiting are told to come again", () => {
    const { sender, link, time, messages } = setUp();
    for (let request = 1; request <= 4; request++) {
      sender.answer(link, { request, kind: "piece", messages: messages(1, 10) });
    }
    expect(bulkOf(link)).toEqual([{ kind: "end", request: 4, outcome: "busy" }]);
    time.advance(10);
    expect(bulkOf(link).filter(({ kind }) => kind === "end")).toHaveLength(4);
  });

  it("that are cancelled, or whose link is gone, let go of what they hold", () => {
    const { sender, link, time } = setUp();
    const closed: number[] = [];
    function* endless(request: number): Generator<Uint8Array, void, undefined> {
      try {
        for (;;) yield new Uint8Array(100);
      } finally {
        closed.push(request);
      }
    }
    for (const request of [1, 2]) sender.answer(link, { request, kind: "piece", messages: endless(request) });
    time.advance(10);
    sender.cancel(link, 1);
    sender.cancel(link, 77);
    expect(closed).toEqual([1]);
    sender.granted(link, 1_000);
    time.advance(10);
    sender.linkDown(link);
    expect(closed).toEqual([1, 2]);
    sender.answer(link, { request: 3, kind: "piece", messages: endless(3) });
    time.advance(10);
    sender.stop();
    expect(time.pendingCount).toBe(0);
  });

  it("that cannot be computed end as failed", () => {
    const { sender, link, time, errors } = setUp();
    function* broken(): Generator<Uint8Array, void, undefined> {
      yield new Uint8Array(10);
      throw new RangeError("no state vector");
    }
    sender.answer(link, { request: 1, kind: "piece", messages: broken() });
    time.advance(10);
    expect(bulkOf(link).at(-1)).toEqual({ kind: "end", request: 1, outcome: "failed" });
    expect(errors).toHaveLength(1);
  });

  it("go on where they stopped when the link had no room for a part or an end", () => {
    const { sender, link, time, messages } = setUp();
    link.isFull = true;
    sender.answer(link, { request: 1, kind: "piece", messages: messages(2, 500) });
    sender.refuse(link, 2, "none");
    time.advance(10);
    expect(bulkOf(link)).toEqual([]);
    link.isFull = false;
    sender.drained(link);
    time.advance(10);
    expect(partBytes(link)).toBe(1_000);
    expect(bulkOf(link)[0]).toEqual({ kind: "end", request: 2, outcome: "none" });
  });
});

describe("what comes as bulk", () => {
  const receiverOf = () => {
    const time = createVirtualTime();
    const receiver = new BulkReceiver({ clock: time.clock, limits: { ...limits, maxBulkMessageBytes: 1_000 } });
    const link = createLinkStub("a");
    receiver.linkUp(link);
    const got: number[][] = [];
    const ends: (BulkOutcome | "lost" | "silent")[] = [];
    const taker = {
      message: (bytes: Uint8Array) => void got.push([...bytes]),
      end: (outcome: BulkOutcome | "lost" | "silent") => void ends.push(outcome),
    };
    return { time, receiver, link, got, ends, taker };
  };
  const part = (request: number, goesOn: boolean, ...bytes: number[]): Extract<BulkMessage, { kind: "part" }> => ({
    kind: "part",
    request,
    goesOn,
    bytes: Uint8Array.from(bytes),
  });

  it("is put together from its parts, those of several answers mixed", () => {
    const { receiver, link, got, ends, taker } = receiverOf();
    const one = receiver.expect(link, taker)!;
    const two = receiver.expect(link, taker)!;
    receiver.receive(link, part(one, true, 1, 2));
    receiver.receive(link, part(two, false, 9));
    receiver.receive(link, part(one, false, 3));
    receiver.receive(link, part(one, false));
    receiver.receive(link, { kind: "end", request: one, outcome: "whole" });
    expect(got).toEqual([[9], [1, 2, 3], []]);
    expect(ends).toEqual(["whole"]);
    receiver.linkDown(link);
    expect(ends).toEqual(["whole", "lost"]);
  });

  it("is granted again in quarters, even when nobody waits for it any more", () => {
    const { receiver, link, taker, got } = receiverOf();
    const request = receiver.expect(link, taker)!;
    receiver.abandon(link, request);
    link.isFull = true;
    for (let index = 0; index < 5; index++) receiver.receive(link, part(request, false, ...new Array(100).fill(1)));
    expect(bulkOf(link)).toEqual([]);
    link.isFull = false;
    receiver.drained(link);
    expect(bulkOf(link)).toEqual([{ kind: "credit", bytes: 500 }]);
    expect(got).toEqual([]);
  });

  it("is refused past the length of a message, empty and unfinished, or ended within a message", () => {
    const { receiver, link, taker } = receiverOf();
    const request = receiver.expect(link, taker)!;
    receiver.receive(link, part(request, true, ...new Array(600).fill(1)));
    receiver.receive(link, part(request, false, ...new Array(400).fill(1)));
    receiver.receive(link, part(request, true, ...new Array(600).fill(1)));
    expect(() => receiver.receive(link, part(request, true, ...new Array(401).fill(1)))).toThrow(RangeError);
    expect(() => receiver.receive(link, part(request, true))).toThrow(RangeError);
    expect(() => receiver.receive(link, { kind: "end", request, outcome: "whole" })).toThrow(RangeError);
  });

  it("is given up after silence, and only then", () => {
    const { receiver, link, taker, time, ends } = receiverOf();
    const request = receiver.expect(link, taker)!;
    time.advance(4_000);
    receiver.receive(link, part(request, false, 1));
    time.advance(4_999);
    expect(receiver.sweep()).toEqual([]);
    time.advance(1);
    expect(receiver.sweep()).toMatchObject([{ link, request }]);
    expect(ends).toEqual(["silent"]);
    expect(receiver.sweep()).toEqual([]);
  });
});

describe("a sender and a receiver together", () => {
  it("bring every message whole and in order, whatever its length, within the credit", () => {
    const random = createSeededRandom(99);
    const { sender, link, time } = setUp();
    const receiver = new BulkReceiver({ clock: time.clock, limits });
    const back = createLinkStub("a");
    receiver.linkUp(back);
    const lengths = Array.from({ length: 200 }, () => random.integer(3_000));
    const got: number[] = [];
    let ended: string | undefined;
    receiver.expect(back, {
      message: (bytes) => void got.push(bytes.length),
      end: (outcome) => {
        ended = outcome;
      },
    });
    function* messages(): Generator<Uint8Array, void, undefined> {
      for (const length of lengths) yield new Uint8Array(length);
    }
    sender.answer(link, { request: 1, kind: "snapshot", messages: messages() });
    for (let round = 0; round < 5_000 && ended === undefined; round++) {
      time.advance(1);
      expect(partBytes(link)).toBeLessThanOrEqual(1_000);
      for (const message of bulkOf(link)) if (message.kind !== "credit") receiver.receive(back, message);
      link.sent.length = 0;
      for (const message of bulkOf(back)) if (message.kind === "credit") sender.granted(link, message.bytes);
      back.sent.length = 0;
    }
    expect(ended).toBe("whole");
    expect(got).toEqual(lengths);
  });
});
