import type { RouterId } from "@espalier/common";
import type { Hash64 } from "@espalier/prefix-index";
import type { BindingRecord } from "./placement-record.ts";

export interface BindingEntry {
  readonly record: BindingRecord;
  readonly router: RouterId;
  /** On the monotonic clock. */
  readonly expiresMs: number;
  /** By what it goes for want of room, the lowest first: its stamp, or less where that is by a clock that runs ahead. */
  readonly rank: number;
}

/** With no room left, expired entries are looked for this often, in milliseconds. */
const sweepPeriodMs = 1_000;

interface Held extends BindingEntry {
  readonly key: string;
}

/**
 * The newest bindings by stamp. Where no stamp is ahead of time and nothing has expired, what it holds depends on the set of
 * records that it was given only, not on their order: a record that is older than one that had to go for want of room is not
 * taken either.
 */
export class BindingTable {
  readonly #capacity: number;
  readonly #entries = new Map<string, Held>();
  /** A heap, the oldest first; entries that were replaced stay in it until they surface, or there are too many. */
  #heap: Held[] = [];
  /** The newest entry that went for want of room. */
  #floor: Held | undefined;
  #sweptMs = Number.NEGATIVE_INFINITY;

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  get size(): number {
    return this.#entries.size;
  }

  get(key: Hash64): BindingEntry | undefined {
    return this.#entries.get(hashText(key));
  }

  put(entry: BindingEntry, nowMs: number): void {
    const held = { ...entry, key: hashText(entry.record.key) };
    const known = this.#entries.get(held.key);
    if (known && !isLater(held, known)) return;
    if (this.#floor && !ranksAbove(held, this.#floor)) return;
    this.#entries.set(held.key, held);
    this.#push(held);
    if (this.#entries.size > this.#capacity) this.#dropExpired(nowMs);
    while (this.#entries.size > this.#capacity) this.#dropOldest();
    if (this.#heap.length > 2 * this.#capacity + 64) this.#rebuild();
  }

  #dropExpired(nowMs: number): void {
    if (nowMs - this.#sweptMs < sweepPeriodMs) return;
    this.#sweptMs = nowMs;
    for (const [key, { expiresMs }] of this.#entries) if (expiresMs <= nowMs) this.#entries.delete(key);
  }

  #dropOldest(): void {
    const oldest = this.#pop();
    if (this.#entries.get(oldest.key) !== oldest) return;
    this.#entries.delete(oldest.key);
    this.#floor = oldest;
  }

  #rebuild(): void {
    this.#heap = this.#heap.filter((held) => this.#entries.get(held.key) === held);
    for (let at = (this.#heap.length >> 1) - 1; at >= 0; at--) this.#sink(this.#heap[at]!, at);
  }

  #push(held: Held): void {
    const heap = this.#heap;
    let at = heap.push(held) - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!ranksAbove(heap[parent]!, held)) break;
      heap[at] = heap[parent]!;
      at = parent;
    }
    heap[at] = held;
  }

  #pop(): Held {
    const first = this.#heap[0]!;
    const last = this.#heap.pop()!;
    if (this.#heap.length > 0) this.#sink(last, 0);
    return first;
  }

  /** Puts an entry where it belongs below the place `from`, which is free. */
  #sink(held: Held, from: number): void {
    const heap = this.#heap;
    let at = from;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && ranksAbove(heap[child]!, heap[child + 1]!)) child += 1;
      if (!ranksAbove(held, heap[child]!)) break;
      heap[at] = heap[child]!;
      at = child;
    }
    heap[at] = held;
  }
}

/** The hash of a key as the key of a map. */
export function hashText({ low, high }: Hash64): string {
  return `${high.toString(36)}.${low.toString(36)}`;
}

function ranksAbove(one: BindingEntry, other: BindingEntry): boolean {
  return one.rank !== other.rank ? one.rank > other.rank : isLater(one, other);
}

function isLater(one: BindingEntry, other: BindingEntry): boolean {
  if (one.record.stamp !== other.record.stamp) return one.record.stamp > other.record.stamp;
  return one.router > other.router;
}
