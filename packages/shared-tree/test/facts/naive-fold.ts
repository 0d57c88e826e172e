import type { Origin } from "@espalier/mesh";
import { type FactKind, factKinds, type LedgerSink } from "@espalier/prefix-index";
import { type EngineEpoch, epochId } from "../../src/facts/engine-epoch.ts";
import type { FactEntry, FactRecord } from "../../src/facts/fact-item.ts";
import { applyFactOps } from "../../src/facts/fact-ops.ts";

/** All that one journal says of a target: epochs by feed number, and entries. */
export interface NaiveJournal {
  readonly origin: Origin;
  readonly epochs: ReadonlyMap<number, EngineEpoch>;
  readonly entries: readonly FactEntry[];
}

/** Blocks of a target by tier, as `low:high`. */
export class NaiveBlocks implements LedgerSink {
  readonly tiers: readonly Set<string>[] = factKinds.map(() => new Set());

  stored(tier: FactKind, words: Uint32Array, from: number, to: number): void {
    for (let at = from; at < to; at++) this.tiers[tier]!.add(keyAt(words, at));
  }

  removed(tier: FactKind, words: Uint32Array, from: number, to: number): void {
    for (let at = from; at < to; at++) this.tiers[tier]!.delete(keyAt(words, at));
  }

  removedLow(tier: FactKind, lows: Uint32Array, from: number, to: number): void {
    const before = [...this.tiers[tier]!];
    for (const low of lows.slice(from, to)) {
      const found = before.filter((key) => key.startsWith(`${low}:`));
      if (found.length === 1) this.tiers[tier]!.delete(found[0]!);
    }
  }

  orphaned(tier: FactKind, words: Uint32Array, at: number): void {
    this.tiers[tier]!.delete(keyAt(words, at));
  }

  holeGone(): void {}

  cleared(): void {
    for (const blocks of this.tiers) blocks.clear();
  }

  /** Two words per block. */
  words(tier: FactKind): Uint32Array {
    return Uint32Array.from([...this.tiers[tier]!].flatMap((key) => key.split(":").map(Number)));
  }
}

export interface NaiveFold {
  readonly epoch: string | undefined;
  readonly blocks: NaiveBlocks;
  /** Sequence of the latest message that is applied. */
  readonly last: number | undefined;
  readonly isComplete: boolean;
  readonly progress: "current" | "waiting" | "open";
}

/** The fold by its definition: of the set of all that was ever written, checkpoints left out. */
export function naiveFold(journals: readonly NaiveJournal[]): NaiveFold {
  const epoch = newestEpoch(journals.flatMap(({ epochs }) => [...epochs.values()]));
  const blocks = new NaiveBlocks();
  if (!epoch) return { epoch: undefined, blocks, last: undefined, isComplete: true, progress: "current" };
  const best = new Map<number, { record: FactRecord; origin: Origin }>();
  const lost = new Set<number>();
  for (const { origin, epochs, entries } of journals) {
    for (const entry of entries) {
      const named = epochs.get(entry.feed);
      if (!named || epochId(named) !== epochId(epoch) || entry.kind === "checkpoint") continue;
      if (entry.kind === "gap") for (let at = entry.from; at <= entry.to; at++) lost.add(at);
      else {
        const known = best.get(entry.sequence);
        if (!known || isBetter(entry, origin, known)) best.set(entry.sequence, { record: entry, origin });
      }
    }
  }
  let last: number | undefined;
  let isComplete = true;
  let isOpen = false;
  let next = epoch.sequence;
  for (; best.has(next) || lost.has(next); next++) {
    const found = best.get(next);
    if (found) {
      applyFactOps(found.record.ops, blocks);
      isComplete &&= found.record.isComplete;
      last = next;
    } else {
      isOpen = true;
      isComplete = false;
    }
  }
  const waits = [...best.keys()].some((sequence) => sequence > next);
  return { epoch: epochId(epoch), blocks, last, isComplete, progress: isOpen ? "open" : waits ? "waiting" : "current" };
}

/** Of the epochs that none names as its predecessor, the latest. */
export function newestEpoch(epochs: readonly EngineEpoch[]): EngineEpoch | undefined {
  const heads = epochs.filter((epoch) => !epochs.some(({ predecessor }) => predecessor === epochId(epoch)));
  const order = (heads.length > 0 ? heads : [...epochs]).sort(
    (one, other) =>
      other.timestampUs - one.timestampUs || other.sequence - one.sequence || other.checksum - one.checksum,
  );
  return order[0];
}

function isBetter(
  record: FactRecord,
  origin: Origin,
  known: { readonly record: FactRecord; readonly origin: Origin },
): boolean {
  if (record.isComplete !== known.record.isComplete) return record.isComplete;
  if (origin.router !== known.origin.router) return origin.router < known.origin.router;
  return origin.epoch < known.origin.epoch;
}

const keyAt = (words: Uint32Array, at: number): string => `${words[2 * at]}:${words[2 * at + 1]}`;
