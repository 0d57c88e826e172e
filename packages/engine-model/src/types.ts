import type { KvHold, RemoteSource, TokenRange } from "./kv-pull.ts";

/** How an engine keeps its prefix cache: vLLM's hashed blocks with a free queue, or SGLang's radix tree of pages. */
export type CacheFlavour = "vllm" | "sglang";

/**
 * Where vLLM puts the blocks that a request returns. `uncached-first` (since 0.24): blocks without reusable content go
 * to the head of the free queue and are taken next, the others to its tail. `by-age` (up to 0.23): all go to the tail.
 */
export type FreeOrder = "uncached-first" | "by-age";

/**
 * What vLLM's offloading connector copies to CPU memory as soon as it is computed: prompts, or with `offload_prompt_only`
 * off also outputs, these when their request ends.
 */
type OffloadWrites = "prompt" | "all";

/**
 * When SGLang's HiCache copies pages to host memory (`hicache_write_policy`): when they are computed, when a second request
 * has used them, or before the GPU evicts them.
 */
export type HostWrites = "write_through" | "write_through_selective" | "write_back";

/** What goes to CPU memory, and when. */
export type CpuWrites = OffloadWrites | HostWrites;

/** A cache group of a hybrid model beside full attention: a sliding window, or states (Mamba, linear attention). */
export type PartialGroup = { readonly kind: "window"; readonly tokens: number } | { readonly kind: "state" };

/**
 * Where a hybrid model's windows and states are kept. `replay`: where a prompt that is sent again would resume, and where
 * prompts part (vLLM's default, `prefix_cache_retention_interval` of 0). `dense`: everywhere.
 */
export type Retention = "replay" | "dense";

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
  /** Usable KV blocks. vLLM reserves one of its `num_gpu_blocks`, which is not counted here. */
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
  /** Tokens of the sliding window of a hybrid model, in vLLM's flavour without CPU memory; 0 by default, for none. */
  readonly windowTokens?: number;
  /** Groups of states (Mamba, linear attention) of a hybrid model, under the same conditions; 0 by default. */
  readonly stateGroups?: number;
  /** `replay` by default. */
  readonly retention?: Retention;
  /** LoRA adapters that are loaded at once (vLLM `max_loras`); unbounded by default. */
  readonly adapterSlots?: number;
  /** What an adapter load adds to the step in which its first request begins; 0 by default. */
  readonly adapterLoadMs?: number;
  /** Blocks of CPU memory (vLLM's offloading connector, SGLang's HiCache); 0 by default. */
  readonly cpuBlocks?: number;
  /** Transfer time of one such block back to the GPU, which overlaps with steps; 0 by default. */
  readonly cpuLoadMsPerBlock?: number;
  /** What goes to CPU memory: in vLLM's flavour `prompt` (the default) or `all`, in SGLang's `write_through` (the default), `write_through_selective` or `write_back`. */
  readonly cpuWrites?: CpuWrites;
  /** Blocks that vLLM offloads, finds and loads together; 1 by default. */
  readonly cpuChunkBlocks?: number;
}

/** A prompt whose KV another engine or a store has computed. */
export interface ImportedPrompt {
  /** Number of the prompt's first tokens. The last one of the prompt is always computed here. */
  readonly tokens: number;
  /** Fixed time per transfer, in milliseconds. */
  readonly setupMs: number;
  /** Time per token that is not cached here, in milliseconds. */
  readonly msPerToken: number;
}

/** Placeholder tokens of an image, audio or video in a prompt. */
export interface MediaRange {
  /** The engine's name of its content, such as a hash of the file. */
  readonly identifier: string;
  /** The first placeholder, counted from the start of the prompt. */
  readonly start: number;
  readonly length: number;
}

