import { ByteReader, ByteWriter } from "@espalier/core";
import type { BatchMark } from "./engine-epoch.ts";
import { countFactOps } from "./fact-ops.ts";

const formatVersion = 1;
/** Sequences, timestamps and feed numbers are below this, so that differences of two of them are safe integers. */
const maxNumber = 2 ** 52;
/** Bound on the bytes of one record's ops: 393,216 stored blocks, more than an engine announces in one message. */
export const maxRecordOpsBytes = 3 * 1_048_576;

const kind = { record: 0, gap: 1, checkpoint: 2 } as const;
const kindMask = 3;
const completeFlag = 4;
/** The feed is that of the previous entry. */
const sameFeedFlag = 8;
/** The sequence follows that of the previous entry. */
const nextSequenceFlag = 16;
/** The engine does not say when it published. */
const noTimestampFlag = 32;
const knownFlags = 63;

/**
 * Puts entries of the fact log together into one item. Numbers are written as differences to the entry before:
 *
 * ```text
 * item:   u8 format version, entries until the end
 * entry:  u8 flags and kind, [varint feed], [sequence: signed difference within a feed, else varint], then by kind
 * record: [signed varint: difference of the timestamp in us], u32 checksum, varint length, ops
 * gap:    varint messages missing less one
 * checkpoint:    [signed varint: difference of the timestamp in us], u32 checksum, varint blocks, u32 u32 digest
 * ```
 */
export class FactItemWriter {
  readonly #writer: ByteWriter;
  #feed = -1;
  #sequence = 0;
  #timestampUs = 0;
  #entries = 0;

  constructor(initialBytes = 4_096) {
    this.#writer = new ByteWriter(initialBytes);
  }

  get entryCount(): number {
    return this.#entries;
  }

  /** @throws RangeError for numbers that no engine uses, and for a record of more than `maxRecordOpsBytes` */
  add(entry: FactEntry): void {
    checkEntry(entry);
    if (this.#entries === 0) this.#writer.u8(formatVersion);
    this.#entries += 1;
    if (entry.kind === "gap") this.#addGap(entry);
    else this.#addMarked(entry);
  }

  /** @returns the item; the writer is empty then */
  finish(): Uint8Array {
    const item = this.#writer.copy();
    this.#writer.reset();
    this.#feed = -1;
    this.#sequence = 0;
    this.#timestampUs = 0;
    this.#entries = 0;
    return item;
  }

  #addGap({ feed, from, to }: GapEntry): void {
    this.#head(kind.gap, feed, from);
    this.#writer.varint(to - from);
    this.#sequence = to;
  }

  #addMarked(entry: FactRecord | CheckpointEntry): void {
    const writer = this.#writer;
    const { timestampUs } = entry;
    const flags = (entry.isComplete ? completeFlag : 0) | (timestampUs < 0 ? noTimestampFlag : 0);
    this.#head((entry.kind === "record" ? kind.record : kind.checkpoint) | flags, entry.feed, entry.sequence);
    if (timestampUs >= 0) {
      writer.signedVarint(timestampUs - this.#timestampUs);
      this.#timestampUs = timestampUs;
    }
    writer.u32(entry.checksum);
    if (entry.kind === "record") {
      writer.bytes(entry.ops);
      return;
    }
    writer.varint(entry.blocks);
    writer.u32(entry.digest[0]);
    writer.u32(entry.digest[1]);
  }

  #head(kindAndFlags: number, feed: number, sequence: number): void {
    const writer = this.#writer;
    const isSameFeed = feed === this.#feed;
    const isNext = isSameFeed && sequence === this.#sequence + 1;
    writer.u8(kindAndFlags | (isSameFeed ? sameFeedFlag : 0) | (isNext ? nextSequenceFlag : 0));
    if (!isSameFeed) {
      writer.varint(feed);
      writer.varint(sequence);
    } else if (!isNext) {
      writer.signedVarint(sequence - this.#sequence);
    }
    this.#feed = feed;
    this.#sequence = sequence;
  }
}

/**
 * Reads an item of the fact log.
 *
 * @returns its entries; the ops of records are views of `bytes`, and valid for `applyFactOps`
 * @throws RangeError for bytes that are no item
 */
export function readFactItem(bytes: Uint8Array): FactEntry[] {
  const reader = new ByteReader(bytes);
  if (reader.u8() !== formatVersion) throw new RangeError("an item of an unknown format");
  const state: ReadState = { feed: -1, sequence: 0, timestampUs: 0 };
  const entries: FactEntry[] = [];
  while (reader.remaining > 0) entries.push(readEntry(reader, state));
  if (entries.length === 0) throw new RangeError("an item without entries");
  return entries;
}

