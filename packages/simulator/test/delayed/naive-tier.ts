import type { DeliveryTimes } from "../../src/delayed/delivery.ts";
import type { OwnPlacement } from "../../src/delayed/pending-placements.ts";

/** What an engine told: blocks by their hashes; undefined for an epoch that began or ended. */
export interface NaiveNews {
  readonly target: number;
  readonly atMs: number;
  readonly changes: readonly { readonly isStored: boolean; readonly hash: string }[] | undefined;
}

export interface NaiveDepths {
  facts: number;
  placed: number;
  confirmed: number;
  /** When the deepest part that is placed was last used. */
  usedMs: number;
}

export const hashesOf = (words: Uint32Array, blocks: number): string[] =>
  Array.from({ length: blocks }, (_, block) => `${words[2 * block]}:${words[2 * block + 1]}`);

/**
 * What one router knows, worked out from everything that ever happened: all that has reached everybody, in the order in
 * which it did, and then what the router itself has guessed since.
 */
export class NaiveTier {
  readonly #times: DeliveryTimes;
  readonly #updates: NaiveNews[] = [];
  readonly #placements: { readonly placement: OwnPlacement; readonly hashes: readonly string[] }[] = [];

  constructor(times: DeliveryTimes) {
    this.#times = times;
  }

  reported(news: NaiveNews): void {
    this.#updates.push(news);
  }

  placed(placement: OwnPlacement): void {
    this.#placements.push({ placement, hashes: hashesOf(placement.chain, placement.blockCount) });
  }

  depths(router: number, target: number, words: Uint32Array, blockCount: number, nowMs: number): NaiveDepths {
    const query = hashesOf(words, blockCount);
    const held = new Set<string>();
    const depths: NaiveDepths = { facts: 0, placed: 0, confirmed: 0, usedMs: 0 };
    let epochStartMs = Number.NEGATIVE_INFINITY;
    /** By block of the query: the number of its last use, and when that was. */
    const uses: { readonly number: number; readonly atMs: number }[] = [];
    let useCount = 0;
    /** By hash: how many uses were before it was dropped. */
    const droppedAfter = new Map<string, number>();
    for (const { news, known } of this.#arrivals(target, nowMs)) {
      if (known) {
        fold(depths, known, query, nowMs, epochStartMs);
        if (known.placement.kind === "refute" || known.placement.atMs < epochStartMs) continue;
        useCount++;
        const common = commonHashes(query, known.hashes);
        for (let block = 0; block < common; block++) uses[block] = { number: useCount, atMs: known.placement.atMs };
      } else if (news?.changes) {
        for (const { isStored, hash } of news.changes) {
          if (isStored) held.add(hash);
          else {
            held.delete(hash);
            droppedAfter.set(hash, useCount);
          }
        }
      } else if (news) {
        held.clear();
        epochStartMs = news.atMs;
        Object.assign(depths, { placed: 0, confirmed: 0, usedMs: 0 });
      }
    }
    while (depths.facts < blockCount && held.has(query[depths.facts]!)) depths.facts++;
    let upheld = 0;
    for (let block = depths.facts; block < depths.placed; block++) {
      const { number } = uses[block]!;
      if (number !== upheld && (droppedAfter.get(query[block]!) ?? -1) >= number) {
        Object.assign(depths, { placed: block, confirmed: Math.min(depths.confirmed, block) });
        depths.usedMs = uses[block - 1]?.atMs ?? 0;
      }
      upheld = number;
    }
    for (const known of this.#placements) {
      const { placement } = known;
      const isPending = this.#times.placementsDueMs(placement.atMs) > nowMs;
      if (placement.router === router && placement.target === target && isPending) {
        fold(depths, known, query, nowMs, epochStartMs);
      }
    }
    return depths;
  }

  /** What has reached everybody; news before guesses where both arrive at one moment. */
  #arrivals(target: number, nowMs: number): readonly Arrival[] {
    const { factsDueMs, placementsDueMs } = this.#times;
    const arrivals: Arrival[] = [];
    for (const news of this.#updates) arrivals.push({ dueMs: factsDueMs!(news.atMs), news, known: undefined });
    for (const known of this.#placements) {
      arrivals.push({ dueMs: placementsDueMs(known.placement.atMs), news: undefined, known });
    }
    return arrivals
      .filter((one) => one.dueMs <= nowMs && (one.news ?? one.known?.placement)?.target === target)
      .sort((one, other) => one.dueMs - other.dueMs);
  }
}

interface Known {
  readonly placement: OwnPlacement;
  readonly hashes: readonly string[];
}

interface Arrival {
  readonly dueMs: number;
  readonly news: NaiveNews | undefined;
  readonly known: Known | undefined;
}

function fold(
  depths: NaiveDepths,
  { placement, hashes }: Known,
  query: string[],
  nowMs: number,
  epochStartMs: number,
): void {
  const { kind, blockCount, atMs, ttlMs } = placement;
  if (atMs < epochStartMs) return;
  const common = commonHashes(query, hashes);
  if (kind === "refute") {
    if (common < blockCount) return;
    depths.placed = Math.min(depths.placed, blockCount - 1);
    depths.confirmed = Math.min(depths.confirmed, blockCount - 1);
    return;
  }
  if (atMs + ttlMs <= nowMs || common === 0) return;
  if (common >= depths.placed) depths.usedMs = atMs;
  depths.placed = Math.max(depths.placed, common);
  if (kind === "confirm") depths.confirmed = Math.max(depths.confirmed, common);
}

function commonHashes(one: readonly string[], other: readonly string[]): number {
  let common = 0;
  while (common < one.length && common < other.length && one[common] === other[common]) common++;
  return common;
}
