import { attention, type Tier, tier } from "@espalier/prefix-index";

const lengths = 32;
const bytesOfCode = 128;
const encoder = new TextEncoder();

/** Finds which of a few short ASCII names the given bytes spell, four bytes at a time, without creating a string. */
export class TextTable {
  readonly #candidates = new Int8Array(lengths * bytesOfCode).fill(-1);
  /** The bytes of each name: one by one, or four to a word, where the last word overlaps the one before. */
  readonly #spelled: readonly Int32Array[];

  /**
   * @param names no two may share both length and first letter, so that one comparison decides
   * @throws RangeError when two do, or when a name is empty or longer than 31 bytes
   */
  constructor(names: readonly string[]) {
    this.#spelled = names.map((name) => spell(encoder.encode(name)));
    for (const [place, name] of names.entries()) {
      if (name.length === 0 || name.length >= lengths) throw new RangeError(`"${name}" does not fit`);
      const slot = name.length * bytesOfCode + (name.charCodeAt(0) & 0x7f);
      const other = this.#candidates[slot]!;
      if (other >= 0) throw new RangeError(`"${name}" resembles "${names[other]}"`);
      this.#candidates[slot] = place;
    }
  }

  /** @returns the index of the name in the table; -1 when it is absent */
  find(view: DataView, start: number, end: number): number {
    const length = end - start;
    if (length === 0 || length >= lengths) return -1;
    const place = this.#candidates[length * bytesOfCode + (view.getUint8(start) & 0x7f)]!;
    if (place < 0) return -1;
    const name = this.#spelled[place]!;
    if (length < 4) {
      for (let at = 0; at < length; at++) if (view.getUint8(start + at) !== name[at]) return -1;
      return place;
    }
    let word = 0;
    for (let at = start; at < end - 4; at += 4) if (view.getInt32(at, true) !== name[word++]) return -1;
    return view.getInt32(end - 4, true) === name[word] ? place : -1;
  }
}

function spell(name: Uint8Array): Int32Array {
  if (name.length < 4) return Int32Array.from(name);
  const view = new DataView(name.buffer, name.byteOffset, name.length);
  const words: number[] = [];
  for (let at = 0; at < name.length - 4; at += 4) words.push(view.getInt32(at, true));
  words.push(view.getInt32(name.length - 4, true));
  return Int32Array.from(words);
}

/** Tags of events, at their kinds' indices in `eventKind`. */
export const eventTags = new TextTable(["BlockStored", "BlockRemoved", "AllBlocksCleared"]);

/** A field of an event. In `BlockStored` as an array, field p is at position p (the tag is at 0). */
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
  slidingWindow: 11,
  cacheSalt: 12,
  ignored: 13,
} as const;

/** Keys of events as maps, at their indices in `field`. */
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
  "kv_cache_spec_sliding_window",
  "cache_salt",
]);

/** Field at each position of `BlockRemoved` as an array; further elements are ignored. */
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

/** @returns the tier of the medium with this name; undefined for an unknown name */
export function tierOfMedium(view: DataView, start: number, end: number): Tier | undefined {
  return mediumTiers[media.find(view, start, end)]?.[1];
}

/**
 * The medium of connectors inside vLLM that announce what they store and never a removal: LMCache's in the process of the
 * engine (0.5.6), and Mooncake Store's (vLLM 0.32).
 */
const storeOnlyMedium = new TextTable(["cpu"]);

export function isStoreOnlyMedium(view: DataView, start: number, end: number): boolean {
  return storeOnlyMedium.find(view, start, end) === 0;
}

/** vLLM's names of what the layers of a cache group are. */
const specKinds: readonly (readonly [string, number])[] = [
  ["full_attention", attention.full],
  ["mla_attention", attention.full],
  ["sink_full_attention", attention.full],
  ["sliding_window", attention.window],
  ["sliding_window_mla", attention.window],
  ["chunked_local_attention", attention.chunk],
  ["mamba", attention.state],
];

const specKindNames = new TextTable(specKinds.map(([name]) => name));

/** @returns one of `attention`, `other` for an unknown name */
export function attentionOfSpecKind(view: DataView, start: number, end: number): number {
  return specKinds[specKindNames.find(view, start, end)]?.[1] ?? attention.other;
}

/** Keys of a typed extra key. */
export const extraKeyFields = new TextTable(["type", "modality"]);

/** Types of a typed extra key, at their indices in `extraKeyType`. */
export const extraKeyTypes = new TextTable(["lora", "cache_salt", "legacy"]);

export const extraKeyType = { adapter: 0, cacheSalt: 1, legacy: 2 } as const;
