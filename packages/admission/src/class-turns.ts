import { usageHalfLifeMs } from "@espalier/common";
import type { ClassQueue } from "./class-queue.ts";
import type { Entry } from "./entry.ts";
import { ServedTokens } from "./served-tokens.ts";
import type { ClassRule } from "./settings.ts";

/** A share of 0 under `deficit`: the class gets what no other one wants, nearly. */
const leastWeight = 1e-3;

/** Whose turn it is among classes. */
export class ClassTurns<Waiting extends Entry> {
  readonly #rule: ClassRule;
  readonly #queues: readonly ClassQueue<Waiting>[];
  readonly #served = new ServedTokens(usageHalfLifeMs);

  /** @param queues the highest class first */
  constructor(rule: ClassRule, queues: readonly ClassQueue<Waiting>[]) {
    this.#rule = rule;
    this.#queues = queues;
  }

  /** A class was served. Under `deficit` classes have weights: what they are charged is by those. */
  charge({ settings }: ClassQueue<Waiting>, tokens: number, nowMs: number): void {
    const { name, share } = settings;
    this.#served.charge(name, this.#rule === "strict" ? tokens : tokens / Math.max(leastWeight, share), nowMs);
  }

  /** A class begins to wait. */
  arrived({ settings }: ClassQueue<Waiting>, nowMs: number): void {
    if (this.#rule === "strict") return;
    const waiting = this.#queues.filter(({ count }) => count > 0).map((queue) => queue.settings.name);
    this.#served.arrived(settings.name, waiting, nowMs);
  }

  /** @param canGo whether a request of the class might go now */
  next(canGo: (queue: ClassQueue<Waiting>) => boolean, nowMs: number): ClassQueue<Waiting> | undefined {
    return this.#rule === "strict" ? this.#nextStrict(canGo, nowMs) : this.#nextByDeficit(canGo, nowMs);
  }

  /** The class that is furthest below what it is guaranteed; else the highest. */
  #nextStrict(canGo: (queue: ClassQueue<Waiting>) => boolean, nowMs: number): ClassQueue<Waiting> | undefined {
    let highest: ClassQueue<Waiting> | undefined;
    let poorest: ClassQueue<Waiting> | undefined;
    let leastRatio = 1;
    const total = this.#total(nowMs);
    for (const queue of this.#queues) {
      if (queue.count === 0 || !canGo(queue)) continue;
      highest ??= queue;
      const { name, share } = queue.settings;
      if (share === 0 || total === 0) continue;
      const ratio = this.#served.standing(name, nowMs) / (total * share);
      if (ratio < leastRatio) {
        leastRatio = ratio;
        poorest = queue;
      }
    }
    return poorest ?? highest;
  }

  #nextByDeficit(canGo: (queue: ClassQueue<Waiting>) => boolean, nowMs: number): ClassQueue<Waiting> | undefined {
    let chosen: ClassQueue<Waiting> | undefined;
    let least = Number.POSITIVE_INFINITY;
    for (const queue of this.#queues) {
      if (queue.count === 0 || !canGo(queue)) continue;
      const standing = this.#served.standing(queue.settings.name, nowMs);
      if (standing < least) {
        least = standing;
        chosen = queue;
      }
    }
    return chosen;
  }

  #total(nowMs: number): number {
    let total = 0;
    for (const { settings } of this.#queues) total += this.#served.standing(settings.name, nowMs);
    return total;
  }
}
