import { type Tier, tier } from "@espalier/prefix-index";
import { TextTable } from "./text-table.ts";

/** Tags of events, at the places that `eventKind` gives their kinds. */
export const eventTags = new TextTable(["BlockStored", "BlockRemoved", "AllBlocksCleared"]);

/** A field of an event. Of `BlockStored` as an array, the field at position p (the tag is at 0) is field p. */
export const field = {
  type: 0,
  blockHashes: 1,
  parentBlockHash: 2,
  tokenIds: 3,
  blockSize: 4,
  loraId: 5,
  medium: 6,
  loraName: 7,
  extraKeys: 8,
  groupIndex: 9,
  specKind: 10,
  cacheSalt: 11,
  ignored: 12,
} as const;

/** Keys of events as maps, at the places that `field` gives them. */
export const eventKeys = new TextTable([
  "type",
  "block_hashes",
  "parent_block_hash",
  "token_ids",
  "block_size",
  "lora_id",
  "medium",
  "lora_name",
  "extra_keys",
  "group_idx",
  "kv_cache_spec_kind",
  "cache_salt",
]);

/** Field at each position of `BlockRemoved` as an array; what follows is ignored. */
export const removedPositions: readonly number[] = [field.type, field.blockHashes, field.medium, field.groupIndex];

/** Keys of a message as a map. */
export const envelopeKeys = new TextTable(["ts", "events", "data_parallel_rank"]);

const mediumTiers: readonly (readonly [string, Tier])[] = [
  ["GPU", tier.gpu],
  ["CPU", tier.cpu],
  ["CPU_PINNED", tier.cpu],
  ["CPU_TIER1", tier.cpu],
  ["DISK", tier.disk],
  ["STORAGE", tier.disk],
  ["SHARED_STORAGE", tier.external],
  ["EXTERNAL", tier.external],
];

const media = new TextTable(mediumTiers.map(([name]) => name));

/** @returns the tier of the medium with this name; undefined when the name is not known */
export function tierOfMedium(view: DataView, start: number, end: number): Tier | undefined {
  return mediumTiers[media.find(view, start, end)]?.[1];
}

/** Kinds of attention all of whose blocks stay as long as the prefix is reusable (vLLM's names). */
export const prefixSpecKinds = new TextTable(["full_attention", "mla_attention", "sink_full_attention"]);

/** Keys of a typed extra key. */
export const extraKeyFields = new TextTable(["type", "modality"]);

/** Types of a typed extra key, at the places that `extraKeyType` gives them. */
export const extraKeyTypes = new TextTable(["lora", "cache_salt", "legacy"]);

export const extraKeyType = { adapter: 0, cacheSalt: 1, legacy: 2 } as const;
