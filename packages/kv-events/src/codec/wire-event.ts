/** An engine's hash: an integer of 64 bits, signed or not, or a byte string. */
export type WireHash = bigint | Uint8Array;

/** A run of blocks that became reusable. Fields that a dialect does not have are not sent. */
export interface StoredEvent {
  readonly type: "stored";
  readonly hashes: readonly WireHash[];
  readonly parentHash: WireHash | undefined;
  readonly tokens: Uint32Array;
  readonly blockSize: number;
  readonly adapter: string | undefined;
  /** The number that goes with the adapter's name; without it, one that is made from the name. */
  readonly adapterNumber?: number;
  /** vLLM's dialects carry it where there is no parent only, in the first block's extra keys. */
  readonly cacheSalt: string | undefined;
  /** What each block holds besides tokens, as vLLM's extra keys have it: `[identifier, offset]` pairs. */
  readonly inputs?: readonly (readonly (readonly [string, number])[] | undefined)[];
  /** "GPU" by default. */
  readonly medium?: string;
  /** KV-cache group; 0 by default. */
  readonly group?: number;
  /** "full_attention" by default. */
  readonly specKind?: string;
  /** Tokens of the sliding window. */
  readonly slidingWindow?: number;
  readonly sessionId?: string;
}

/** Blocks that are gone. vLLM's dialects send one event for each. */
export interface RemovedEvent {
  readonly type: "removed";
  readonly hashes: readonly WireHash[];
  /** "GPU" by default. */
  readonly medium?: string;
  /** KV-cache group; 0 by default. */
  readonly group?: number;
}

/** What an engine has to tell, before it is put into a dialect. */
export type WireEvent = StoredEvent | RemovedEvent | { readonly type: "cleared" };
