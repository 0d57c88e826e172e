import { decode } from "@msgpack/msgpack";
import type { PlainEvent } from "./plain-events.ts";

/** What the naive decoder makes of a message that is accepted. */
export interface NaiveMessage {
  readonly timestampS: number;
  readonly rank: number;
  readonly events: readonly PlainEvent[];
  readonly unknown: number;
  readonly malformed: number;
}

type Fields = Readonly<Record<string, unknown>>;

const storedNames = [
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
];
const removedNames = ["type", "block_hashes", "medium", "group_idx"];
const kinds = { BlockStored: "stored", BlockRemoved: "removed", AllBlocksCleared: "cleared" } as const;
const attentions: Readonly<Record<string, string>> = {
  full_attention: "full",
  mla_attention: "full",
  sink_full_attention: "full",
  sliding_window: "window",
  sliding_window_mla: "window",
  chunked_local_attention: "chunk",
  mamba: "state",
};
const tiers: Readonly<Record<string, string>> = {
  GPU: "gpu",
  CPU: "cpu",
  CPU_PINNED: "cpu",
  CPU_TIER1: "cpu",
  DISK: "disk",
  STORAGE: "disk",
};

class Malformed extends Error {}

/** Decodes by building every value first, with a library: slow, plain, and independent of the decoder under test. */
export function decodeNaively(payload: Uint8Array): NaiveMessage {
  const value = decode(payload, { useBigInt64: true });
  const [ts, events, rank] = Array.isArray(value)
    ? value
    : ["ts", "events", "data_parallel_rank"].map((key) => (value as Fields)[key]);
  const read: PlainEvent[] = [];
  let unknown = 0;
  let malformed = 0;
  for (const event of events) {
    try {
      const plain = readEvent(event);
      if (plain) read.push(plain);
      else unknown += 1;
    } catch (error) {
      if (!(error instanceof Malformed)) throw error;
      malformed += 1;
    }
  }
  return {
    timestampS: ts === null ? Number.NaN : Number(ts) > 1e11 ? Number(ts) / 1_000 : Number(ts),
    rank: Number(rank ?? -1),
    events: read,
    unknown,
    malformed,
  };
}

function readEvent(event: unknown): PlainEvent | undefined {
  const fields = named(event);
  const tag = fields.type;
  if (typeof tag !== "string") throw new Malformed();
  if (!Object.hasOwn(kinds, tag)) return undefined;
  const kind = kinds[tag as keyof typeof kinds];
  const base = { kind, hashes: [], parent: undefined, tokens: [], blockSize: 0, detail: undefined };
  if (kind === "cleared") return { ...base, tier: "gpu", group: -1, attention: "full", window: 0 };
  const hashes = list(fields.block_hashes).map(hash);
  const medium = text(fields.medium) ?? "GPU";
  const place = { hashes, tier: tiers[medium] ?? "external", group: count(fields.group_idx) ?? -1 };
  if (kind === "removed") return { ...base, ...place, attention: "full", window: 0 };
  const specKind = text(fields.kv_cache_spec_kind);
  return {
    ...base,
    ...place,
    parent: absent(fields.parent_block_hash) ? undefined : hash(fields.parent_block_hash),
    tokens: absent(fields.token_ids) ? [] : list(fields.token_ids).map(token),
    blockSize: count(fields.block_size) ?? 0,
    attention: specKind === undefined ? "full" : (attentions[specKind] ?? "other"),
    window: count(fields.kv_cache_spec_sliding_window) ?? 0,
    detail: detail(fields),
  };
}

function named(event: unknown): Fields {
  if (typeof event !== "object" || event === null) throw new Malformed();
  if (!Array.isArray(event)) return event as Fields;
  if (event[0] === "BlockStored" && event.length < 5) throw new Malformed();
  if (event[0] === "BlockRemoved" && event.length < 2) throw new Malformed();
  const names = event[0] === "BlockRemoved" ? removedNames : storedNames;
  return Object.fromEntries(names.flatMap((name, at) => (at < event.length ? [[name, event[at]]] : [])));
}

/** Extra keys of the plain kind only: strings, `[identifier, offset]` and byte strings, or nothing. */
function detail(fields: Fields): PlainEvent["detail"] {
  const number = absent(fields.lora_id) ? undefined : Number(fields.lora_id);
  const name = text(fields.lora_name) || undefined;
  const perBlock = absent(fields.extra_keys)
    ? []
    : list(fields.extra_keys).map((keys) => (absent(keys) ? [] : list(keys)));
  let cacheSalt = text(fields.cache_salt) || undefined;
  const blockKeys = perBlock.map((keys, block) => {
    const left = keys[0] === name && name !== undefined ? keys.slice(1) : [...keys];
    const saltAt = left.findLastIndex(
      (key) => typeof key === "string" && (cacheSalt === undefined || key === cacheSalt),
    );
    if (block === 0 && saltAt >= 0 && (absent(fields.parent_block_hash) || cacheSalt !== undefined)) {
      cacheSalt ??= (left[saltAt] as string) || undefined;
      left.splice(saltAt, 1);
    }
    return left.length > 0
      ? left
          .map(key)
          .map((one) => `${one.length}:${one}`)
          .join("")
      : undefined;
  });
  const adapter = name ?? (number === undefined ? undefined : `lora-${number}`);
  const kept = blockKeys.some((one) => one !== undefined) ? blockKeys : undefined;
  if (adapter === undefined && cacheSalt === undefined && kept === undefined) return undefined;
  return { adapter, cacheSalt, blockKeys: kept };
}

function key(value: unknown): string {
  if (value instanceof Uint8Array) return Buffer.from(value).toString("hex");
  return Array.isArray(value) ? value.map(key).join("@") : String(value);
}

const absent = (value: unknown): value is null | undefined => value === null || value === undefined;

function list(value: unknown): readonly unknown[] {
  if (!Array.isArray(value)) throw new Malformed();
  return value;
}

function text(value: unknown): string | undefined {
  if (absent(value)) return undefined;
  if (typeof value !== "string") throw new Malformed();
  return value;
}

function integer(value: unknown): bigint {
  if (typeof value === "bigint") return value;
  if (typeof value !== "number" || !Number.isInteger(value)) throw new Malformed();
  return BigInt(value);
}

function count(value: unknown): number | undefined {
  if (absent(value)) return undefined;
  const number = integer(value);
  if (number < 0n || number >= 2n ** 31n) throw new Malformed();
  return Number(number);
}

function hash(value: unknown): bigint {
  if (!(value instanceof Uint8Array)) return BigInt.asUintN(64, integer(value));
  if (value.length === 0) throw new Malformed();
  return value.slice(-8).reduce((folded, byte) => (folded << 8n) | BigInt(byte), 0n);
}

function token(value: unknown): number {
  return Number(BigInt.asUintN(32, integer(Array.isArray(value) ? value[0] : value)));
}
