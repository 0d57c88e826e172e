import {
  createDecoder,
  type Decoder,
  readAny,
  readUint8,
  readVarString,
  readVarUint,
  readVarUint8Array,
} from "lib0/decoding";
import { type LogContent, logName, readBinaryItem, readStatement } from "./journal-log.ts";

/** An item that an update adds, by the clock of the writer. */
export interface LogItem {
  readonly clock: number;
  readonly content: LogContent;
}

/** Clocks `from` to `to` (exclusive). */
export interface ClockRange {
  readonly from: number;
  readonly to: number;
}

export interface JournalUpdate {
  /** Clock of the first struct in it; equal to `to` when there is none. */
  readonly from: number;
  readonly to: number;
  /** Items that are not deleted yet, from the requested clock on. */
  readonly items: readonly LogItem[];
  readonly deletions: readonly ClockRange[];
}

/** Kinds of structs that a journal has, as in the low five bits of a struct's first byte. */
const structKind = { deleted: 1, binary: 3, any: 8 } as const;
const kindMask = 31;
const leftFlag = 128;
/** A right neighbour, or a key of a map. */
const foreignFlags = 64 | 32;

/**
 * Reads an update (version 1) of a journal, and checks that it holds only the writer's own additions to the end of the
 * log and deletions from it. Yjs applies whatever an update says, so everything is checked before Yjs sees it.
 *
 * @param client the writer
 * @param known the writer's clock here: items before it are skipped
 * @throws Error (of any kind) for anything else
 */
export function readJournalUpdate(bytes: Uint8Array, client: number, known: number): JournalUpdate {
  const decoder = createDecoder(bytes);
  const clients = readVarUint(decoder);
  if (clients > 1) throw new RangeError("more than one writer");
  const items: LogItem[] = [];
  const range = clients === 0 ? { from: known, to: known } : readStructs(decoder, client, known, items);
  const deletions = readDeletions(decoder, client, Math.max(range.to, known));
  if (decoder.pos !== bytes.length) throw new RangeError("bytes after the end");
  return { ...range, items, deletions };
}

function readStructs(decoder: Decoder, client: number, known: number, items: LogItem[]): ClockRange {
  const structs = readVarUint(decoder);
  if (readVarUint(decoder) !== client) throw new RangeError("another writer's structs");
  const from = readVarUint(decoder);
  let clock = from;
  for (let struct = 0; struct < structs; struct++) {
    const info = readUint8(decoder);
    checkPlace(decoder, info, client, clock);
    clock += readContent(decoder, info & kindMask, clock, known, items);
  }
  if (!Number.isSafeInteger(clock)) throw new RangeError("a clock is too large");
  return { from, to: clock };
}

/** Every struct is at the end of the log: right of the clock before it, or first of all. */
function checkPlace(decoder: Decoder, info: number, client: number, clock: number): void {
  if ((info & foreignFlags) !== 0) throw new RangeError("not at the end of the log");
  if ((info & leftFlag) !== 0) {
    const isNext = readVarUint(decoder) === client && readVarUint(decoder) === clock - 1;
    if (!isNext) throw new RangeError("not at the end of the log");
  } else {
    const isFirst = clock === 0 && readVarUint(decoder) === 1 && readVarString(decoder) === logName;
    if (!isFirst) throw new RangeError("not in the log");
  }
}

/** @returns how many clocks the struct spans */
function readContent(decoder: Decoder, kind: number, clock: number, known: number, items: LogItem[]): number {
  switch (kind) {
    case structKind.deleted:
      return atLeastOne(readVarUint(decoder));
    case structKind.binary: {
      const bytes = readVarUint8Array(decoder);
      if (clock >= known) items.push({ clock, content: readBinaryItem(bytes) });
      return 1;
    }
    case structKind.any: {
      const length = atLeastOne(readVarUint(decoder));
      for (let at = clock; at < clock + length; at++) {
        const value: unknown = readAny(decoder);
        if (at >= known) items.push({ clock: at, content: readStatement(value) });
      }
      return length;
    }
    default:
      throw new RangeError("a struct of a kind that journals do not have");
  }
}

/** Ranges ascend and end before the clock, or Yjs would keep them waiting. */
function readDeletions(decoder: Decoder, client: number, end: number): ClockRange[] {
  const deletions: ClockRange[] = [];
  const clients = readVarUint(decoder);
  if (clients === 0) return deletions;
  if (clients > 1 || readVarUint(decoder) !== client) throw new RangeError("deletions of another writer's structs");
  const ranges = readVarUint(decoder);
  let before = -1;
  for (let range = 0; range < ranges; range++) {
    const from = readVarUint(decoder);
    const to = from + atLeastOne(readVarUint(decoder));
    if (from <= before || to > end) throw new RangeError("deletions out of order or beyond the end");
    deletions.push({ from, to });
    before = to;
  }
  return deletions;
}

function atLeastOne(length: number): number {
  if (length < 1) throw new RangeError("a length of nothing");
  return length;
}
