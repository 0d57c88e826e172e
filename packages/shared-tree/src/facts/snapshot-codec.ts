import { ByteReader, ByteWriter } from "@espalier/core";
import { type FactKind, type FactsChunk, type FactsGroup, resumePoint } from "@espalier/prefix-index";
import type { BatchMark, EngineEpoch, FoldPoint } from "./engine-epoch.ts";

const formatVersion = 1;
const frameKind = { stamps: 0, groups: 1, end: 2 } as const;
const partKind = { blocks: 0, holes: 1, walked: 2 } as const;
/** Sequences are below this, so that a few of them added up are safe integers. */
const maxNumber = 2 ** 52;
/** A target's key in UTF-8. */
const maxKeyBytes = 1_024;
/** UTF-8 bytes of an epoch's id. */
const maxEpochIdBytes = 64;
/** Upper bound of a stamp's bytes, whatever its numbers. */
export const maxStampBytes = maxKeyBytes + maxEpochIdBytes + 128;
/** Targets of one snapshot. */
export const maxSnapshotTargets = 65_536;

/** Says which moment the state of a target is from. */
export interface SnapshotStamp {
  readonly target: string;
  readonly epoch: EngineEpoch;
  readonly point: FoldPoint;
}

/**
 * One frame of a snapshot. Its targets have numbers, in the order of their stamps, and groups name targets by them. The
 * end says how many stamps and groups there were, and for which targets the sent groups have become void.
 */
export type SnapshotFrame =
  | {
      readonly kind: "stamps";
      readonly stamps: readonly SnapshotStamp[];
      /** Approximate number of distinct blocks to come; absent when unknown. */
      readonly blocks?: number;
    }
  | { readonly kind: "groups"; readonly groups: readonly FactsGroup[] }
  | { readonly kind: "end"; readonly stamps: number; readonly groups: number; readonly voided: readonly number[] };

/**
 * ```text
 * frame:  u8 format version, u8 kind, then by kind
 * stamps: varint distinct blocks to come, or 0; then until the end of the frame: text target, mark of the epoch, text predecessor or empty,
 *         varint position, u8 has last, [mark of the last], varint 0 when complete, else first incomplete message + 1
 * groups: until the end of the frame: u8 part kind + 4 * tier, varint targets, their numbers,
 *         varint blocks, their words, for holes their depths
 * end:    varint stamps, varint groups, varint voided targets, their numbers
 * mark:   varint sequence, signed varint timestamp in us, u32 checksum
 * ```
 */
export function writeSnapshotFrame(frame: SnapshotFrame): Uint8Array {
  const writer = new ByteWriter(frame.kind === "groups" ? 65_536 : 1_024);
  writer.u8(formatVersion);
  writer.u8(frameKind[frame.kind]);
  if (frame.kind === "stamps") {
    writer.varint(frame.blocks ?? 0);
    for (const stamp of frame.stamps) writeStamp(writer, stamp);
  }
  if (frame.kind === "groups") for (const group of frame.groups) writeGroup(writer, group);
  if (frame.kind === "end") {
    writer.varint(frame.stamps);
    writer.varint(frame.groups);
    writeNumbers(writer, frame.voided);
  }
  return writer.copy();
}

/** @throws RangeError for bytes that are no frame */
export function readSnapshotFrame(bytes: Uint8Array): SnapshotFrame {
  const reader = new ByteReader(bytes);
  if (reader.u8() !== formatVersion) throw new RangeError("a snapshot of an unknown format");
  const kind = reader.u8();
  if (kind === frameKind.stamps) {
    const blocks = reader.varint();
    const stamps = readAll(reader, readStamp);
    return blocks > 0 ? { kind: "stamps", stamps, blocks } : { kind: "stamps", stamps };
  }
  if (kind === frameKind.groups) return { kind: "groups", groups: readAll(reader, readGroup) };
  if (kind !== frameKind.end) throw new RangeError("a snapshot frame of an unknown kind");
  const end = { kind: "end", stamps: reader.varint(), groups: reader.varint(), voided: readNumbers(reader) } as const;
  reader.end();
  return end;
}

function readAll<T>(reader: ByteReader, read: (reader: ByteReader) => T): T[] {
  const all: T[] = [];
  while (reader.remaining > 0) all.push(read(reader));
  return all;
}

