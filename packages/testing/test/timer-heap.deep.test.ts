import { createSeededRandom } from "@espalier/core";
import { createVirtualTime, maxPendingTasks, TimerHeap } from "@espalier/testing";
import { expect, test } from "vitest";

const seeds = Array.from({ length: 60 }, (_, at) => at + 1);

/** The same by looking at everything, as slow as can be. */
class NaiveTimers {
  readonly #waiting: { readonly dueMs: number; readonly order: number; readonly name: number }[] = [];
  #order = 0;

  get size(): number {
    return this.#waiting.length;
  }

  add(dueMs: number, name: number): void {
    this.#waiting.push({ dueMs, order: this.#order++, name });
  }

  cancel(name: number): void {
    const at = this.#waiting.findIndex((entry) => entry.name === name);
    if (at >= 0) this.#waiting.splice(at, 1);
  }

  take(untilMs: number): number | undefined {
    this.#waiting.sort((one, other) => one.dueMs - other.dueMs || one.order - other.order);
    const [first] = this.#waiting;
    if (!first || first.dueMs > untilMs) return undefined;
    this.#waiting.shift();
    return first.name;
  }
}

test.each(seeds)("adding, cancelling and taking do what a sorted list does (seed %i)", (seed) => {
  const random = createSeededRandom(seed);
  const heap = new TimerHeap();
  const naive = new NaiveTimers();
  const cancels: (() => void)[] = [];
  let taken = -1;
  const cancelShare = random.integer(60);
  for (let step = 0; step < 1_500; step++) {
    const dice = random.integer(100);
    if (dice < 45) {
      const name = cancels.length;
      const dueMs = random.integer(40) / 4;
      naive.add(dueMs, name);
      cancels.push(heap.add(dueMs, () => (taken = name)));
    } else if (dice < 45 + cancelShare / 2 && cancels.length > 0) {
      const name = random.integer(cancels.length);
      naive.cancel(name);
      cancels[name]!();
    } else {
      const untilMs = random.integer(44) / 4;
      taken = -1;
      heap.take(untilMs)?.();
      expect(taken).toBe(naive.take(untilMs) ?? -1);
    }
    expect(heap.size).toBe(naive.size);
  }
  for (let left = naive.size; left > 0; left--) {
    heap.take(Number.POSITIVE_INFINITY)?.();
    expect(taken).toBe(naive.take(Number.POSITIVE_INFINITY));
  }
  expect(heap.take(Number.POSITIVE_INFINITY)).toBeUndefined();
});

test("the next due time is that of a task that was not cancelled", () => {
  const heap = new TimerHeap();
  expect(heap.nextDueMs).toBe(Number.POSITIVE_INFINITY);
  const cancel = heap.add(1, () => {});
  heap.add(2, () => {});
  expect(heap.nextDueMs).toBe(1);
  cancel();
  cancel();
  expect([heap.nextDueMs, heap.nextOrder, heap.size]).toEqual([2, 1, 1]);
});

test("what was cleared is gone, and its cancels do nothing", () => {
  const heap = new TimerHeap();
  const cancel = heap.add(1, () => {});
  heap.clear();
  cancel();
  expect([heap.size, heap.nextDueMs, heap.nextOrder]).toEqual([0, Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY]);
});

test("a task that is never due is refused", () => {
  expect(() => new TimerHeap().add(Number.NaN, () => {})).toThrow(RangeError);
});

test("tasks that are set and cancelled without end take no memory", () => {
  const time = createVirtualTime();
  time.scheduler.after(1e9, () => {});
  for (let round = 0; round < maxPendingTasks + 1_000; round++) time.scheduler.after(1e6, () => {})();
  expect(time.pendingCount).toBe(1);
});

test("one task beyond the bound is refused, and taking one makes room", () => {
  const heap = new TimerHeap();
  const task = (): void => {};
  for (let count = 0; count < maxPendingTasks; count++) heap.add(count, task);
  expect(() => heap.add(0, task)).toThrow(RangeError);
  expect(heap.take(0)).toBe(task);
  heap.add(0, task);
});
