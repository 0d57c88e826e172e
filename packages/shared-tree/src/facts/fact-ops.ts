import { ByteWriter } from "@espalier/core";
import { type FactKind, factKinds, type LedgerSink, resumePoint, type Tier } from "@espalier/prefix-index";

/** Kinds of runs in the ops of a record. */
const factOp = { stored: 0, removed: 1, removedLow: 2, orphaned: 3, holeGone: 4, cleared: 5, resumePoints: 6 } as const;

/**
 * A run's header holds its length less one, its tier (2 bits) and its op (3 bits): one byte for up to four blocks. For
 * `resumePoints` another op takes the place of the tier: `stored`, `removed` or `removedLow`.
 */
function factOpHeader(op: number, kind: FactKind, blocks: number): number {
  if (kind === resumePoint) return (blocks - 1) * 32 + op * 8 + factOp.resumePoints;
  return (blocks - 1) * 32 + kind * 8 + op;
}

/** The op of a run, and the kind of its blocks. */
const opOf = (header: number): number => ((header & 7) === factOp.resumePoints ? (header >>> 3) & 3 : header & 7);

const kindOf = (header: number): FactKind =>
  (header & 7) === factOp.resumePoints ? resumePoint : (((header >>> 3) & 3) as Tier);

/** Blocks of one run at most; longer ones are cut into several. */
const maxRunBlocks = 1_024;
/** A writer that grew beyond this frees its memory after the record. */
const maxKeptBytes = 1_048_576;

export interface FactOpsWriterOptions {
  /**
   * Whether exactly one live block of the record's target in this tier has these low 32 bits, and has these high bits.
   * Asked while the record is written, about the blocks before the record.
   */
  readonly isUnambiguous: (kind: FactKind, low: number, high: number) => boolean;
}

/**
 * Writes what a ledger reports as the ops of one record, in runs of blocks. A block takes eight bytes, a removed one
 * four where its low word identifies it. `applyFactOps` reports the same again.
 */
export class FactOpsWriter implements LedgerSink {
  readonly #isUnambiguous: FactOpsWriterOptions["isUnambiguous"];
  #writer = new ByteWriter(4_096);
  readonly #words = new Uint32Array(2 * maxRunBlocks);
  /** Low words of blocks that this record has stored, by tier: the index does not know them yet. */
  readonly #storedLows: readonly Set<number>[] = factKinds.map(() => new Set());
  #op = 0;
  #tier: FactKind = 0;
  #blocks = 0;

  constructor(options: FactOpsWriterOptions) {
    this.#isUnambiguous = options.isUnambiguous;
  }

  /** Begins a record; drops an unfinished one. */
  begin(): void {
    this.#reset();
    if (this.#writer.length > maxKeptBytes) this.#writer = new ByteWriter(4_096);
    this.#writer.reset();
  }

  /** @returns the ops of the record, empty when the ledger reported nothing */
  finish(): Uint8Array {
    this.#closeRun();
    const ops = this.#writer.copy();
    this.begin();
    return ops;
  }

  stored(tier: FactKind, words: Uint32Array, from: number, to: number): void {
    const lows = this.#storedLows[tier]!;
    for (let block = from; block < to; block++) {
      lows.add(words[2 * block]!);
      this.#addBlock(factOp.stored, tier, words, block);
    }
  }

  removed(tier: FactKind, words: Uint32Array, from: number, to: number): void {
    const lows = this.#storedLows[tier]!;
    for (let block = from; block < to; block++) {
      const low = words[2 * block]!;
      const isShort = !lows.has(low) && this.#isUnambiguous(tier, low, words[2 * block + 1]!);
      if (isShort) this.#addLow(tier, low);
      else this.#addBlock(factOp.removed, tier, words, block);
    }
  }

  orphaned(tier: Tier, words: Uint32Array, at: number, depthBlocks: number): void {
    this.#closeRun();
    this.#writer.varint(factOpHeader(factOp.orphaned, tier, 1));
    this.#writer.words(words, 2 * at, 2 * at + 2);
    this.#writer.varint(depthBlocks);
  }

  holeGone(tier: Tier, words: Uint32Array, at: number): void {
    this.#addBlock(factOp.holeGone, tier, words, at);
  }

  /** What the record said before has no effect any more, so it is not written. */
  cleared(): void {
    this.#reset();
    this.#writer.reset();
    this.#writer.varint(factOpHeader(factOp.cleared, 0, 1));
  }

  #addBlock(op: number, tier: FactKind, words: Uint32Array, block: number): void {
    this.#toRun(op, tier);
    const at = 2 * this.#blocks++;
    this.#words[at] = words[2 * block]!;
    this.#words[at + 1] = words[2 * block + 1]!;
  }

  #addLow(tier: FactKind, low: number): void {
    this.#toRun(factOp.removedLow, tier);
    this.#words[this.#blocks++] = low;
  }

  /** Ensures capacity for one more block of a run of this kind. */
  #toRun(op: number, tier: FactKind): void {
    if (this.#blocks === maxRunBlocks || op !== this.#op || tier !== this.#tier) this.#closeRun();
    this.#op = op;
    this.#tier = tier;
  }

  #closeRun(): void {
    const blocks = this.#blocks;
    if (blocks === 0) return;
    this.#blocks = 0;
    this.#writer.varint(factOpHeader(this.#op, this.#tier, blocks));
    this.#writer.words(this.#words, 0, this.#op === factOp.removedLow ? blocks : 2 * blocks);
  }

  #reset(): void {
    this.#blocks = 0;
    for (const lows of this.#storedLows) if (lows.size > 0) lows.clear();
  }
}