export interface EngineRequest {
  readonly id: string;
  readonly promptTokens: Uint32Array;
  /** In order of place; none by default. Prompts with other content at a place share no blocks from there on. */
  readonly media?: readonly MediaRange[];
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
   * Imported KV, as with vLLM's connectors (`WAITING_FOR_REMOTE_KVS`). The request gets its blocks when its turn comes,
   * they fill while others compute, and it joins the first step after that. Cached tokens are not fetched.
   */
  readonly imported?: ImportedPrompt;
  /**
   * Another engine's CPU memory. When its turn comes, the request pulls from there what this engine has in neither memory,
   * and waits while others overtake it. The blocks go to this engine's CPU memory, and from there to the GPU. What does not
   * arrive is computed. Not with `imported`; only in vLLM's flavour, with CPU memory.
   */
  readonly remote?: RemoteSource;
  /** Whether its blocks stay pinned after the full output, for another engine to fetch, until `Engine.release`. */
  readonly pinned?: boolean;
}

export type FinishReason = "length" | "aborted";

/** The outcome of one request. Times are engine milliseconds on the axis of `Engine.advanceTo`. */
export interface RequestReport {
  readonly id: string;
  readonly promptTokens: number;
  /** Prompt tokens found in the cache when the request was first scheduled, CPU memory and imports included. */
  readonly cachedTokens: number;
  /** How many of them were imported. */
  readonly importedTokens: number;
  /** Prompt tokens that were pulled from another engine's CPU memory. */
  readonly pulledTokens: number;
  readonly outputTokens: number;
  readonly arrivedMs: number;
  /** When it was first scheduled. */
  readonly scheduledMs: number;
  /** End of the step that produced the first token; NaN when aborted before. */
  readonly firstTokenMs: number;
  readonly finishedMs: number;
  /** How often it was preempted and started over. */
  readonly preemptions: number;
  readonly finishReason: FinishReason;
}

/** The engine's own hash of a block. 64 bits, different in every engine for the same content. */
export type EngineHash = bigint;

/** The name of CPU memory in vLLM's and SGLang's events. */
export type CpuMedium = "CPU" | "CPU_PINNED";

/** Extra keys of one block for images and the like, as vLLM has them; undefined for none. */
export type BlockInputs = readonly (readonly [identifier: string, offset: number])[] | undefined;

/** KV events in the order the engine makes them; one batch per step that had any. */
export type KvEvent =
  | {
      readonly type: "stored";
      readonly hashes: readonly EngineHash[];
      readonly parentHash: EngineHash | undefined;
      /** `hashes.length * blockSize` tokens, or more in a group of a hybrid model. */
      readonly tokens: Uint32Array;
      readonly blockSize: number;
      readonly adapter: string | undefined;
      /** vLLM: set on events whose first block is the first of its chain. SGLang: set on every event of a salted chain. */
      readonly cacheSalt: string | undefined;
      /** Per block, what it contains of images and the like: the identifier, and where that begins relative to the block. */
      readonly inputs?: readonly BlockInputs[];
      /**
       * Where the blocks are stored now, in addition to where they were; GPU memory when absent. For CPU memory vLLM gives only
       * the hashes, without parent or tokens.
       */
      readonly medium?: CpuMedium;
      /** Of a hybrid model: the cache group, and what it is, in vLLM's words. It may have fewer hashes than its tokens fill. */
      readonly group?: number;
      readonly specKind?: string;
      readonly slidingWindow?: number;
    }
  | {
      readonly type: "removed";
      readonly hashes: readonly EngineHash[];
      readonly medium?: CpuMedium;
      readonly group?: number;
    }
  | { readonly type: "cleared" };

/** Receives the results of an engine while time advances. Every call happens inside `advanceTo`, `submit`, `abort` or `resetPrefixCache`. */
export interface EngineObserver {
  /** A token was produced. `index` counts from 0. `timeMs` is the end of the step. */
  token?(requestId: string, index: number, token: number, timeMs: number): void;
  finished?(report: RequestReport): void;
  /** The imported KV of a request has arrived: `tokens` tokens, 0 when all were cached. Precedes its output tokens. */
  imported?(requestId: string, tokens: number, timeMs: number): void;
  /** The events of one step, in order. */
  events?(events: readonly KvEvent[], timeMs: number): void;
}

