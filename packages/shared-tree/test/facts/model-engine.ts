import type { Random } from "@espalier/core";
import { type FactKind, factKinds, type LedgerSink, resumePoint } from "@espalier/prefix-index";
import type { BatchMark } from "../../src/facts/engine-epoch.ts";
import { FactOpsWriter } from "../../src/facts/fact-ops.ts";

/** Blocks that engines of tests know; block i follows `parents[i]`, -1 for a first one. */
export interface Forest {
  readonly parents: readonly number[];
  /** Two words per block. */
  readonly words: Uint32Array;
}

export interface ForestOptions {
  readonly blocks: number;
  /** One in so many hashes has the low word of the one before; none when 0. */
  readonly equalLowsEvery: number;
}

export function createForest(random: Random, { blocks, equalLowsEvery }: ForestOptions): Forest {
  const words = new Uint32Array(2 * blocks);
  const parents: number[] = [];
  for (let block = 0; block < blocks; block++) {
    const shares = block > 0 && equalLowsEvery > 0 && random.integer(equalLowsEvery) === 0;
    words[2 * block] = shares ? words[2 * block - 2]! : random.integer(0x1_0000_0000);
    words[2 * block + 1] = random.integer(0x1_0000_0000);
    const isFirst = block === 0 || random.integer(12) === 0;
    parents.push(isFirst ? -1 : random.integer(4) > 0 ? block - 1 : random.integer(block));
  }
  return { parents, words };
}

/** The chain that ends with a block. */
export function chainTo({ parents }: Forest, block: number): number[] {
  const chain: number[] = [];
  for (let at = block; at >= 0; at = parents[at]!) chain.push(at);
  return chain.reverse();
}

export function wordsOfChain({ words }: Forest, chain: readonly number[]): Uint32Array {
  return Uint32Array.from(chain.flatMap((block) => [words[2 * block]!, words[2 * block + 1]!]));
}

export type ModelEvent =
  | { readonly kind: "stored"; readonly tier: FactKind; readonly blocks: readonly number[] }
  | { readonly kind: "removed"; readonly tier: FactKind; readonly block: number }
  | { readonly kind: "cleared" };

export interface ModelMessage extends BatchMark {
  /** Number of the engine's epoch, from 0. */
  readonly epoch: number;
  readonly events: readonly ModelEvent[];
}

/** An engine that caches chains, drops blocks, mostly those that nothing follows, and is restarted now and then. */
export class ModelEngine {
  readonly forest: Forest;
  readonly held: readonly Set<number>[] = factKinds.map(() => new Set());
  readonly #random: Random;
  #epoch = 0;
  #sequence = 0;
  #nowUs = 1_000_000;

  constructor(forest: Forest, random: Random) {
    this.forest = forest;
    this.#random = random;
  }

  restart(): void {
    for (const blocks of this.held) blocks.clear();
    this.#epoch++;
    this.#sequence = 0;
    this.#nowUs += 1_000;
  }

  message(): ModelMessage {
    this.#nowUs += 1 + this.#random.integer(50);
    const events = Array.from({ length: 1 + this.#random.integer(4) }, () => this.#event());
    const mark = {
      sequence: this.#sequence++,
      timestampUs: this.#nowUs,
      checksum: this.#random.integer(0x1_0000_0000),
    };
    return { ...mark, epoch: this.#epoch, events };
  }

  #event(): ModelEvent {
    const random = this.#random;
    const dice = random.integer(100);
    const choice = random.integer(10);
    const tier: FactKind = choice > 2 ? 0 : choice > 0 ? 1 : resumePoint;
    const held = this.held[tier]!;
    if (dice === 0) {
      for (const blocks of this.held) blocks.clear();
      return { kind: "cleared" };
    }
    if (dice < 55 || held.size === 0) {
      const chain = chainTo(this.forest, random.integer(this.forest.parents.length));
      const blocks = chain.filter((block) => !held.has(block));
      for (const block of blocks) held.add(block);
      return { kind: "stored", tier, blocks };
    }
    const leaves = [...held].filter((block) => ![...held].some((other) => this.forest.parents[other] === block));
    const candidates = random.integer(8) > 0 ? leaves : [...held];
    const block = candidates[random.integer(candidates.length)]!;
    held.delete(block);
    return { kind: "removed", tier, block };
  }
}

/** What a reader of the engine's messages knows of one epoch: it cannot place what follows blocks that it missed. */
export class ModelLedger {
  readonly held: readonly Set<number>[] = factKinds.map(() => new Set());
  readonly #forest: Forest;
  readonly #holes = new Set<number>();

  constructor(forest: Forest) {
    this.#forest = forest;
  }

  /** @returns the ops of the message's record */
  apply({ events }: ModelMessage): Uint8Array {
    const { words } = this.#forest;
    // As a writer asks its index, which the record is applied to afterwards.
    const before = this.held.map((blocks) => [...blocks].map((block) => words[2 * block]!));
    const writer = new FactOpsWriter({
      isUnambiguous: (tier, low) => before[tier]!.filter((other) => other === low).length === 1,
    });
    writer.begin();
    for (const event of events) this.#event(event, writer);
    return writer.finish();
  }

  /** Everything that is held, parents before children, and the holes. */
  tellAll(sink: LedgerSink): void {
    for (const tier of factKinds) {
      const blocks = [...this.held[tier]!].sort((one, other) => one - other);
      for (const block of blocks) sink.stored(tier, this.#forest.words, block, block + 1);
    }
    for (const hole of this.#holes) sink.orphaned(0, this.#forest.words, hole, this.#depth(hole));
  }

  #event(event: ModelEvent, sink: LedgerSink): void {
    if (event.kind === "cleared") {
      for (const blocks of this.held) blocks.clear();
      this.#holes.clear();
      sink.cleared();
    } else if (event.kind === "stored") {
      for (const block of event.blocks) this.#stored(event.tier, block, sink);
    } else this.#removed(event.tier, event.block, sink);
  }

  #stored(tier: FactKind, block: number, sink: LedgerSink): void {
    const held = this.held[tier]!;
    if (held.has(block) || !this.#isKnown(this.#forest.parents[block]!)) return;
    held.add(block);
    sink.stored(tier, this.#forest.words, block, block + 1);
    if (tier !== 0) return;
    this.#holes.delete(block);
    for (const above of chainTo(this.#forest, block)) {
      if (held.has(above) || this.#holes.has(above)) continue;
      this.#holes.add(above);
      sink.orphaned(0, this.#forest.words, above, this.#depth(above));
    }
  }

  #removed(tier: FactKind, block: number, sink: LedgerSink): void {
    const { words } = this.#forest;
    if (!this.held[tier]!.delete(block)) return;
    if (tier === 0 && this.#hasBelow(block)) {
      this.#holes.add(block);
      sink.orphaned(0, words, block, this.#depth(block));
      return;
    }
    sink.removed(tier, words, block, block + 1);
    if (tier !== 0) return;
    for (const above of chainTo(this.#forest, block)) {
      if (!this.#holes.has(above) || this.#hasBelow(above)) continue;
      this.#holes.delete(above);
      sink.holeGone(0, words, above);
    }
  }

  #isKnown(block: number): boolean {
    return block < 0 || this.#holes.has(block) || this.held.some((blocks) => blocks.has(block));
  }

  #hasBelow(block: number): boolean {
    return [...this.held[0]!].some((other) => other !== block && chainTo(this.#forest, other).includes(block));
  }

  #depth(block: number): number {
    return chainTo(this.#forest, block).length - 1;
  }
}
