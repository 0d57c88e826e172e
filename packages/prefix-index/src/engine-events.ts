/** The kind of an event: blocks were stored, blocks were removed, or the whole cache was emptied. */
export const eventKind = { stored: 0, removed: 1, cleared: 2 } as const;

/**
 * Which blocks of a prefix the layers of a cache group need to continue after it. `full`: all. `window`: those within a
 * sliding window before its end. `chunk`: those since the last multiple of the chunk size. `state`: the state at its
 * end (Mamba, linear attention). `other`: unknown.
 */
export const attention = { full: 0, window: 1, chunk: 2, state: 3, other: 4 } as const;

/** The rare parts of an event, kept as an object. */
export interface EventDetail {
  /** Name of the LoRA adapter. If an engine gives only its number, the name is `lora-NUMBER`. */
  readonly adapter: string | undefined;
  /** Separates this chain from others with the same tokens. */
  readonly cacheSalt: string | undefined;
  /**
   * Further input to the engine's hash of each block, block by block: identifiers of images and other non-token inputs.
   * Undefined if there are none.
   */
  readonly blockKeys: readonly (string | undefined)[] | undefined;
}

/**
 * The KV events of one message of an engine, in any dialect: a structure of arrays that is reused between messages.
 * Entry i is event i; entries at or beyond `count` are undefined. Growing replaces the arrays: read them from the
 * batch, and do not keep them.
 *
 * Hashes are the engine's own, folded to 64 bits, as two words each, low word first. Signed and unsigned integers of
 * the same 64 bits are the same hash. Of a byte string the last eight bytes count, big-endian.
 */
export interface EngineEventBatch {
  /** The engine's clock at publication, in Unix seconds; NaN if not given. */
  timestampS: number;
  /** Data-parallel rank; -1 if not given. */
  rank: number;
  count: number;
  /** One of `eventKind`. */
  kind: Uint8Array;
  /** The hashes of all events in sequence, two words each. */
  hashes: Uint32Array;
  /** Event i has the hashes from `hashStart[i]` to `hashStart[i + 1]`, counted in hashes. */
  hashStart: Uint32Array;
  /** Two words per event; defined if `hasParent` is 1. */
  parent: Uint32Array;
  /** 1 if the event names a parent, 0 if its first block is the first of a prompt. */
  hasParent: Uint8Array;
  /** The tokens of all events in sequence. */
  tokens: Uint32Array;
  /** Event i has the tokens from `tokenStart[i]` to `tokenStart[i + 1]`. */
  tokenStart: Uint32Array;
  /** Tokens per block as given by the event; 0 if not given. */
  blockSize: Uint32Array;
  /** A `Tier`. */
  tier: Uint8Array;
  /** KV-cache group of a hybrid model; -1 if not given. */
  group: Int32Array;
  /** One of `attention` for stored events; `full` if not given. */
  attention: Uint8Array;
  /** Tokens of the group's sliding window; 0 if not given. */
  window: Uint32Array;
  /** Undefined for most events. */
  detail: (EventDetail | undefined)[];
}