function writeStamp(writer: ByteWriter, { target, epoch, point }: SnapshotStamp): void {
  writer.text(target);
  writeMark(writer, epoch);
  writer.text(epoch.predecessor ?? "");
  writer.varint(point.position);
  writer.u8(point.last ? 1 : 0);
  if (point.last) writeMark(writer, point.last);
  writer.varint(point.incompleteFrom === Number.MAX_SAFE_INTEGER ? 0 : point.incompleteFrom + 1);
}

function readStamp(reader: ByteReader): SnapshotStamp {
  const target = reader.text(maxKeyBytes);
  const mark = readMark(reader);
  const predecessor = reader.text(maxEpochIdBytes);
  const position = reader.varint();
  const last = readFlag(reader) ? readMark(reader) : undefined;
  const incomplete = reader.varint();
  if (position > maxNumber || mark.sequence > maxNumber || incomplete > maxNumber)
    throw new RangeError("too large a number");
  if (position < mark.sequence - 1 || (last && (last.sequence > position || last.sequence < mark.sequence))) {
    throw new RangeError("a stamp contradicts itself");
  }
  const incompleteFrom = incomplete === 0 ? Number.MAX_SAFE_INTEGER : incomplete - 1;
  const epoch = { ...mark, predecessor: predecessor === "" ? null : predecessor };
  return { target, epoch, point: { position, last, incompleteFrom } };
}

function readFlag(reader: ByteReader): boolean {
  const flag = reader.u8();
  if (flag > 1) throw new RangeError("a flag is neither 0 nor 1");
  return flag === 1;
}

function writeMark(writer: ByteWriter, { sequence, timestampUs, checksum }: BatchMark): void {
  writer.varint(sequence);
  writer.signedVarint(timestampUs);
  writer.u32(checksum);
}

function readMark(reader: ByteReader): BatchMark {
  return { sequence: reader.varint(), timestampUs: reader.signedVarint(), checksum: reader.u32() };
}

function writeGroup(writer: ByteWriter, { targets, part }: FactsGroup): void {
  writer.u8(partKind[part.kind] + (part.kind === "blocks" ? part.tier * 4 : 0));
  writeNumbers(writer, targets);
  if (part.kind === "walked") return;
  writer.varint(part.words.length / 2);
  writer.words(part.words, 0, part.words.length);
  if (part.kind === "holes") writer.words(part.depths, 0, part.depths.length);
}

function readGroup(reader: ByteReader): FactsGroup {
  const header = reader.u8();
  const targets = readNumbers(reader);
  if (targets.length === 0) throw new RangeError("a group of no target");
  return { targets, part: readPart(reader, header) };
}

function readPart(reader: ByteReader, header: number): FactsChunk {
  const kind = header & 3;
  const inTier = header >>> 2;
  if (inTier > resumePoint || (kind !== partKind.blocks && inTier > 0))
    throw new RangeError("a part of an unknown tier");
  if (kind === partKind.walked) return { kind: "walked" };
  if (kind > partKind.walked) throw new RangeError("a part of an unknown kind");
  const blocks = reader.varint();
  const words = readWords(reader, 2 * blocks);
  if (kind === partKind.blocks) return { kind: "blocks", tier: inTier as FactKind, words };
  return { kind: "holes", words, depths: readWords(reader, blocks) };
}

function readWords(reader: ByteReader, count: number): Uint32Array {
  if (count * 4 > reader.remaining) throw new RangeError("the words end too early");
  const words = new Uint32Array(count);
  reader.words(count, words, 0);
  return words;
}

function writeNumbers(writer: ByteWriter, numbers: readonly number[]): void {
  writer.varint(numbers.length);
  for (const number of numbers) writer.varint(number);
}

function readNumbers(reader: ByteReader): number[] {
  const count = reader.varint();
  if (count > reader.remaining || count > maxSnapshotTargets) throw new RangeError("too many targets");
  const numbers: number[] = [];
  for (let at = 0; at < count; at++) {
    const number = reader.varint();
    if (number >= maxSnapshotTargets) throw new RangeError("a target's number is too large");
    numbers.push(number);
  }
  return numbers;
}
