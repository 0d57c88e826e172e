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
 * and `adapterLoadMs` for each LoRA adapter that has to be loaded before it, with P prefill tokens in the step, A the sum over those tokens of the context each one attends to (itself included),
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
  /** LoRA adapters that requests may run for at once, and that the engine keeps (vLLM `max_loras`); all by default. */
  readonly adapterSlots?: number;
  /** What loading an adapter adds to the step in which its first request begins; 0 by default. */
  readonly adapterLoadMs?: number;
  /** Blocks of CPU memory that take what the KV memory gives up (vLLM's offloading connector, SGLang's HiCache); 0 by default. */
  readonly cpuBlocks?: number;
  /** What one of them takes on its way back, beside the steps; 0 by default. */
  readonly cpuLoadMsPerBlock?: number;
}

/** A prompt whose KV another engine or a store has computed. */
export interface ImportedPrompt {
  /** How many tokens of the prompt, from its first on; the last one of the prompt is computed here in any case. */
  readonly tokens: number;
  /** What every transfer takes, in milliseconds. */
  readonly setupMs: number;
  /** What each token that is not cached here takes on its way, in milliseconds. */
  readonly msPerToken: number;
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
  /**
   * What comes from outside, as with vLLM's connectors (`WAITING_FOR_REMOTE_KVS`): the request gets its blocks when its turn
   * comes, they fill while others compute, and it joins the first step after that. What is cached here is not fetched.
   */
  readonly imported?: ImportedPrompt;
  /** Whether its blocks stay held after an output of full length, for somebody to fetch, until `Engine.release`. */
  readonly pinned?: boolean;
}

export type FinishReason = "length" | "aborted";

/** What became of one request. Times are engine milliseconds on the axis of `Engine.advanceTo`. */
export interface RequestReport {
  readonly id: string;
  readonly promptTokens: number;
  /** Prompt tokens found in the cache, CPU memory included, when the request was first scheduled, and those from outside. */
  readonly cachedTokens: number;
  /** How many of them had come from outside. */
  readonly importedTokens: number;
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

/** What vLLM and SGLang call CPU memory in their events. */
export type CpuMedium = "CPU" | "CPU_PINNED";

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
      /**
       * Where the blocks are now, besides where they were; GPU memory when left out. vLLM says of CPU memory no more than
       * the hashes, without parent or tokens.
       */
      readonly medium?: CpuMedium;
    }
  | { readonly type: "removed"; readonly hashes: readonly EngineHash[]; readonly medium?: CpuMedium }
  | { readonly type: "cleared" };

/** What the engine tells while time advances. Every call happens inside `advanceTo`, `submit`, `abort` or `resetPrefixCache`. */
export interface EngineObserver {
  /** A token was produced. `index` counts from 0. `timeMs` is the end of the step. */
  token?(requestId: string, index: number, token: number, timeMs: number): void;
  finished?(report: RequestReport): void;
  /** What a request wanted from outside is here: so many tokens, 0 when all of them were cached. Comes before its tokens. */
  imported?(requestId: string, tokens: number, timeMs: number): void;
  /** The events of one step, in order. */
  events?(events: readonly KvEvent[], timeMs: number): void;
}

/** Gauges and counters as an engine's metrics page shows them. */
export interface EngineStats {
  readonly running: number;
  /** Those that wait for what comes from outside or from CPU memory included. */
  readonly waiting: number;
  /** Requests whose blocks are filled from outside, or from CPU memory. */
  readonly importing: number;
  /** Requests that are over, and whose blocks are held until they are released. */
  readonly pinned: number;
  /** Share of the KV blocks that requests hold, 0..1. */
  readonly kvUse: number;
  /** Blocks that hold reusable content, held by a request or free. */
  readonly cachedBlocks: number;
  /** Blocks that no request holds, with or without reusable content. */
  readonly freeBlocks: number;
  /** Blocks in CPU memory. */
  readonly cpuBlocks: number;
  readonly steps: number;
  readonly busyMs: number;
  readonly promptTokens: number;
  readonly generatedTokens: number;
  /** Prompt tokens looked up in the prefix cache and found there. */
  readonly prefixQueries: number;
  readonly prefixHits: number;
  /** Prompt tokens that came from outside. */
  readonly importedTokens: number;
  /** Tokens that came back from CPU memory. */
  readonly loadedTokens: number;
  readonly preemptions: number;
  readonly finished: number;
  /** LoRA adapters that had to be loaded. */
  readonly adapterLoads: number;
}

/** The LoRA adapters of the requests that an engine holds, each named once. */
export interface AdapterUse {
  readonly running: readonly string[];
  readonly waiting: readonly string[];
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
   * output is wanted, prompt plus output exceed `maxModelLength` or all blocks, what comes from outside makes no sense, or
   * too many requests are held already
   */
  submit(request: EngineRequest, timeMs: number): void;
  /**
   * Drops a request as a closed connection does. Unknown ids are ignored. A waiting request is reported at once, one
   * that takes part in the running step at the end of that step, whose token is lost.
   */
  abort(requestId: string, timeMs: number): void;
  /**
   * Gives back the blocks of a request that was to be pinned and is over; what is in them stays cached.
   *
   * @returns whether there was such a request
   */
  release(requestId: string, timeMs: number): boolean;
  /** How many tokens of a request's prompt are cached, in CPU memory or not. Looking counts as a use. */
  cachedTokens(request: EngineRequest, timeMs: number): number;
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
  /**
   * From the next step on, steps take `factor` times as long as the parameters say: a GPU that is too hot, or a neighbour on
   * the same machine. 1 is as at first.
   *
   * @throws RangeError when the factor is not above 0
   */
  setSlowdown(factor: number, timeMs: number): void;
  stats(): EngineStats;
  /** What `vllm:lora_requests_info` tells of the moment. */
  adapterUse(): AdapterUse;
}
