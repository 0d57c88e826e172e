import type { Origin } from "../origin.ts";

/** Remembers which journals were given up for good: of each router the latest life, and with it all before. */
export class DroppedJournals {
  readonly #epochs = new Map<string, number>();
  readonly #maxRouters: number;

  constructor(maxRouters: number) {
    this.#maxRouters = maxRouters;
  }

  /** The latest dropped life of a router; 0 for none. */
  epochOf(router: string): number {
    return this.#epochs.get(router) ?? 0;
  }

  has({ router, epoch }: Origin): boolean {
    return this.#epochs.has(router) && epoch <= this.epochOf(router);
  }

  /** Beyond the bound the router goes of which something was dropped the longest time ago. */
  add({ router, epoch }: Origin): void {
    const latest = Math.max(epoch, this.epochOf(router));
    this.#epochs.delete(router);
    this.#epochs.set(router, latest);
    if (this.#epochs.size <= this.#maxRouters) return;
    for (const oldest of this.#epochs.keys()) {
      this.#epochs.delete(oldest);
      return;
    }
  }
}
