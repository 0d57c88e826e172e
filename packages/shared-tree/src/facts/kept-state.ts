import { type FactKind, type PrefixIndex, tier } from "@espalier/prefix-index";
import type { FoldPoint } from "./engine-epoch.ts";

/** Low word, high word, and what happened. */
const entryWords = 3;
const entryBytes = 4 * entryWords;
const minEntries = 64;
/** Flag in the third word, next to the kind: the block was stored. */
const storedFlag = 8;
const kindMask = 7;
/** Blocks that one call to the index undoes. */
const runBlocks = 256;

/** The blocks that a target got and lost since some moment, in order, without those that changed nothing. */
export class ChangeLog {
  #words = new Uint32Array(minEntries * entryWords);
  #length = 0;
  /** Whether any block was stored on a GPU, where it may have closed a hole. */
  #hasStoredOnGpu = false;

  get count(): number {
    return this.#length / entryWords;
  }

  get byteLength(): number {
    return this.count * entryBytes;
  }

  get hasStoredOnGpu(): boolean {
    return this.#hasStoredOnGpu;
  }

  /** @param words holds the block at its index `block`, two words each */
  stored(kind: FactKind, words: Uint32Array, block: number): void {
    if (kind === tier.gpu) this.#hasStoredOnGpu = true;
    this.#add(kind | storedFlag, words, block);
  }

  removed(kind: FactKind, words: Uint32Array, block: number): void {
    this.#add(kind, words, block);
  }

  clear(): void {
    this.#words = new Uint32Array(minEntries * entryWords);
    this.#length = 0;
    this.#hasStoredOnGpu = false;
  }

  /** Undoes all changes, the latest first. The cost depends on the changes, not on what the target holds. */
  undo(index: PrefixIndex, slot: number): void {
    const run = new Uint32Array(2 * runBlocks);
    let blocks = 0;
    for (let at = this.#length - entryWords; at >= 0; at -= entryWords) {
      const what = this.#words[at + 2]!;
      run[2 * blocks] = this.#words[at]!;
      run[2 * blocks + 1] = this.#words[at + 1]!;
      blocks++;
      if (blocks < runBlocks && at > 0 && this.#words[at - 1] === what) continue;
      const kind = (what & kindMask) as FactKind;
      if ((what & storedFlag) !== 0) index.removeFacts(slot, kind, run, 0, blocks);
      else index.storeFacts(slot, kind, run, 0, blocks);
      blocks = 0;
    }
    this.clear();
  }

  /**
   * Calls the visitor for changes in their order.
   *
   * @param from how many to skip
   */
  visit(from: number, visitor: (kind: FactKind, isStored: boolean, low: number, high: number) => void): void {
    for (let at = from * entryWords; at < this.#length; at += entryWords) {
      const what = this.#words[at + 2]!;
      visitor((what & kindMask) as FactKind, (what & storedFlag) !== 0, this.#words[at]!, this.#words[at + 1]!);
    }
  }

  #add(what: number, words: Uint32Array, block: number): void {
    if (this.#length === this.#words.length) {
      const longer = new Uint32Array(this.#length * 2);
      longer.set(this.#words);
      this.#words = longer;
    }
    this.#words[this.#length] = words[2 * block]!;
    this.#words[this.#length + 1] = words[2 * block + 1]!;
    this.#words[this.#length + 2] = what;
    this.#length += entryWords;
  }
}

/**
 * What a target held before a gap, to fold again from when the gap is filled. It is kept as the changes since, because
 * a copy would need a search of the whole index. Keeping it costs nothing at the gap, and going back costs what has
 * changed.
 *
 * It notes changes as the index saw them, so that going back is exact whatever records are folded then. Applying the
 * records of a refold on top of a later state would be wrong: better records need not touch every block that the worse
 * ones touched.
 */
export class KeptState {
  readonly point: FoldPoint;
  readonly changes = new ChangeLog();
  /** Whether the target may have had holes. The index does not keep the depth of closed holes. */
  readonly #hadHoles: boolean;
  #areHolesLost = false;
  #isVoid = false;

  /** @param hadHoles whether the target may have holes, or is walked block by block */
  constructor(point: FoldPoint, hadHoles: boolean) {
    this.point = point;
    this.#hadHoles = hadHoles;
  }

  get byteLength(): number {
    return this.changes.byteLength;
  }

  /**
   * Whether a message dropped everything since, so that the dropped blocks are unknown. A refold then begins with
   * nothing: it reaches the same message, which drops everything again, so the blocks before it do not matter.
   */
  get isVoid(): boolean {
    return this.#isVoid;
  }

  /** The holes of the state: none, those that the index has now except for held blocks, or unknown. */
  get holes(): "none" | "same" | "unknown" {
    if (!this.#hadHoles) return "none";
    return this.#areHolesLost || this.changes.hasStoredOnGpu ? "unknown" : "same";
  }

  /** A hole was closed without its block being stored. */
  holeGone(): void {
    this.#areHolesLost = true;
  }

  /** The target was cleared: earlier changes are obsolete, and later ones need not be noted. */
  void(): void {
    this.#isVoid = true;
    this.changes.clear();
  }

  /** Brings the index back to the state. The target must be folded again from `point` on before it is read. */
  restore(index: PrefixIndex, slot: number): void {
    if (this.#isVoid) index.clearFacts(slot);
    else {
      const { holes } = this;
      this.changes.undo(index, slot);
      if (holes === "unknown") index.importFacts(slot, { kind: "walked" });
    }
  }
}
