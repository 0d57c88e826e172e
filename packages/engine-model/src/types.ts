/** How an engine keeps its prefix cache: vLLM's hashed blocks with a free queue, or SGLang's radix tree of pages. */
export type CacheFlavour = "vllm" | "sglang";

/**
 * Where vLLM puts the blocks that a request gives back. `uncached-first` (since 0.24): blocks without reusable
 * content go to the head of the free queue and are taken next, the others to its tail. `by-age` (up to 0.23): all
 * go to the tail.
 */
export type FreeOrder = "uncached-first" | "by-age";

/**
 * Everything the model needs to know about one engine. Times are milliseconds of engine time.
 *
 * A step takes
 *
 * `stepBaseMs + prefillMsPerToken * P + attentionMsPerTokenPair * A + decodeMsPerSequence * D + decodeMsPerContextToken * C`
 * with P prefill tokens in the step, A the sum over those tokens of the context each one attends to (itself included),
 * D sequences that decode, and C the tokens of context of those sequences (the one they compute included).
 */
export interface EngineParameters {
  readonly flavour: CacheFlavour;
  /** Tokens per KV block (vLLM) or page (SGLang). */
  readonly blockSize: number;
  /** Usable KV blocks. vLLM keeps one of its `num_gpu_blocks` for itself: that one is not counted here. */
  readonly blockCount: number;
  /** Token budget of one step (vLLM `max_num_batched_tokens`, SGLang `chunked_prefill_size`). */
  readonly maxBatchedTokens: number;
  /** Sequences that may run at once (vLLM `max_num_seqs`). */
  readonly maxRunning: number;
  /** Longest prompt plus output, in tokens. */
  readonly maxModelLength: number;
  readonly stepBaseMs: number;
  readonly prefillMsPerToken: number;
  readonly attentionMsPerTokenPair: number;
  readonly decodeMsPerSequence: number;
  readonly decodeMsPerContextToken: number;
  readonly prefixCaching: boolean;
  /** Of the vLLM flavour only; `uncached-first` by default. */
  readonly freeOrder?: FreeOrder;
}

export interface EngineRequest {
  readonly id: string;
  readonly promptTokens: Uint32Array;
  /** Tokens that will be generated unless the request is aborted; at least 1. */
  readonly outputTokens: number;
  /** The generated token at position `index` (0 is the first). Must be pure. */
  readonly outputToken: (index: number) => number;
  /** Requests with different salts never share blocks. */
  readonly cacheSalt?: string;
  /** Requests for different adapters never share blocks. */
  readonly adapter?: string;
  /** Lower goes first, as in vLLM; equal priorities go in order of arrival. 0 by default. */
  readonly priority?: number;
}

export type FinishReason = "length" | "aborted";

/** What became of one request. Times are engine milliseconds on the axis of `Engine.advanceTo`. */
export interface RequestReport {
  readonly id: string;
  readonly promptTokens: number;
  /** Prompt tokens found in the cache when the request was first scheduled. */
  readonly cachedTokens: number;
  readonly outputTokens: number;
  readonly arrivedMs: number;
  /** When it was first scheduled. */
  readonly scheduledMs: number;
  /** End of the step that produced the first token; NaN when aborted before. */
  readonly firstTokenMs: number;
  readonly finishedMs: number;
  /** How often it lost its blocks to others and had to start over. */
  readonly preemptions: number;
  readonly finishReason: FinishReason;
}

/** The engine's own name for a block. 64 bits, different in every engine for the same content. */
export type EngineHash = bigint;

/** KV events in the order the engine makes them; one batch per step that had any. */
export type KvEvent =
  | {
      readonly type: "stored";
      readonly hashes: readonly EngineHash[];
      readonly parentHash: EngineHash | undefined;
      /** `hashes.length * blockSize` tokens. */
      readonly tokens: Uint32Array;
      readonly blockSize: number;
      readonly adapter: string | undefined;
      /** vLLM: set on events whose first block is the first of its chain. SGLang: set on every event of a salted chain. */
      readonly cacheSalt: string | undefined;
    }
  | { readonly type: "removed"; readonly hashes: readonly EngineHash[] }
  | { readonly type: "cleared" };

/** What the engine tells while time advances. Every call happens inside `advanceTo`, `submit`, `abort` or `resetPrefixCache`. */
export interface EngineObserver {
  /** A token was produced. `index` counts from 0. `timeMs` is the end of the step. */
  token?(requestId: string, index: number, token: number, timeMs: number): void;
  finished?(report: RequestReport): void;
  /** The events of one step, in order. */
  events?(events: readonly KvEvent[], timeMs: number): void;
}

/** Gauges and counters as an engine's metrics page shows them. */
export interface EngineStats {
  readonly running: number;
  readonly waiting: number;
  /** Share of the KV blocks that running requests hold, 0..1. */
  readonly kvUse: number;
  /** Blocks that hold reusable content, held by a request or free. */
  readonly cachedBlocks: number;
  /** Blocks that no running request holds, with or without reusable content. */
  readonly freeBlocks: number;
  readonly steps: number;
  readonly busyMs: number;
  readonly promptTokens: number;
  readonly generatedTokens: number;
  /** Prompt tokens looked up in the prefix cache and found there. */
  readonly prefixQueries: number;
  readonly prefixHits: number;
  readonly preemptions: number;
  readonly finished: number;
}

/** One engine in virtual time. It does nothing by itself: the caller advances it. */
export interface Engine {
  readonly parameters: EngineParameters;
  /**
   * Hands in a request that arrives at `timeMs`, after running every step that ends before. An idle engine starts its
   * next step when time is advanced to `timeMs`, so that requests handed in at one moment share it. An observer may
   * hand in requests from within its calls, at the time of the call.
   *
   * @throws RangeError when `timeMs` lies before the time already reached, the id is in use, the prompt is empty, no
   * output is wanted, prompt plus output exceed `maxModelLength` or all blocks, or too many requests are held already
   */
  submit(request: EngineRequest, timeMs: number): void;
  /**
   * Drops a request as a closed connection does. Unknown ids are ignored. A waiting request is reported at once, one
   * that takes part in the running step at the end of that step, whose token is lost.
   */
  abort(requestId: string, timeMs: number): void;
  /** Runs every step that ends at or before `timeMs`, and starts those that can begin by then. */
  advanceTo(timeMs: number): void;
  /** When something happens next: the running step ends, or an idle engine starts on what waits. Undefined when idle. */
  nextEventMs(): number | undefined;
  /**
   * Forgets all reusable content, as vLLM's `/reset_prefix_cache` and SGLang's `/flush_cache` do. vLLM announces it with
   * the events of its next step, SGLang at once. SGLang refuses while requests wait, too.
   *
   * @returns false when running requests prevent it
   */
  resetPrefixCache(timeMs: number): boolean;
  stats(): EngineStats;
}
