import type { Scheduler } from "@espalier/core";

/** A clock and a scheduler that advance only on demand. */
export type VirtualTime = ReturnType<typeof createVirtualTime>;

/**
 * @param startWallMs wall-clock time at virtual time 0, in milliseconds since the Unix epoch
 * @throws RangeError from its scheduler when more than `maxPendingTasks` are pending
 */
export function createVirtualTime(startWallMs = 1_700_000_000_000) {
  let nowMs = 0;
  const heap = new TimerHeap();

  const runNext = (untilMs: number): boolean => {
    const task = heap.take(untilMs);
    if (!task) return false;
    if (heap.takenDueMs > nowMs) nowMs = heap.takenDueMs;
    task();
    return true;
  };
  const runUntil = (untilMs: number): void => {
    while (runNext(untilMs)) {}
    nowMs = Math.max(nowMs, untilMs);
  };

  return {
    clock: { nowMs: () => nowMs, wallMs: () => startWallMs + nowMs },
    scheduler: schedulerOf((delayMs, task) => heap.add(nowMs + Math.max(0, delayMs), task)),
    /** Like `advance`, but to a time. A past time has no effect. */
    runUntil,
    /** Moves time forward by `durationMs`, running every task that comes due, in order of due time. */
    advance: (durationMs: number): void => runUntil(nowMs + durationMs),
    /** Like `advance`, but lets promises settle after each task, for code that awaits between timers. */
    async advanceAsync(durationMs: number): Promise<void> {
      const untilMs = nowMs + durationMs;
      await settle();
      while (runNext(untilMs)) await settle();
      nowMs = untilMs;
      await settle();
    },
    /**
     * Advances in steps of 5 ms until the condition holds.
     *
     * @returns how long that took, in milliseconds
     * @throws Error when it does not hold in time
     */
    until(condition: () => boolean, timeoutMs = 10_000): number {
      const startMs = nowMs;
      while (!condition()) {
        if (nowMs - startMs >= timeoutMs) throw new Error(`not within ${timeoutMs} ms: ${condition}`);
        runUntil(nowMs + 5);
      }
      return nowMs - startMs;
    },
    /** When the next task is due; Infinity when none is pending. */
    get nextDueMs(): number {
      return heap.nextDueMs;
    },
    /** Pending tasks, so that a test can assert that none is left. */
    get pendingCount(): number {
      return heap.size;
    },
  };
}

/** A scheduler made of `after`: a periodic task reschedules itself before each run. */
export function schedulerOf(after: Scheduler["after"]): Scheduler {
  return {
    after,
    every(periodMs, task) {
      let cancel = after(periodMs, tick);
      function tick(): void {
        cancel = after(periodMs, tick);
        task();
      }
      return () => cancel();
    },
  };
}

/** Runs promise callbacks that are ready, including those that they make ready. */
async function settle(): Promise<void> {
  for (let round = 0; round < 3; round++) await new Promise<void>((resolve) => setImmediate(resolve));
}

/** Maximum tasks of a heap, including cancelled ones that are not yet swept. More is a leak of the caller. */
export const maxPendingTasks = 2 ** 22;
const firstCapacity = 64;

/** Children of a node: wider than binary, so that a heap is shallower and its children share cache lines. */
const arity = 4;

/** Order of a slot whose task was cancelled or taken. */
const noOrder = -1;

/**
 * Tasks by due time, then by order of adding. Adding and taking cost O(log n); cancelling costs O(1), and cancelled tasks are
 * swept when they outnumber the others. Tasks stay in their slots; only numbers move.
 */
export class TimerHeap {
  /** The heap: due time, order of adding, and slot of each. */
  #dueMs = new Float64Array(firstCapacity);
  #order = new Float64Array(firstCapacity);
  #slot = new Int32Array(firstCapacity);
  #count = 0;
  /** By slot. */
  readonly #tasks: ((() => void) | undefined)[] = [];
  #orderOfSlot = new Float64Array(firstCapacity);
  readonly #freeSlots: number[] = [];
  #nextOrder = 0;
  #cancelled = 0;
  #takenDueMs = 0;

  /** Tasks that will run, without cancelled ones. */
  get size(): number {
    return this.#count - this.#cancelled;
  }

  /** When the first task is due; Infinity when there is none. */
  get nextDueMs(): number {
    this.#dropCancelled();
    return this.#count > 0 ? this.#dueMs[0]! : Number.POSITIVE_INFINITY;
  }

  /** How many tasks were added so far. */
  get added(): number {
    return this.#nextOrder;
  }

  /** The first task's position in the order of adding; Infinity when there is none. */
  get nextOrder(): number {
    this.#dropCancelled();
    return this.#count > 0 ? this.#order[0]! : Number.POSITIVE_INFINITY;
  }

