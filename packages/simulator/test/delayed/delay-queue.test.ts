import { createSeededRandom } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { DelayQueue, maxInTransit } from "../../src/delayed/delivery.ts";

describe("things on their way", () => {
  test("arrive in the order in which they were sent", () => {
    const queue = new DelayQueue<string>();
    expect(queue.nextDueMs).toBe(Number.POSITIVE_INFINITY);
    queue.push(5, "first");
    queue.push(5, "second");
    queue.push(7.5, "third");
    expect(queue.nextDueMs).toBe(5);
    expect([queue.take(), queue.take(), queue.nextDueMs, queue.take()]).toEqual(["first", "second", 7.5, "third"]);
    expect(queue.size).toBe(0);
    expect(queue.nextDueMs).toBe(Number.POSITIVE_INFINITY);
  });

  test("do not overtake each other", () => {
    const queue = new DelayQueue<string>();
    queue.push(5, "first");
    expect(() => queue.push(4.9, "second")).toThrow(RangeError);
    expect(() => queue.push(Number.NaN, "second")).toThrow(RangeError);
    expect(queue.size).toBe(1);
    queue.take();
    queue.push(1, "later on");
    expect(queue.take()).toBe("later on");
  });

  test("nothing can be taken where nothing is", () => {
    const queue = new DelayQueue<number>();
    expect(() => queue.take()).toThrow(RangeError);
    queue.push(1, 1);
    queue.take();
    expect(() => queue.take()).toThrow(RangeError);
  });

  test("are refused one past the bound, and are taken again once one has arrived", () => {
    const queue = new DelayQueue<number>(3_000);
    for (let item = 0; item < 3_000; item++) queue.push(item, item);
    expect(() => queue.push(3_000, 3_000)).toThrow(RangeError);
    expect(queue.take()).toBe(0);
    queue.push(3_000, 3_000);
    expect(queue.size).toBe(3_000);
    expect(maxInTransit).toBeGreaterThan(3_000);
  });

  test("equal a plain list, whatever comes and goes", () => {
    const random = createSeededRandom(11);
    const queue = new DelayQueue<number>();
    const list: { dueMs: number; item: number }[] = [];
    let lastMs = 0;
    for (let step = 0; step < 30_000; step++) {
      // Growing and shrinking phases, so that the ring wraps around and grows while it is wrapped.
      const pushes = random.integer(10) < (Math.floor(step / 5_000) % 2 === 0 ? 7 : 3);
      if (pushes) {
        lastMs += random.integer(3);
        queue.push(lastMs, step);
        list.push({ dueMs: lastMs, item: step });
      } else if (list.length > 0) {
        const { dueMs, item } = list.shift()!;
        if (queue.nextDueMs !== dueMs || queue.take() !== item) expect.fail(`step ${step}: not ${item} at ${dueMs} ms`);
      }
      if (queue.size !== list.length) expect.fail(`step ${step}: ${queue.size} are not ${list.length}`);
    }
    expect(queue.size).toBe(list.length);
  });
});
