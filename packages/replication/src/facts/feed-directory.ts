import type { FeedDeclaration } from "../documents/journal.ts";
import { type Origin, originKey } from "../origin.ts";
import type { FoldLimits } from "./fold-limits.ts";
import type { KnownLife } from "./life-order.ts";
import type { TargetFold } from "./target-fold.ts";

/** What a feed's number stands for in one journal. */
export interface DirectoryFeed {
  readonly declaration: FeedDeclaration;
  /** Undefined as long as no slot is free for its target. */
  fold: TargetFold | undefined;
  life: KnownLife | undefined;
}

/** The feeds of every journal, by their numbers. */
export class FeedDirectory {
  readonly #limits: FoldLimits;
  readonly #journals = new Map<string, Map<number, DirectoryFeed>>();

  constructor(limits: FoldLimits) {
    this.#limits = limits;
  }

  /** @returns undefined when there is no room */
  add(origin: Origin, feed: number, declaration: FeedDeclaration): DirectoryFeed | undefined {
    const key = originKey(origin);
    let feeds = this.#journals.get(key);
    if (!feeds) {
      if (this.#journals.size >= this.#limits.maxOrigins) return undefined;
      feeds = new Map();
      this.#journals.set(key, feeds);
    }
    if (feeds.size >= this.#limits.maxFeedsPerOrigin && !feeds.has(feed)) return undefined;
    const entry: DirectoryFeed = { declaration, fold: undefined, life: undefined };
    feeds.set(feed, entry);
    return entry;
  }

  of(origin: Origin): ReadonlyMap<number, DirectoryFeed> | undefined {
    return this.#journals.get(originKey(origin));
  }

  forget(origin: Origin): void {
    this.#journals.delete(originKey(origin));
  }

  /** What comes for the target is not taken any more until it is declared again. */
  forgetTarget(target: string): void {
    for (const feeds of this.#journals.values()) {
      for (const [number, { declaration }] of feeds) if (declaration.target === target) feeds.delete(number);
    }
  }
}
