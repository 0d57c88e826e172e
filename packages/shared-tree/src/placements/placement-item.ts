import { ByteReader, ByteWriter, type Hash64 } from "@espalier/core";

/** A longer item is refused. */
export const maxPlacementItemBytes = 1_048_576;

const version = 1;

/** A chain as the writer has it: blocks from `shared` to `blockCount` (exclusive) in `words` are its own. */
export interface WrittenRun {
  readonly parent: number | undefined;
  readonly shared: number;
  readonly words: Uint32Array;
  readonly blockCount: number;
}

/**
 * Writes one item of a placement log. Layout: version as a byte, varints for the number of the item's first run and for
 * the stamp before its first record; then records: kind as a byte, how much later its stamp is than that of the record
 * before, and
 *
 * - `place`, `confirm`, `refute`: varints for feed, time to live in milliseconds, distance of its parent in runs (0:
 *   none), blocks shared with the parent if there is one, number of own blocks; their hashes, 8 bytes each;
 * - `bind`, `unbind`: time to live as varint, hash of the key in 8 bytes, and for `bind` the value as text.
 */
export class PlacementItemWriter {
  readonly #writer = new ByteWriter(4_096);
  #count = 0;
  #stamp = 0;
  #nextRun = 0;

  get records(): number {
    return this.#count;
  }

  get byteLength(): number {
    return this.#writer.length;
  }

