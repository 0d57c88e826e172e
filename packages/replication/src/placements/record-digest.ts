import { ByteWriter } from "@espalier/common";
import { type Hash64, hashOf } from "@espalier/prefix-index";
import type { FeedDeclaration } from "../documents/journal.ts";
import { lifeId } from "../facts/life.ts";
import { type BindingRecord, type PlacementRecord, recordKinds } from "./placement-item.ts";

/** Records that expire in the same span of so many milliseconds have one sum. */
export const digestSpanMs = 16_384;
/** Spans for which sums are kept; with more, the earliest go. Together longer than any record lives. */
export const maxDigestSpans = 8_192;

interface SpanSum {
  low: number;
  high: number;
}

/**
 * A digest of a multiset of records that expire: sums of their hashes by the span of time in which they do, so that it can be
 * told for those that are alive at any moment, whatever has been forgotten before.
 */
export class RecordDigest {
  readonly #sums = new Map<number, SpanSum>();

  /** @param expiresMs by the stamp of the record, so the same in every router */
  add(low: number, high: number, expiresMs: number): void {
    const span = Math.floor(expiresMs / digestSpanMs);
    let sum = this.#sums.get(span);
    if (!sum) {
      sum = { low: 0, high: 0 };
      this.#sums.set(span, sum);
      if (this.#sums.size > maxDigestSpans) this.#dropEarliest();
    }
    sum.low = (sum.low + low) >>> 0;
    sum.high = (sum.high + high) >>> 0;
  }

  /** The digest of the records that expire later than `wallMs`, without those that do so in the same span. */
  after(wallMs: number): readonly [number, number] {
    let low = 0;
    let high = 0;
    for (const [span, sum] of this.#sums) {
      if (span * digestSpanMs <= wallMs) continue;
      low = (low + sum.low) >>> 0;
      high = (high + sum.high) >>> 0;
    }
    return [low, high];
  }

  get spans(): number {
    return this.#sums.size;
  }

  /** Drops an eighth at a time, so that it costs little per record. */
  #dropEarliest(): void {
    const spans = [...this.#sums.keys()].sort((one, other) => one - other);
    for (const span of spans.slice(0, maxDigestSpans / 8)) this.#sums.delete(span);
  }
}

const writer = new ByteWriter();
const fields = new Int32Array(7);
const two32 = 2 ** 32;
/** Of declarations, each of which is one object for as long as its journal has it. */
const declarationHashes = new WeakMap<FeedDeclaration, Hash64>();

/** The hash of what a record says, however its chain was written. The last block stands for the whole chain. */
export function placementHash(
  { kind, stamp, ttlMs }: Omit<PlacementRecord, "run" | "feed">,
  declaration: FeedDeclaration,
  { words, blockCount }: { readonly words: Uint32Array; readonly blockCount: number },
): Hash64 {
  const declared = declarationHash(declaration);
  fields[0] = recordKinds.indexOf(kind);
  fields[1] = stamp;
  fields[2] = stamp / two32;
  fields[3] = ttlMs;
  fields[4] = blockCount;
  fields[5] = words[blockCount * 2 - 2]!;
  fields[6] = words[blockCount * 2 - 1]!;
  let first = declared.low;
  let second = declared.high;
  for (let index = 0; index < fields.length; index++) {
    first = firstLane(first, fields[index]!);
    second = secondLane(second, fields[index]!);
  }
  return { low: finishLane(first), high: finishLane(second) };
}

export function bindingHash({ kind, stamp, ttlMs, key, value }: BindingRecord): Hash64 {
  writer.reset();
  writer.text(kind);
  writer.varint(stamp);
  writer.varint(ttlMs);
  writer.u32(key.low);
  writer.u32(key.high);
  writer.text(value);
  return hashOf(writer.copy());
}

function declarationHash(declaration: FeedDeclaration): Hash64 {
  let hash = declarationHashes.get(declaration);
  if (!hash) {
    const { target, life } = declaration;
    writer.reset();
    writer.text(target);
    writer.text(life ? lifeId(life) : "");
    hash = hashOf(writer.copy());
    declarationHashes.set(declaration, hash);
  }
  return hash;
}

/**
 * A hash of 64 bits in two lanes of 32, for sums that replicas compare: each word goes into both, then `finishLane`, the
 * finalizer of MurmurHash3 (Austin Appleby), makes every bit of a lane depend on all.
 */
function firstLane(lane: number, word: number): number {
  const mixed = Math.imul(lane ^ word, 0x9e3779b1);
  return mixed ^ (mixed >>> 15);
}

function secondLane(lane: number, word: number): number {
  return Math.imul(lane + word, 0xc2b2ae3d) ^ (lane >>> 15);
}

/** @returns an unsigned number of 32 bits */
function finishLane(lane: number): number {
  const mixed = Math.imul(lane ^ (lane >>> 16), 0x85ebca6b);
  const again = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return (again ^ (again >>> 16)) >>> 0;
}
