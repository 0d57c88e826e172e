import { ByteWriter } from "@espalier/common";
import { type Hash64, hashOf } from "@espalier/prefix-index";
import type { FeedDeclaration } from "../documents/journal.ts";
import { lifeId } from "../facts/life.ts";
import type { BindingRecord, PlacementRecord } from "./placement-record.ts";

const writer = new ByteWriter();

/** The hash of what a record says, however its chain was written. The last block stands for the whole chain. */
export function placementHash(
  { kind, stamp, ttlMs }: Omit<PlacementRecord, "run" | "feed">,
  { target, life }: FeedDeclaration,
  chain: { readonly words: Uint32Array; readonly blockCount: number },
): Hash64 {
  writer.reset();
  writer.text(kind);
  writer.text(target);
  writer.text(life ? lifeId(life) : "");
  writer.varint(stamp);
  writer.varint(ttlMs);
  writer.varint(chain.blockCount);
  writer.words(chain.words, chain.blockCount * 2 - 2, chain.blockCount * 2);
  return hashOf(writer.copy());
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