  /** @returns the number of the run, when the record has blocks of its own */
  addRun(record: Omit<PlacementRecord, "run">, run: WrittenRun, nextRun: number): number | undefined {
    this.#begin(record, nextRun);
    const writer = this.#writer;
    writer.varint(record.feed);
    writer.varint(record.ttlMs);
    if (run.parent === undefined) writer.varint(0);
    else {
      writer.varint(this.#nextRun - run.parent);
      writer.varint(run.shared);
    }
    writer.varint(run.blockCount - run.shared);
    writer.words(run.words, run.shared * 2, run.blockCount * 2);
    return run.blockCount > run.shared ? this.#nextRun++ : undefined;
  }

  addBinding(record: BindingRecord): void {
    this.#begin(record, 0);
    this.#writer.varint(record.ttlMs);
    this.#writer.u32(record.key.low);
    this.#writer.u32(record.key.high);
    if (record.kind === "bind") this.#writer.text(record.value);
  }

  /** @returns the item; the writer is empty then */
  take(): Uint8Array {
    const bytes = this.#writer.copy();
    this.#writer.reset();
    this.#count = 0;
    return bytes;
  }

  #begin({ kind, stamp }: Pick<LogRecord, "kind" | "stamp">, nextRun: number): void {
    const writer = this.#writer;
    if (this.#count === 0) {
      writer.u8(version);
      writer.varint(nextRun);
      writer.varint(stamp);
      this.#stamp = stamp;
      this.#nextRun = nextRun;
    }
    this.#count += 1;
    writer.u8(recordKinds.indexOf(kind));
    writer.signedVarint(stamp - this.#stamp);
    this.#stamp = stamp;
  }
}

/**
 * Reads an item, all of it or nothing.
 *
 * @throws RangeError for bytes that are no item
 */
export function readPlacementItem(bytes: Uint8Array): LogRecord[] {
  if (bytes.length > maxPlacementItemBytes) throw new RangeError(`an item of ${bytes.length} bytes is too large`);
  const reader = ByteReader.ofVersion(version, bytes);
  let nextRun = reader.varint();
  let stamp = reader.varint();
  const records: LogRecord[] = [];
  // All runs of an item are in one piece of memory.
  let room = new Uint32Array(reader.remaining >> 2);
  while (reader.remaining > 0) {
    const kind = recordKinds[reader.u8()];
    stamp += reader.signedVarint();
    if (stamp < 0 || !Number.isSafeInteger(stamp)) throw new RangeError("a stamp is out of range");
    if (kind === undefined) throw new RangeError("a record of a kind that is not known");
    if (kind === "bind" || kind === "unbind") records.push(readBinding(reader, kind, stamp));
    else {
      const record = readPlacement(reader, { kind, stamp, nextRun, room });
      if (record.run.number !== undefined) nextRun += 1;
      room = room.subarray(record.run.words.length);
      records.push(record);
    }
  }
  return records;
}

/** What is known of a record before its fields are read. */
interface RecordPlace {
  readonly kind: PlacementRecord["kind"];
  readonly stamp: number;
  readonly nextRun: number;
  /** Memory at whose beginning the words of its run are written. */
  readonly room: Uint32Array;
}

function readPlacement(reader: ByteReader, { kind, stamp, nextRun, room }: RecordPlace): PlacementRecord {
  const feed = reader.varint();
  const ttlMs = Math.min(reader.varint(), maxPlacementTtlMs);
  return { kind, feed, stamp, ttlMs, run: readRun(reader, nextRun, room) };
}

function readRun(reader: ByteReader, nextRun: number, room: Uint32Array): ChainRun {
  const distance = reader.varint();
  if (distance > nextRun) throw new RangeError("a run refers to one before the first");
  const shared = distance > 0 ? reader.varint() : 0;
  const count = reader.varint();
  if (shared + count > maxRunBlocks) throw new RangeError(`a chain of ${shared + count} blocks is too long`);
  if (shared + count === 0) throw new RangeError("a chain has no blocks");
  if (count * 8 > reader.remaining) throw new RangeError("unexpected end of bytes");
  const words = room.subarray(0, count * 2);
  reader.words(count * 2, words, 0);
  return {
    number: count > 0 ? nextRun : undefined,
    parent: distance > 0 ? nextRun - distance : undefined,
    shared,
    words,
  };
}

function readBinding(reader: ByteReader, kind: BindingRecord["kind"], stamp: number): BindingRecord {
  const ttlMs = Math.min(reader.varint(), maxBindingTtlMs);
  const key = { low: reader.u32(), high: reader.u32() };
  return { kind, stamp, ttlMs, key, value: kind === "bind" ? reader.text(maxBindingValueBytes) : "" };
}

/** The kinds of a record; the place in this list is the number on the wire. */
const recordKinds = ["place", "confirm", "refute", "bind", "unbind"] as const;
/** Blocks of one chain; longer ones are cut. */
export const maxRunBlocks = 65_536;
/** The time to live of a record at most; a longer one is shortened. */
export const maxPlacementTtlMs = 3_600_000;
/** The time to live of a binding at most; a longer one is shortened. */
export const maxBindingTtlMs = 86_400_000;
/** UTF-8 bytes of a binding's value. */
export const maxBindingValueBytes = 1_024;

/** A chain of blocks: all of it, or the part after the first blocks of an earlier run of the same journal. */
export interface ChainRun {
  /** The number by which later records refer to it; undefined when it has no blocks of its own. */
  readonly number: number | undefined;
  readonly parent: number | undefined;
  /** Blocks of the parent that it begins with. */
  readonly shared: number;
  /** The chain hashes that follow, two words each. */
  readonly words: Uint32Array;
}

/**
 * A chain was sent to a target (`place`), the engine confirmed it (`confirm`), or it turned out not to be there
 * (`refute`).
 */
export interface PlacementRecord {
  readonly kind: "place" | "confirm" | "refute";
  /** The target and its epoch, as the journal declares. */
  readonly feed: number;
  /** Of a hybrid clock. */
  readonly stamp: number;
  /** How long it counts from when it is read. A `refute` works at once: it cuts the chain before its last block. */
  readonly ttlMs: number;
  readonly run: ChainRun;
}

/** Binds a key to a value, or unbinds it. */
export interface BindingRecord {
  readonly kind: "bind" | "unbind";
  readonly stamp: number;
  readonly ttlMs: number;
  /** Hash of the key. */
  readonly key: Hash64;
  /** Empty for `unbind`. */
  readonly value: string;
}

export type LogRecord = PlacementRecord | BindingRecord;
