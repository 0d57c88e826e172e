import { createSeededRandom } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { creditBytes, needsCredit, SendQueue } from "../../src/link/peer-link.ts";
import { type Channel, channels } from "../../src/wire/link-frames.ts";

const limits = {
  queueBytes: { load: 100, membership: 100, documents: 100, bulk: 100, notes: 100 },
  windowBytes: { documents: creditBytes, bulk: creditBytes },
};
const bytes = (length: number, mark = 0): Uint8Array => new Uint8Array(length).fill(mark);
const takeAll = (queue: SendQueue): string[] => {
  const taken: string[] = [];
  for (let next = queue.take(); next; next = queue.take()) taken.push(`${next.channel} ${next.frame[0]}`);
  return taken;
};

describe("a send queue", () => {
  test("gives frames in the order of channels, and of their coming within a channel", () => {
    const queue = new SendQueue(limits);
    for (const channel of [...channels].reverse()) {
      for (const mark of [1, 2]) expect(queue.add(channel, bytes(10, mark))).toBe(true);
    }
    expect([queue.waitingBytes, queue.waitingOn("bulk")]).toEqual([100, 20]);
    expect(takeAll(queue)).toEqual(channels.flatMap((channel) => [`${channel} 1`, `${channel} 2`]));
    expect([queue.waitingBytes, queue.waitingOn("bulk")]).toEqual([0, 0]);
  });

  test("holds as many bytes as its bound, and not one more", () => {
    const queue = new SendQueue(limits);
    expect(queue.add("load", bytes(60))).toBe(true);
    expect(queue.add("load", bytes(40))).toBe(true);
    expect(queue.add("load", bytes(1))).toBe(false);
    expect(queue.waitingOn("load")).toBe(100);
    expect(queue.add("membership", bytes(100))).toBe(true);
  });

  test("takes one frame of any size when nothing waits on its channel", () => {
    const queue = new SendQueue(limits);
    expect(queue.add("load", bytes(1_000))).toBe(true);
    expect(queue.add("load", bytes(1))).toBe(false);
    expect(queue.take()?.frame).toHaveLength(1_000);
    expect(queue.add("load", bytes(1))).toBe(true);
  });

  test("tells a channel that had dropped a frame when half of its bound is free, once", () => {
    const queue = new SendQueue(limits);
    for (let index = 0; index < 10; index++) queue.add("bulk", bytes(10));
    expect(queue.takeDrained()).toEqual([]);
    expect(queue.add("bulk", bytes(10))).toBe(false);
    for (let index = 0; index < 4; index++) queue.take();
    expect(queue.takeDrained()).toEqual([]);
    queue.take();
    expect(queue.takeDrained()).toEqual(["bulk"]);
    expect(queue.takeDrained()).toEqual([]);
    queue.take();
    expect(queue.takeDrained()).toEqual([]);
  });

  test("tells nothing before something has gone, however empty the channel is", () => {
    const queue = new SendQueue(limits);
    queue.add("bulk", bytes(10));
    expect(queue.add("bulk", bytes(1_000))).toBe(false);
    expect(queue.takeDrained()).toEqual([]);
    queue.take();
    expect(queue.takeDrained()).toEqual(["bulk"]);
  });

  test("stops a channel at its window, lets the others pass, and goes on with credit", () => {
    const queue = new SendQueue({ ...limits, queueBytes: { ...limits.queueBytes, documents: 10 * creditBytes } });
    for (let mark = 1; mark <= 5; mark++) queue.add("documents", bytes(creditBytes / 2, mark));
    queue.add("bulk", bytes(1, 9));
    expect(takeAll(queue)).toEqual(["documents 1", "documents 2", "bulk 9"]);
    queue.credit("documents", creditBytes / 2);
    expect(takeAll(queue)).toEqual(["documents 3"]);
    expect(() => queue.credit("documents", creditBytes + 1)).toThrow(RangeError);
    queue.credit("documents", creditBytes);
    expect(takeAll(queue)).toEqual(["documents 4", "documents 5"]);
  });

  test("takes no credit for load", () => {
    const queue = new SendQueue(limits);
    queue.add("load", bytes(50));
    queue.take();
    expect(() => queue.credit("load", 1)).toThrow(RangeError);
  });

  test("gives all but bulk at the end, windows or not, and is empty then", () => {
    const queue = new SendQueue({ ...limits, queueBytes: { ...limits.queueBytes, documents: 10 * creditBytes } });
    for (let mark = 1; mark <= 4; mark++) queue.add("documents", bytes(creditBytes, mark));
    takeAll(queue);
    queue.add("bulk", bytes(5, 8));
    queue.add("load", bytes(5, 9));
    const last = [...queue.takeLast()].map((frame) => frame[0]);
    expect(last).toEqual([9, 2, 3, 4]);
    expect([queue.waitingBytes, queue.waitingOn("bulk"), queue.take()]).toEqual([0, 0, undefined]);
  });

  test("does what a plain list for each channel does, for random calls", () => {
    for (let seed = 0; seed < 10; seed++) {
      const random = createSeededRandom(seed);
      const queue = new SendQueue(limits);
      const naive = Object.fromEntries(channels.map((channel) => [channel, [] as Uint8Array[]])) as Record<
        Channel,
        Uint8Array[]
      >;
      const flying = { documents: 0, bulk: 0 };
      const sizeOf = (frames: Uint8Array[]): number => frames.reduce((sum, { length }) => sum + length, 0);
      for (let step = 0; step < 1_000; step++) {
        const channel = channels[random.integer(channels.length)]!;
        if (random.float() < 0.5) {
          const frame = bytes(1 + random.integer(40), step % 256);
          const fits = sizeOf(naive[channel]) === 0 || sizeOf(naive[channel]) + frame.length <= 100;
          expect(queue.add(channel, frame)).toBe(fits);
          if (fits) naive[channel].push(frame);
        } else if (random.float() < 0.9) {
          const isOpen = (one: Channel) => !needsCredit(one) || flying[one] < creditBytes;
          const from = channels.find((one) => naive[one].length > 0 && isOpen(one));
          const expected = from && naive[from].shift();
          const next = queue.take();
          if (next?.frame !== expected) throw new Error(`seed ${seed}, step ${step}: not the frame that comes next`);
          if (from && needsCredit(from)) flying[from] += expected!.length;
        } else if (flying.bulk > 0) {
          const part = random.integer(flying.bulk + 1);
          queue.credit("bulk", part);
          flying.bulk -= part;
        }
        expect(queue.waitingOn(channel)).toBe(sizeOf(naive[channel]));
      }
    }
  });
});
