import type { FactKind, LedgerSink } from "@espalier/prefix-index";
import type { FeedOutput } from "@espalier/shared-tree";
import { nameIn } from "./held-blocks.ts";

/** What a reading has told, and what its blocks come to. */
export interface RecordedOutput extends FeedOutput {
  /** In order: epochs, gaps, conditions. */
  readonly news: readonly string[];
  readonly sequences: readonly number[];
  readonly unknownRemovals: number;
  readonly isComplete: boolean | undefined;
  held(): string[];
}

export interface RecordedSink extends LedgerSink {
  held(): string[];
  clear(): void;
}

/** @throws Error from a sink that is told what makes no sense: a block twice, or one removed that is not there */
export function recordedSink(): RecordedSink {
  const held = new Set<string>();
  type Visit = (name: string) => boolean;
  const each = (inTier: FactKind, words: Uint32Array, [from, to]: readonly [number, number], visit: Visit): void => {
    for (let block = from; block < to; block++) {
      if (!visit(nameIn(inTier, words, block))) throw new Error(`block ${block} was no news`);
    }
  };
  return {
    stored: (inTier, words, from, to) =>
      each(inTier, words, [from, to], (name) => !held.has(name) && held.add(name).size > 0),
    removed: (inTier, words, from, to) => each(inTier, words, [from, to], (name) => held.delete(name)),
    orphaned() {},
    holeGone() {},
    cleared: () => held.clear(),
    clear: () => held.clear(),
    held: () => [...held].sort(),
  };
}

export function recordedOutput(): RecordedOutput {
  const sink = recordedSink();
  const news: string[] = [];
  const sequences: number[] = [];
  let unknownRemovals = 0;
  let isComplete: boolean | undefined;
  return {
    ...{ sink, news, sequences },
    get unknownRemovals() {
      return unknownRemovals;
    },
    get isComplete() {
      return isComplete;
    },
    held: () => sink.held(),
    batch({ sequence }, outcome) {
      sequences.push(sequence);
      unknownRemovals += outcome.unknownRemovals;
      isComplete = outcome.isComplete;
    },
    gap: (from, to) => news.push(`gap ${from}-${to}`),
    newEpoch() {
      news.push("new epoch");
      sink.clear();
      sequences.length = 0;
    },
    emptied: () => news.push("emptied"),
    condition: ({ quality }) => news.push(quality),
  };
}