/** Blocks that a sink gets in one call at most. */
const chunkBlocks = 2_048;
/** A depth beyond this many blocks is no depth of any prompt. */
const maxDepthBlocks = 0xffff_ffff;
/** 49 bits: more than any run is long, and safe to multiply. */
const maxVarintBytes = 7;

/** Takes the ops of a record in order. */
export interface FactOpsSink extends LedgerSink {
  /**
   * These blocks were removed from this tier. Each is the only one of the target in this tier whose chain hash has
   * these low 32 bits.
   */
  removedLow(kind: FactKind, lows: Uint32Array, from: number, to: number): void;
}

/**
 * Checks the ops of a record.
 *
 * @returns how many blocks, holes and clearings they contain
 * @throws RangeError for bytes that are no ops
 */
export function countFactOps(ops: Uint8Array): number {
  let count = 0;
  let at = 0;
  while (at < ops.length) {
    const header = varintAt(ops, at);
    at = afterVarint(ops, at);
    const op = opOf(header);
    const blocks = Math.floor(header / 32) + 1;
    if (op === factOp.removedLow) at += 4 * blocks;
    else if (op <= factOp.removed || (op === factOp.holeGone && kindOf(header) !== resumePoint)) at += 8 * blocks;
    else if (op === factOp.orphaned && kindOf(header) !== resumePoint) at = afterOrphan(ops, at, blocks);
    else if (header !== factOp.cleared) throw new RangeError("an op of an unknown kind");
    if (at > ops.length) throw new RangeError("the ops end too early");
    count += blocks;
  }
  return count;
}

function afterOrphan(ops: Uint8Array, at: number, blocks: number): number {
  if (blocks !== 1) throw new RangeError("gaps must be single");
  if (varintAt(ops, at + 8) > maxDepthBlocks) throw new RangeError("a hole is too deep");
  return afterVarint(ops, at + 8);
}

/** As `ByteReader.varint`, but without an object for every record. */
function varintAt(ops: Uint8Array, begin: number): number {
  let value = 0;
  let factor = 1;
  for (let at = begin; at < ops.length && at < begin + maxVarintBytes; at++) {
    const byte = ops[at]!;
    value += (byte & 127) * factor;
    if (byte < 128) return value;
    factor *= 128;
  }
  throw new RangeError("a number that does not end");
}

/** The end of a varint that `varintAt` has read. */
function afterVarint(ops: Uint8Array, begin: number): number {
  let at = begin;
  while (ops[at]! > 127) at += 1;
  return at + 1;
}

const words = new Uint32Array(2 * chunkBlocks);
/** The same memory as bytes; null on a big-endian machine, which must assemble the words. */
const wordBytes = new Uint8Array(Uint16Array.of(1).buffer)[0] === 1 ? new Uint8Array(words.buffer) : null;
/** For at most so many words a loop is faster than a view and a copy. */
const maxLoopWords = 32;

/**
 * Passes the ops of a record to a sink. The sink may read the array during the call only, and must not apply other ops
 * meanwhile.
 *
 * @returns how many blocks, holes and clearings the sink got
 * @throws RangeError for bytes that are no ops; the sink has got nothing then
 */
export function applyFactOps(ops: Uint8Array, sink: FactOpsSink): number {
  const count = countFactOps(ops);
  let at = 0;
  while (at < ops.length) {
    const header = varintAt(ops, at);
    at = afterVarint(ops, at);
    const op = opOf(header);
    if (op === factOp.cleared) {
      sink.cleared();
    } else if (op === factOp.orphaned) {
      at = tellOrphan(ops, at, kindOf(header) as Tier, sink);
    } else {
      at = tellRun(ops, at, header, sink);
    }
  }
  return count;
}

function tellRun(ops: Uint8Array, begin: number, header: number, sink: FactOpsSink): number {
  const op = opOf(header);
  const kind = kindOf(header);
  const wordsPerBlock = op === factOp.removedLow ? 1 : 2;
  let rest = Math.floor(header / 32) + 1;
  let at = begin;
  while (rest > 0) {
    const blocks = Math.min(rest, chunkBlocks);
    readWords(ops, at, blocks * wordsPerBlock);
    if (op === factOp.stored) sink.stored(kind, words, 0, blocks);
    else if (op === factOp.removed) sink.removed(kind, words, 0, blocks);
    else if (op === factOp.removedLow) sink.removedLow(kind, words, 0, blocks);
    else for (let block = 0; block < blocks; block++) sink.holeGone(kind as Tier, words, block);
    at += 4 * blocks * wordsPerBlock;
    rest -= blocks;
  }
  return at;
}

function tellOrphan(ops: Uint8Array, at: number, tier: Tier, sink: FactOpsSink): number {
  readWords(ops, at, 2);
  sink.orphaned(tier, words, 0, varintAt(ops, at + 8));
  return afterVarint(ops, at + 8);
}

function readWords(ops: Uint8Array, begin: number, count: number): void {
  if (wordBytes !== null && count > maxLoopWords) {
    wordBytes.set(ops.subarray(begin, begin + 4 * count));
    return;
  }
  let at = begin;
  for (let word = 0; word < count; word++) {
    words[word] = ops[at]! | (ops[at + 1]! << 8) | (ops[at + 2]! << 16) | (ops[at + 3]! << 24);
    at += 4;
  }
}
