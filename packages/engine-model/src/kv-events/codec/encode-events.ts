import { fnv1a } from "@espalier/core";
import { Encoder } from "@msgpack/msgpack";

/**
 * How events are encoded on the wire.
 *
 * - `vllm-0.23`: arrays, the tag first, absent fields nil; one hash per removal
 * - `vllm-0.32`: maps without what has its default
 * - `sglang-0.5.23`: maps, signed hashes, the salt in a field of its own, many hashes per removal
 * - `sglang-array`: the same fields as arrays, as SGLang had them before, without the salt
 * - `trtllm`: arrays of vLLM's first seven fields, many hashes per removal
 */
export const eventDialects = ["vllm-0.23", "vllm-0.32", "sglang-0.5.23", "sglang-array", "trtllm"] as const;

export type EventDialect = (typeof eventDialects)[number];

/** Whether an engine of this dialect repeats the topic in replayed messages (vLLM does since 0.26). */
export function replayCarriesTopic(dialect: EventDialect): boolean {
  return dialect === "vllm-0.32" || dialect === "sglang-0.5.23";
}

/** An engine's hash: an integer of 64 bits, signed or not, or a byte string. */
export type WireHash = bigint | Uint8Array;

/** An event before it is encoded in a dialect. */
export type WireEvent = StoredEvent | RemovedEvent | { readonly type: "cleared" };

/** A run of blocks that became reusable. Fields that a dialect lacks are not sent. */
export interface StoredEvent {
  readonly type: "stored";
  readonly hashes: readonly WireHash[];
  readonly parentHash: WireHash | undefined;
  readonly tokens: Uint32Array;
  readonly blockSize: number;
  readonly adapter: string | undefined;
  /** The adapter's number; by default it is derived from the name. */
  readonly adapterNumber?: number;
  /** vLLM's dialects send it only without a parent, in the first block's extra keys. */
  readonly cacheSalt: string | undefined;
  /** Other inputs of each block besides tokens, as in vLLM's extra keys: `[identifier, offset]` pairs. */
  readonly inputs?: readonly (readonly (readonly [string, number])[] | undefined)[];
  /** "GPU" by default. */
  readonly medium?: string;
  /** KV-cache group; 0 by default. */
  readonly group?: number;
  /** "full_attention" by default. */
  readonly specKind?: string;
  /** Size of the sliding window, in tokens. */
  readonly slidingWindow?: number;
  readonly sessionId?: string;
}

/** Removed blocks. vLLM's dialects send one event for each. */
export interface RemovedEvent {
  readonly type: "removed";
  readonly hashes: readonly WireHash[];
  /** "GPU" by default. */
  readonly medium?: string;
  /** KV-cache group; 0 by default. */
  readonly group?: number;
}

export interface EncodeOptions {
  /** The engine's clock, in Unix seconds. */
  readonly timestampS: number;
  /** Data-parallel rank; undefined is sent as nil. */
  readonly rank: number | undefined;
  /** `bytes` sends integer hashes as byte strings of 32 bytes; the last eight bytes are the integer. */
  readonly hashes?: "integer" | "bytes";
  /** `map` names the parts of the message; `array` gives them by position. */
  readonly envelope?: "array" | "map";
}

const digestBytes = 32;

/**
 * Encodes one message as an engine of the given dialect sends it.
 *
 * @returns the payload, which shares no memory
 */
export function encodeEventMessage(
  events: readonly WireEvent[],
  dialect: EventDialect,
  options: EncodeOptions,
): Uint8Array {
  const encoding = encodings[dialect];
  const hash = (value: WireHash): WireHash | number =>
    encodedHash(value, encoding.signed, options.hashes === "bytes" ? "bytes" : "integer");
  const encoder = new Encoder({ useBigInt64: true, ignoreUndefined: true });
  const encoded = encoder.encode(events.flatMap((event) => encoding.events(event, hash)));
  const rank = encoder.encode(options.rank ?? null);
  const timestamp = new DataView(new ArrayBuffer(9));
  timestamp.setUint8(0, float64Head);
  timestamp.setFloat64(1, options.timestampS);
  const parts = [new Uint8Array(timestamp.buffer), encoded, rank];
  if (options.envelope !== "map") return joined([Uint8Array.of(arrayOfThreeHead), ...parts]);
  const named = ["ts", "events", "data_parallel_rank"].flatMap((name, at) => [encoder.encode(name), parts[at]!]);
  return joined([Uint8Array.of(mapOfThreeHead), ...named]);
}

// The library would send an integral time as an integer, which engines never do.
const float64Head = 0xcb;
const arrayOfThreeHead = 0x93;
const mapOfThreeHead = 0x83;

type EncodeHash = (value: WireHash) => WireHash | number;

interface Encoding {
  readonly signed: boolean;
  readonly events: (event: WireEvent, hash: EncodeHash) => readonly unknown[];
}

