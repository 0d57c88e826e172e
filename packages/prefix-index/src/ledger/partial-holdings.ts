import type { Hash64 } from "@espalier/core";
import { attention, type EngineEventBatch, eventKind } from "../engine-events.ts";
import { emptyPrefix, resumePoint } from "../tiers.ts";
import type { CacheGroups, PartialGroup } from "./cache-groups.ts";
import { GroupBlocks } from "./group-blocks.ts";
import type { HeldBlocks } from "./held-blocks.ts";
import type { SinkRuns } from "./ledger-sink.ts";

/**
 * What the groups of a hybrid model have that need only a part of a prefix, by the events of an engine. Its blocks may come
 * before those of full attention that say where they are.
 */
export class PartialHoldings {
  readonly #groups: CacheGroups;
  readonly #maxBlocks: number;
  readonly #runs: SinkRuns;
  /** Undefined until one of these groups stores something. */
  #blocks: GroupBlocks | undefined;

  /** @param maxBlocks bound on blocks, at most 2^24 - 2 */
  constructor(groups: CacheGroups, maxBlocks: number, runs: SinkRuns) {
    this.#groups = groups;
    this.#maxBlocks = maxBlocks;
    this.#runs = runs;
  }

  get byteLength(): number {
    return this.#blocks?.byteLength ?? 0;
  }

  /** Tells runs that the engine has a hybrid model, if it has. */
  reportAny(runs: SinkRuns): void {
    if (this.#blocks) runs.add("stored", resumePoint, emptyPrefix, 0);
  }

  clear(): void {
    this.#blocks = undefined;
  }

  /** @param known what full attention has, and whether the event says once more what is there */
  store(
    batch: EngineEventBatch,
    event: number,
    { bit }: PartialGroup,
    known: { readonly held: HeldBlocks | undefined; readonly isReport: boolean },
  ): void {
    if (this.#blocks === undefined) {
      this.#blocks = new GroupBlocks(this.#maxBlocks);
      this.reportAny(this.#runs);
    }
    if (known.isReport) return;
    for (let at = batch.hashStart[event]!; at < batch.hashStart[event + 1]!; at++) {
      const hash = hashAt(batch, at);
      this.#blocks.store(hash.low, hash.high, bit, batch.tier[event]!);
      tellChanged(known.held, hash, this.#blocks.endsOf(hash));
    }
  }

  remove(batch: EngineEventBatch, event: number, { bit }: PartialGroup, held: HeldBlocks | undefined): void {
    if (this.#blocks === undefined) return;
    for (let at = batch.hashStart[event]!; at < batch.hashStart[event + 1]!; at++) {
      const hash = hashAt(batch, at);
      const ends = this.#blocks.endsOf(hash);
      if (this.#blocks.remove(hash.low, hash.high, bit, batch.tier[event]!)) tellChanged(held, hash, ends);
    }
  }

  /**
   * Finds where blocks are that are smaller than those of full attention. An event has some of the blocks that its tokens
   * fill, in order; each row of them ends where a block of full attention ends, which has the same name. Call after the
   * message.
   */
  placeSmallBlocks(batch: EngineEventBatch, held: HeldBlocks, engineBlockSize: number): void {
    if (this.#blocks === undefined) return;
    for (let event = 0; event < batch.count; event++) {
      const size = batch.blockSize[event]!;
      const isSmall = size > 0 && size < engineBlockSize;
      if (batch.kind[event] !== eventKind.stored || batch.attention[event] === attention.full || !isSmall) continue;
      let end: Hash64 | undefined;
      for (let at = batch.hashStart[event + 1]! - 1; at >= batch.hashStart[event]!; at--) {
        const hash = hashAt(batch, at);
        if (held.facts.nodeOf(hash.low, hash.high) !== 0) end = hash;
        if (!end) continue;
        const before = at > batch.hashStart[event]! ? hashAt(batch, at - 1) : undefined;
        // A block of the same row is directly before; one with a name in the tree ends another row.
        const isRow = before !== undefined && held.facts.nodeOf(before.low, before.high) === 0;
        this.#blocks.place(hash, isRow ? before : undefined, end);
        held.resume?.changed(end.low, end.high);
      }
    }
  }

  /** Finds the resume points that depend on what has changed. */
  updatePoints(held: HeldBlocks): void {
    if (this.#blocks) held.followResumePoints().update(this.#groups, this.#blocks);
  }
}

const hashAt = ({ hashes }: EngineEventBatch, at: number): Hash64 => ({
  low: hashes[2 * at]! | 0,
  high: hashes[2 * at + 1]! | 0,
});

function tellChanged(held: HeldBlocks | undefined, hash: Hash64, ends: readonly Hash64[]): void {
  const resume = held?.resume;
  if (!resume) return;
  resume.changed(hash.low, hash.high);
  for (const end of ends) resume.changed(end.low, end.high);
}
