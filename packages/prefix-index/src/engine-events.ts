/** What an event says: blocks were stored, blocks were removed, or the whole cache was emptied. */
export const eventKind = { stored: 0, removed: 1, cleared: 2 } as const;

/** What of an event is rare enough to be an object. */
export interface EventDetail {
  /** Name of the LoRA adapter; engines that give only its number are read as `lora-NUMBER`. */
  readonly adapter: string | undefined;
  /** What keeps this chain apart from others of the same tokens. */
  readonly cacheSalt: string | undefined;
  /**
   * What else went into the engine's hash of each block of the event, block by block: identifiers of images and other
   * inputs that are no tokens. Undefined where there is nothing.
   */
  readonly blockKeys: readonly (string | undefined)[] | undefined;
}

/**
 * The KV events of one message of an engine, whatever its dialect, as a structure of arrays that is reused between
 * messages. Entry i is event i; entries at or beyond `count` mean nothing. The arrays are replaced when they grow: read
 * them from the batch, and do not keep them.
 *
 * Hashes are the engine's own, folded to 64 bits and laid out as two words each, low word first. Signed and unsigned
 * integers of the same 64 bits are the same hash; of a byte string the last eight bytes count, big-endian.
 */
export interface EngineEventBatch {
  /** The engine's clock when it published, in Unix seconds; NaN when it does not say. */
  timestampS: number;
  /** Data-parallel rank; -1 when the message does not say. */
  rank: number;
  count: number;
  /** One of `eventKind`. */
  kind: Uint8Array;
  /** The hashes of all events one after the other, two words each. */
  hashes: Uint32Array;
  /** Event i has the hashes from `hashStart[i]` to `hashStart[i + 1]`, counted in hashes. */
  hashStart: Uint32Array;
  /** Two words per event; meaningful where `hasParent` is 1. */
  parent: Uint32Array;
  /** 1 where the event names a parent, 0 where its first block is the first of a prompt. */
  hasParent: Uint8Array;
  /** The tokens of all events one after the other. */
  tokens: Uint32Array;
  /** Event i has the tokens from `tokenStart[i]` to `tokenStart[i + 1]`. */
  tokenStart: Uint32Array;
  /** Tokens per block as the event says; 0 when it does not. */
  blockSize: Uint32Array;
  /** A `Tier`. */
  tier: Uint8Array;
  /** KV-cache group of a hybrid model; -1 when the event does not say. */
  group: Int32Array;
  /**
   * 1 where the event belongs to a kind of attention whose blocks cannot be read as "prefix present" (sliding window,
   * Mamba, chunked local attention), 0 for full attention and where the event does not say.
   */
  partial: Uint8Array;
  /** Undefined for most events. */
  detail: (EventDetail | undefined)[];
}