const encodings: Readonly<Record<EventDialect, Encoding>> = {
  "vllm-0.23": {
    signed: false,
    events: (event, hash) => {
      if (event.type === "cleared") return [["AllBlocksCleared"]];
      if (event.type === "removed") return eachRemoved(event, hash, (one) => Object.values(one));
      const { session_id: _, ...fields } = vllmStored(event, hash);
      return [Object.values(fields).map((value) => value ?? null)];
    },
  },
  "vllm-0.32": {
    signed: false,
    events: (event, hash) => {
      if (event.type === "cleared") return [{ type: "AllBlocksCleared" }];
      if (event.type === "removed") return eachRemoved(event, hash, (one) => one);
      return [vllmStored(event, hash)];
    },
  },
  "sglang-0.5.23": {
    signed: true,
    events: (event, hash) => {
      if (event.type === "cleared") return [{ type: "AllBlocksCleared" }];
      if (event.type === "removed") return [baseRemoved(event, hash)];
      const { cacheSalt, sessionId } = event;
      return [{ ...baseStored(event, hash), cache_salt: cacheSalt, session_id: sessionId }];
    },
  },
  "sglang-array": { signed: true, events: baseArrays },
  trtllm: { signed: false, events: baseArrays },
};

function baseArrays(event: WireEvent, hash: EncodeHash): readonly unknown[] {
  if (event.type === "cleared") return [["AllBlocksCleared"]];
  return [Object.values(event.type === "removed" ? baseRemoved(event, hash) : baseStored(event, hash))];
}

/** The fields that all dialects share, in wire order. */
function baseStored(event: StoredEvent, hash: EncodeHash) {
  return {
    type: "BlockStored",
    block_hashes: event.hashes.map(hash),
    parent_block_hash: event.parentHash === undefined ? null : hash(event.parentHash),
    token_ids: Array.from(event.tokens),
    block_size: event.blockSize,
    lora_id: event.adapter === undefined ? null : (event.adapterNumber ?? adapterNumberOf(event.adapter)),
    medium: event.medium ?? "GPU",
  };
}

function baseRemoved(event: RemovedEvent, hash: EncodeHash) {
  return { type: "BlockRemoved", block_hashes: event.hashes.map(hash), medium: event.medium ?? "GPU" };
}

/** A map leaves out undefined fields. */
function vllmStored(event: StoredEvent, hash: EncodeHash) {
  return {
    ...baseStored(event, hash),
    lora_name: event.adapter ?? null,
    extra_keys: event.hashes.length > 0 ? vllmExtraKeys(event) : undefined,
    group_idx: event.group ?? 0,
    kv_cache_spec_kind: event.specKind ?? "full_attention",
    kv_cache_spec_sliding_window: event.slidingWindow,
    session_id: event.sessionId,
  };
}

function eachRemoved(
  event: RemovedEvent,
  hash: EncodeHash,
  finish: (one: Readonly<Record<string, unknown>>) => unknown,
): readonly unknown[] {
  const { hashes, group = 0 } = event;
  return hashes.map((one) => finish({ ...baseRemoved({ ...event, hashes: [one] }, hash), group_idx: group }));
}

/** Per block: the adapter, other inputs, and the salt in the first block of a prompt. */
function vllmExtraKeys({ hashes, adapter, inputs, parentHash, cacheSalt }: StoredEvent): readonly unknown[] {
  return hashes.map((_, block) => {
    const keys: unknown[] = adapter === undefined ? [] : [adapter];
    keys.push(...(inputs?.[block] ?? []));
    if (block === 0 && parentHash === undefined && cacheSalt !== undefined) keys.push(cacheSalt);
    return keys.length > 0 ? keys : null;
  });
}

function encodedHash(value: WireHash, signed: boolean, form: "integer" | "bytes"): WireHash | number {
  if (typeof value !== "bigint") return value;
  if (form === "bytes") return digestOf(value);
  const integer = signed ? BigInt.asIntN(64, value) : BigInt.asUintN(64, value);
  // Engines send every integer in as few bytes as possible; the library does so only for numbers.
  return integer < 2n ** 32n && integer >= -(2n ** 31n) ? Number(integer) : integer;
}

function digestOf(value: bigint): Uint8Array {
  const bytes = new DataView(new ArrayBuffer(digestBytes));
  for (let at = 0; at < digestBytes; at += 8) bytes.setBigUint64(at, BigInt.asUintN(64, value));
  return new Uint8Array(bytes.buffer);
}

/** A positive number, the same in every process (32-bit FNV-1a of the UTF-16 code units, without the sign bit). */
function adapterNumberOf(name: string): number {
  return fnv1a(name) & 0x7fff_ffff || 1;
}

function joined(parts: readonly Uint8Array[]): Uint8Array {
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}
