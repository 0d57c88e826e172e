import { BinaryHeap } from "./binary-heap.ts";

/** Something with a value that ends at a moment. */
export interface Expiring {
  readonly value: string;
  readonly expiresMs: number;
}

/**
 * How many entries have each value, until they are removed or expire. An entry is itself, whatever its fields: it counts
 * once. Adding and removing take logarithmic time, and reading only what has expired since the last read.
 */
export class LiveCounts {
  readonly #live = new Set<Expiring>();
  readonly #counts = new Map<string, number>();
  /** Removed entries stay in it until they surface, or there are too many. */
  readonly #heap = new BinaryHeap<Expiring>((one, other) => one.expiresMs < other.expiresMs);

  add(entry: Expiring): void {
    if (this.#live.has(entry)) return;
    this.#live.add(entry);
    this.#counts.set(entry.value, (this.#counts.get(entry.value) ?? 0) + 1);
    this.#heap.push(entry);
    if (this.#heap.size > 2 * this.#live.size + 64) this.#heap.reset(this.#live);
  }

  /** Does nothing for one that is not counted. */
  remove(entry: Expiring): void {
    if (!this.#live.delete(entry)) return;
    const left = this.#counts.get(entry.value)! - 1;
    if (left === 0) this.#counts.delete(entry.value);
    else this.#counts.set(entry.value, left);
  }

  of(value: string, nowMs: number): number {
    for (let first = this.#heap.first; first && first.expiresMs <= nowMs; first = this.#heap.first) {
      this.#heap.pop();
      this.remove(first);
    }
    return this.#counts.get(value) ?? 0;
  }
}
