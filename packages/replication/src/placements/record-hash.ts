import { ByteWriter } from "@espalier/common";
import { type Hash64, hashOf } from "@espalier/prefix-index";
import type { FeedDeclaration } from "../documents/journal.ts";
import { lifeId } from "../facts/life.ts";
import { finishLane, firstLane, secondLane } from "../word-lanes.ts";
import { type BindingRecord, type PlacementRecord, recordKinds } from "./placement-record.ts";

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