  /**
   * @returns cancels it, unless it was taken already
   * @throws RangeError when there are too many, or when it is never due
   */
  add(dueMs: number, task: () => void): () => void {
    if (this.#count >= maxPendingTasks) throw new RangeError(`more than ${maxPendingTasks} tasks wait`);
    if (Number.isNaN(dueMs)) throw new RangeError("a task needs a time at which it is due");
    if (this.#count >= this.#dueMs.length) this.#grow();
    const slot = this.#freeSlots.pop() ?? this.#tasks.length;
    const order = this.#nextOrder++;
    this.#tasks[slot] = task;
    this.#orderOfSlot[slot] = order;
    this.#rise(this.#count++, dueMs, order, slot);
    return () => this.#cancel(slot, order);
  }

  /** Due time of the last task that was taken. */
  get takenDueMs(): number {
    return this.#takenDueMs;
  }

  /** Takes the first task when it is due at this time or before. */
  take(untilMs: number): (() => void) | undefined {
    if (this.#cancelled > 0) this.#dropCancelled();
    const dueMs = this.#dueMs[0]!;
    if (this.#count === 0 || dueMs > untilMs) return undefined;
    this.#takenDueMs = dueMs;
    const task = this.#tasks[this.#slot[0]!];
    this.#removeFirst();
    return task;
  }

  clear(): void {
    this.#tasks.length = 0;
    this.#freeSlots.length = 0;
    this.#orderOfSlot.fill(noOrder);
    this.#count = 0;
    this.#cancelled = 0;
  }

  #cancel(slot: number, order: number): void {
    if (this.#orderOfSlot[slot] !== order) return;
    this.#orderOfSlot[slot] = noOrder;
    this.#tasks[slot] = undefined;
    this.#cancelled++;
    if (this.#cancelled > firstCapacity && this.#cancelled * 2 > this.#count) this.#sweep();
  }

  #dropCancelled(): void {
    while (this.#cancelled > 0 && this.#count > 0 && !this.#tasks[this.#slot[0]!]) {
      this.#cancelled--;
      this.#removeFirst();
    }
  }

  #free(slot: number): void {
    this.#tasks[slot] = undefined;
    this.#orderOfSlot[slot] = noOrder;
    this.#freeSlots.push(slot);
  }

  #removeFirst(): void {
    this.#free(this.#slot[0]!);
    const last = --this.#count;
    if (last > 0) this.#sink(0, this.#dueMs[last]!, this.#order[last]!, this.#slot[last]!);
  }

  /** Removes the cancelled tasks, and rebuilds the heap. */
  #sweep(): void {
    let kept = 0;
    for (let at = 0; at < this.#count; at++) {
      const slot = this.#slot[at]!;
      if (this.#tasks[slot]) this.#put(kept++, this.#dueMs[at]!, this.#order[at]!, slot);
      else this.#free(slot);
    }
    this.#count = kept;
    this.#cancelled = 0;
    for (let at = Math.floor((kept - 2) / arity); at >= 0; at--) {
      this.#sink(at, this.#dueMs[at]!, this.#order[at]!, this.#slot[at]!);
    }
  }

  #grow(): void {
    const capacity = this.#dueMs.length * 2;
    const larger = (from: Float64Array): Float64Array<ArrayBuffer> => {
      const to = new Float64Array(capacity);
      to.set(from);
      return to;
    };
    this.#dueMs = larger(this.#dueMs);
    this.#order = larger(this.#order);
    this.#orderOfSlot = larger(this.#orderOfSlot);
    const slot = new Int32Array(capacity);
    slot.set(this.#slot);
    this.#slot = slot;
  }

  #put(at: number, dueMs: number, order: number, slot: number): void {
    this.#dueMs[at] = dueMs;
    this.#order[at] = order;
    this.#slot[at] = slot;
  }

  #rise(from: number, dueMs: number, order: number, slot: number): void {
    const dues = this.#dueMs;
    const orders = this.#order;
    const slots = this.#slot;
    let at = from;
    while (at > 0) {
      const parent = Math.floor((at - 1) / arity);
      const parentDue = dues[parent]!;
      if (parentDue < dueMs || (parentDue === dueMs && orders[parent]! < order)) break;
      dues[at] = parentDue;
      orders[at] = orders[parent]!;
      slots[at] = slots[parent]!;
      at = parent;
    }
    this.#put(at, dueMs, order, slot);
  }

  #sink(from: number, dueMs: number, order: number, slot: number): void {
    const dues = this.#dueMs;
    const orders = this.#order;
    const slots = this.#slot;
    const count = this.#count;
    let at = from;
    for (;;) {
      const first = at * arity + 1;
      if (first >= count) break;
      const end = Math.min(first + arity, count);
      let least = first;
      let leastDue = dues[first]!;
      for (let child = first + 1; child < end; child++) {
        const due = dues[child]!;
        if (due > leastDue || (due === leastDue && orders[child]! > orders[least]!)) continue;
        least = child;
        leastDue = due;
      }
      if (leastDue > dueMs || (leastDue === dueMs && orders[least]! > order)) break;
      dues[at] = leastDue;
      orders[at] = orders[least]!;
      slots[at] = slots[least]!;
      at = least;
    }
    this.#put(at, dueMs, order, slot);
  }
}