interface ReadState {
  feed: number;
  sequence: number;
  timestampUs: number;
}

function readEntry(reader: ByteReader, state: ReadState): FactEntry {
  const flags = reader.u8();
  readHead(reader, flags, state);
  const { feed, sequence } = state;
  const isComplete = (flags & completeFlag) !== 0;
  switch (flags & kindMask) {
    case kind.record: {
      const timestampUs = readTimestamp(reader, flags, state);
      const checksum = reader.u32();
      const ops = reader.bytes(maxRecordOpsBytes);
      countFactOps(ops);
      return { kind: "record", feed, sequence, timestampUs, checksum, isComplete, ops };
    }
    case kind.gap: {
      if ((flags & (completeFlag | noTimestampFlag)) !== 0) throw new RangeError("a gap with unknown flags");
      const to = checkNumber(sequence + reader.varint());
      state.sequence = to;
      return { kind: "gap", feed, from: sequence, to };
    }
    case kind.checkpoint: {
      const timestampUs = readTimestamp(reader, flags, state);
      const checksum = reader.u32();
      const blocks = reader.varint();
      const digest = [reader.u32(), reader.u32()] as const;
      return { kind: "checkpoint", feed, sequence, timestampUs, checksum, isComplete, blocks, digest };
    }
    default:
      throw new RangeError("an entry of an unknown kind");
  }
}

function readHead(reader: ByteReader, flags: number, state: ReadState): void {
  if (flags > knownFlags) throw new RangeError("an entry with unknown flags");
  const isSameFeed = (flags & sameFeedFlag) !== 0;
  if (isSameFeed ? state.feed < 0 : (flags & nextSequenceFlag) !== 0) throw new RangeError("an entry without a feed");
  if (!isSameFeed) {
    state.feed = checkNumber(reader.varint());
    state.sequence = checkNumber(reader.varint());
  } else {
    const step = (flags & nextSequenceFlag) !== 0 ? 1 : reader.signedVarint();
    state.sequence = checkNumber(state.sequence + step);
  }
}

function readTimestamp(reader: ByteReader, flags: number, state: ReadState): number {
  if ((flags & noTimestampFlag) !== 0) return -1;
  state.timestampUs = checkNumber(state.timestampUs + reader.signedVarint());
  return state.timestampUs;
}

function checkNumber(value: number): number {
  if (!(Number.isInteger(value) && value >= 0 && value < maxNumber)) {
    throw new RangeError(`${value} is not an entry number`);
  }
  return value;
}

function checkEntry(entry: FactEntry): void {
  checkNumber(entry.feed);
  if (entry.kind === "gap") {
    if (checkNumber(entry.to) < checkNumber(entry.from)) throw new RangeError("a gap ends before it begins");
    return;
  }
  checkNumber(entry.sequence);
  if (entry.timestampUs !== -1) checkNumber(entry.timestampUs);
  if (entry.kind === "checkpoint") checkNumber(entry.blocks);
  else if (entry.ops.length > maxRecordOpsBytes) throw new RangeError(`a record of ${entry.ops.length} bytes`);
}

/** What one message of an engine did to the blocks of its target. */
export interface FactRecord extends BatchMark {
  readonly kind: "record";
  /** Number of the feed, a target's epoch, in the journal that holds the record. */
  readonly feed: number;
  /** Whether the writer had read everything that the engine published in this epoch up to here. */
  readonly isComplete: boolean;
  /** For `applyFactOps`. A view of the item. */
  readonly ops: Uint8Array;
}

/** The writer will not read these messages any more: a fold that waits for them continues without. */
export interface GapEntry {
  readonly kind: "gap";
  readonly feed: number;
  readonly from: number;
  /** The last missing one. */
  readonly to: number;
}

/** States what a target holds once every message up to its sequence is applied. */
export interface CheckpointEntry extends BatchMark {
  readonly kind: "checkpoint";
  readonly feed: number;
  readonly isComplete: boolean;
  /** Blocks of all tiers, and resume points. */
  readonly blocks: number;
  /** `PrefixIndex.digest` of the target. */
  readonly digest: readonly [number, number];
}

export type FactEntry = FactRecord | GapEntry | CheckpointEntry;

/** The last message that an entry covers. */
export function lastMessageOf(
  entry: Pick<FactRecord, "kind" | "sequence"> | Pick<GapEntry, "kind" | "to"> | CheckpointEntry,
): number {
  return entry.kind === "gap" ? entry.to : entry.sequence;
}