/** Gauges and counters as an engine's metrics page shows them. */
export interface EngineStats {
  readonly running: number;
  /** Includes those that wait for an import, for another engine or for CPU memory. */
  readonly waiting: number;
  /** Requests whose blocks are being filled by an import or from CPU memory. */
  readonly importing: number;
  /** Requests that pull from another engine. They hold no blocks of KV memory. */
  readonly pulling: number;
  /** Finished requests whose blocks stay pinned until they are released. */
  readonly pinned: number;
  /** Share of the KV blocks in use by requests, 0..1. */
  readonly kvUse: number;
  /** Blocks with reusable content, in use or free. */
  readonly cachedBlocks: number;
  /** Blocks that no request uses, with or without reusable content. */
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
  /** Imported prompt tokens. */
  readonly importedTokens: number;
  /** Tokens that came back from CPU memory. */
  readonly loadedTokens: number;
  /** Tokens that came from other engines' CPU memory, and requests that got some. */
  readonly pulledTokens: number;
  readonly pulls: number;
  /** Requests that were to pull blocks and got none. */
  readonly emptyPulls: number;
  readonly preemptions: number;
  readonly finished: number;
  /** LoRA adapter loads. */
  readonly adapterLoads: number;
}

/** The distinct LoRA adapters of running and of waiting requests. */
export interface AdapterUse {
  readonly running: readonly string[];
  readonly waiting: readonly string[];
}

/** One engine in virtual time. It never advances by itself: the caller advances it. */
export interface Engine {
  readonly parameters: EngineParameters;
  /**
   * Submits a request that arrives at `timeMs`, after running every step that ends before. An idle engine starts its
   * next step when time is advanced to `timeMs`, so that requests of one moment share it. An observer may submit requests
   * from within its calls, at the time of the call.
   *
   * @throws RangeError when `timeMs` lies before the time already reached, the id is in use, the prompt is empty, no
   * output is wanted, prompt plus output exceed `maxModelLength` or all blocks, the import or the remote source is invalid,
   * or the engine has too many requests already
   */
  submit(request: EngineRequest, timeMs: number): void;
  /**
   * Aborts a request as a closed connection does. Unknown ids are ignored. A waiting request is reported at once; one in the
   * running step is reported at the end of that step, and that step's token is lost.
   */
  abort(requestId: string, timeMs: number): void;
  /**
   * Frees the blocks of a finished, pinned request; their content stays cached.
   *
   * @returns whether there was such a request
   */
  release(requestId: string, timeMs: number): boolean;
  /** How many tokens of a request's prompt are cached, CPU memory included. A lookup counts as a use. */
  cachedTokens(request: EngineRequest, timeMs: number): number;
  /**
   * Keeps a part of a prompt in CPU memory for another engine: what there is of it from the beginning of `range` on.
   *
   * @returns undefined when that is nothing
   */
  hold(request: EngineRequest, range: TokenRange, timeMs: number): KvHold | undefined;
  /** Runs every step that ends at or before `timeMs`, and starts those that can begin by then. */
  advanceTo(timeMs: number): void;
  /** The next event: the running step ends, or an idle engine starts a step. Undefined without either. */
  nextEventMs(): number | undefined;
  /**
   * Clears all reusable content, as vLLM's `/reset_prefix_cache` and SGLang's `/flush_cache` do. vLLM announces it with
   * the events of its next step, SGLang at once. SGLang refuses while requests wait, too.
   *
   * @returns false when running requests prevent it
   */
  resetPrefixCache(timeMs: number): boolean;
  /**
   * Pauses the scheduler, or lets it go on. Requests are accepted meanwhile. The step that runs ends; none begins after it.
   */
  pause(isPaused: boolean, timeMs: number): void;
  /**
   * From the next step on, steps take `factor` times as long as the parameters say: a GPU that throttles, or a noisy
   * neighbour. 1 is the initial speed.
   *
   * @throws RangeError when the factor is not above 0
   */
  setSlowdown(factor: number, timeMs: number): void;
  stats(): EngineStats;
  /** The current content of `vllm:lora_requests_info`. */
  adapterUse(): AdapterUse;
}
