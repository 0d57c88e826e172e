import { type FactsChunk, type Tier, tier } from "@espalier/prefix-index";
import type { KeptState } from "./kept-state.ts";

type BlocksChunk = Extract<FactsChunk, { kind: "blocks" }>;
type HolesChunk = Extract<FactsChunk, { kind: "holes" }>;

/**
 * Makes the kept state of a target of what an index is read to have now, piece by piece, while the target changes:
 * blocks that came since are left out, and those that went are added at the end.
 */
export class KeptExport {
  readonly #kept: KeptState;
  /** By tier and hash: whether the kept state holds the block, of those that have changed since. */
  readonly #changed = new Map<string, boolean>();
  /** Low words of them, which tell fast of most blocks that they are none of these. */
  readonly #lows = new Set<number>();
  #followed = 0;

  constructor(kept: KeptState) {
    this.#kept = kept;
  }

  /** What the state has of a part that was read just now: the part itself where that is all; undefined for nothing. */
  take(part: FactsChunk): FactsChunk | undefined {
    this.#follow();
    if (part.kind === "blocks") return this.#blocks(part);
    const { holes } = this.#kept;
    if (holes === "none") return undefined;
    if (part.kind === "walked") return part;
    return holes === "same" ? this.#holes(part) : undefined;
  }

  /** What the state has besides, once everything was read: of some of it that was read, too. */
  *rest(): Generator<FactsChunk, void, undefined> {
    this.#follow();
    const gone: number[][] = [[], [], [], []];
    for (const [key, isHeld] of this.#changed) {
      const [inTier, low, high] = key.split(":").map(Number);
      if (isHeld) gone[inTier!]!.push(low!, high!);
    }
    for (const [inTier, words] of gone.entries()) {
      if (words.length > 0) yield { kind: "blocks", tier: inTier as Tier, words: Uint32Array.from(words) };
    }
    // The index may have no hole any more of those that it had.
    if (this.#kept.holes === "unknown") yield { kind: "walked" };
  }

  #follow(): void {
    const { changes } = this.#kept;
    changes.visit(this.#followed, (inTier, isStored, low, high) => {
      const key = keyOf(inTier, low, high);
      if (this.#changed.has(key)) return;
      this.#changed.set(key, !isStored);
      this.#lows.add(low);
    });
    this.#followed = changes.count;
  }

  #blocks(part: BlocksChunk): FactsChunk | undefined {
    const { words, tier: inTier } = part;
    const wanted = this.#select(words, (low, high) => this.#changed.get(keyOf(inTier, low, high)) ?? true);
    if (!wanted.includes(0)) return part;
    return wanted.includes(1) ? { ...part, words: pick(words, wanted) } : undefined;
  }

  #holes(part: HolesChunk): FactsChunk | undefined {
    const { words, depths } = part;
    const wanted = this.#select(words, (low, high) => !this.#changed.get(keyOf(tier.gpu, low, high)));
    if (!wanted.includes(0)) return part;
    if (!wanted.includes(1)) return undefined;
    return { ...part, words: pick(words, wanted), depths: depths.filter((_depth, at) => wanted[at] === 1) };
  }

  /** @returns 1 for every block that is to be taken */
  #select(words: Uint32Array, isWanted: (low: number, high: number) => boolean): Uint8Array {
    const wanted = new Uint8Array(words.length / 2).fill(1);
    for (let at = 0; at < wanted.length; at++) {
      const low = words[2 * at]!;
      if (this.#lows.has(low) && !isWanted(low, words[2 * at + 1]!)) wanted[at] = 0;
    }
    return wanted;
  }
}

const keyOf = (inTier: Tier, low: number, high: number): string => `${inTier}:${low}:${high}`;

function pick(words: Uint32Array, wanted: Uint8Array): Uint32Array {
  return words.filter((_word, at) => wanted[at >>> 1] === 1);
}
