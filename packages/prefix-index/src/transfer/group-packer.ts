import type { ExportLimits } from "./export-targets.ts";
import type { FactsChunk } from "./facts-chunk.ts";
import type { FactsGroup } from "./facts-group.ts";

const groupBytes = 16;
const targetBytes = 4;
const blockBytes = 8;
const holeBytes = 12;

/** Packs groups into chunks of bounded size and cost, and cuts those that do not fit. */
export class GroupPacker {
  readonly #limits: ExportLimits;
  #full: FactsGroup[][] = [];
  #open: FactsGroup[] = [];
  #bytes = 0;
  #pairs = 0;

  constructor(limits: ExportLimits) {
    this.#limits = limits;
  }

  add({ targets, part }: FactsGroup): void {
    const ofGroup = groupBytes + targets.length * targetBytes;
    if (part.kind === "walked") {
      this.#reserve(ofGroup, 0);
      this.#push({ targets, part }, ofGroup, 0);
      return;
    }
    const perBlock = part.kind === "blocks" ? blockBytes : holeBytes;
    const blocks = part.words.length / 2;
    for (let from = 0; from < blocks; ) {
      this.#reserve(ofGroup + perBlock, targets.length);
      const fitBytes = Math.floor((this.#limits.maxChunkBytes - this.#bytes - ofGroup) / perBlock);
      const fitPairs = Math.floor((this.#limits.maxChunkPairs - this.#pairs) / targets.length);
      const to = Math.min(blocks, from + fitBytes, from + fitPairs);
      this.#push(
        { targets, part: slice(part, from, to) },
        ofGroup + (to - from) * perBlock,
        (to - from) * targets.length,
      );
      from = to;
    }
  }

  /** Takes what was packed: one chunk at least, be it empty. */
  take(): FactsGroup[][] {
    const chunks = [...this.#full, this.#open];
    this.#full = [];
    this.#begin();
    return chunks;
  }

  /** Begins another chunk when there is no room for this in the present one. */
  #reserve(bytes: number, pairs: number): void {
    const { maxChunkBytes, maxChunkPairs } = this.#limits;
    if (this.#bytes + bytes <= maxChunkBytes && this.#pairs + pairs <= maxChunkPairs) return;
    this.#full.push(this.#open);
    this.#begin();
  }

  #begin(): void {
    this.#open = [];
    this.#bytes = 0;
    this.#pairs = 0;
  }

  #push(group: FactsGroup, bytes: number, pairs: number): void {
    this.#open.push(group);
    this.#bytes += bytes;
    this.#pairs += pairs;
  }
}

function slice(part: Exclude<FactsChunk, { kind: "walked" }>, from: number, to: number): FactsChunk {
  const words = part.words.subarray(from * 2, to * 2);
  return part.kind === "blocks" ? { ...part, words } : { ...part, words, depths: part.depths.subarray(from, to) };
}
