import type { Clock } from "@espalier/core";

/** The last numbers of an engine's own metrics. NaN means no signal; it never means zero. */
export interface EngineSignals extends Readonly<SignalValues> {
  /** Which engine's metrics they are; kept when the numbers are forgotten. */
  readonly dialect: EngineDialect | undefined;
  /**
   * Requests of all routers at the target when that scrape began: those that this router knew, and
   * `unreportedRequests`. NaN without a scrape.
   */
  readonly inFlightAtScrape: number;
  /** Milliseconds since the scrape that these numbers came from began; Infinity without any. */
  ageMs(): number;
}

/** Signals with the operations of their owner. */
export interface OwnedSignals extends EngineSignals {
  /**
   * @param sampledMs when the scrape began, on the monotonic clock
   * @param inFlight requests of all routers in flight to the target at that moment, as far as they are known
   */
  accept(dialect: EngineDialect | undefined, values: SignalValues, sampledMs: number, inFlight: number): void;
  forget(): void;
}

export function createEngineSignals(clock: Clock): OwnedSignals {
  let sampledMs = Number.NEGATIVE_INFINITY;
  let lastForeign = Number.NaN;
  const signals = {
    ...unknownSignals(),
    inFlightAtScrape: Number.NaN,
    dialect: undefined as EngineDialect | undefined,
    ageMs: () => clock.nowMs() - sampledMs,
    accept(dialect: EngineDialect | undefined, values: SignalValues, atMs: number, inFlight: number): void {
      Object.assign(signals, values);
      const foreign = values.running + values.waiting - inFlight;
      signals.inFlightAtScrape = inFlight + unreportedRequests(foreign, lastForeign);
      lastForeign = foreign;
      signals.dialect = dialect;
      sampledMs = atMs;
    },
    forget(): void {
      Object.assign(signals, unknownSignals());
      signals.inFlightAtScrape = Number.NaN;
      lastForeign = Number.NaN;
      sampledMs = Number.NEGATIVE_INFINITY;
    },
  };
  return signals;
}

/**
 * Of the requests at an engine beyond those that the routers are known to have there, how many are other routers' that
 * have not reported them yet: those that the scrape before did not show. Other clients' requests last from scrape to
 * scrape, so they count from the second one.
 *
 * @param foreign requests beyond the known ones at this scrape; NaN if the engine does not report its requests
 * @param lastForeign the same of the scrape before; NaN without one, and then all count as other clients'
 */
export function unreportedRequests(foreign: number, lastForeign: number): number {
  const more = foreign - Math.max(0, lastForeign);
  return Math.max(0, more) || 0;
}

export type EngineDialect = "vllm" | "sglang" | "trtllm" | "triton";

/** The numbers of an engine that a metrics page can contain. */
export interface SignalValues {
  /** Requests in the running batch. */
  running: number;
  /** Requests in the engine's queue. */
  waiting: number;
  /** Share of the KV cache in use, 0 to 1. */
  kvUse: number;
  /** Tokens per KV block. */
  blockSize: number;
  /** KV blocks of the target that can hold anything. */
  blockCount: number;
  /** Prompt tokens since the engine started. */
  promptTokensTotal: number;
  /** Generated tokens since the engine started. */
  generationTokensTotal: number;
  /** Prompt tokens looked up in the prefix cache since the engine started. */
  prefixQueries: number;
  /** Those found there. */
  prefixHits: number;
  /** Schedulers that are awake: 0 while the engine sleeps, its memory released. */
  awake: number;
}

type SignalField = keyof SignalValues;

/** The location of one number on a metrics page. */
export interface SignalSource {
  readonly dialect: EngineDialect;
  readonly name: string;
  readonly field: SignalField;
  /** Only samples with this label value count; an absent label has the value "". */
  readonly where?: readonly [label: string, value: string];
  /** The number is this label's value: the metric is an info gauge. */
  readonly fromLabel?: string;
  /** Every series has the number of the whole engine, so they are not added up. */
  readonly isWhole?: true;
  /** Of the number, so many of each rank hold nothing. */
  readonly reserved?: number;
}

type Row = readonly [field: SignalField, name: string];

const rows = (dialect: EngineDialect, prefix: string, table: readonly Row[]): SignalSource[] =>
  table.map(([field, name]) => ({ dialect, field, name: prefix + name }));

const tritonRequests = "nv_trt_llm_request_metrics";
const tritonBlocks = "nv_trt_llm_kv_cache_block_metrics";

/**
 * Every known metric. Of two for the same number, the first one in this list counts.
 *
 * vLLM: `vllm/v1/metrics/loggers.py`, 0.23 and 0.32; the `gpu_` names are those before 0.10. SGLang:
 * `srt/metrics/collector.py`; `cache_config_info` before 0.5.11, the plain gauges since. TensorRT-LLM: trtllm-serve's
 * collector. Triton: its TensorRT-LLM backend's metrics, and the server's own queue count for other backends.
 */
export const signalSources: readonly SignalSource[] = [
  ...rows("vllm", "vllm:", [
    ["running", "num_requests_running"],
    ["waiting", "num_requests_waiting"],
    ["kvUse", "kv_cache_usage_perc"],
    ["kvUse", "gpu_cache_usage_perc"],
    ["promptTokensTotal", "prompt_tokens_total"],
    ["generationTokensTotal", "generation_tokens_total"],
    ["prefixQueries", "prefix_cache_queries_total"],
    ["prefixQueries", "gpu_prefix_cache_queries_total"],
    ["prefixHits", "prefix_cache_hits_total"],
    ["prefixHits", "gpu_prefix_cache_hits_total"],
  ]),
  { dialect: "vllm", name: "vllm:engine_sleep_state", field: "awake", where: ["sleep_state", "awake"] },
  { dialect: "vllm", name: "vllm:cache_config_info", field: "blockSize", fromLabel: "block_size" },
  // With data parallelism each rank's series has the sum over all ranks: 128 twice for two ranks of 64 (vLLM 0.32).
  // The first block of each rank is its null block (`vllm/v1/core/block_pool.py`).
  {
    ...{ dialect: "vllm", name: "vllm:cache_config_info", field: "blockCount", fromLabel: "num_gpu_blocks" },
    ...{ isWhole: true, reserved: 1 },
  },
  // With --enable-priority-scheduling these two have the total as priority="", and its parts as priority="0" and so on.
  { dialect: "sglang", name: "sglang:num_running_reqs", field: "running", where: ["priority", ""] },
  { dialect: "sglang", name: "sglang:num_queue_reqs", field: "waiting", where: ["priority", ""] },
  // The counters have each request once: under its priority, or as priority="".
  ...rows("sglang", "sglang:", [
    ["kvUse", "token_usage"],
    ["blockSize", "page_size"],
    ["blockCount", "num_pages"],
    ["promptTokensTotal", "prompt_tokens_total"],
    ["generationTokensTotal", "generation_tokens_total"],
    ["prefixQueries", "prompt_tokens_total"],
    ["prefixHits", "cached_tokens_total"],
  ]),
  { dialect: "sglang", name: "sglang:cache_config_info", field: "blockSize", fromLabel: "page_size" },
  { dialect: "sglang", name: "sglang:cache_config_info", field: "blockCount", fromLabel: "num_pages" },
  ...rows("trtllm", "trtllm_", [
    ["running", "num_requests_running"],
    ["waiting", "num_requests_waiting"],
    ["kvUse", "kv_cache_utilization"],
    ["blockSize", "kv_cache_tokens_per_block"],
    ["blockCount", "kv_cache_max_blocks"],
  ]),
  { dialect: "triton", name: tritonRequests, field: "running", where: ["request_type", "scheduled"] },
  { dialect: "triton", name: tritonRequests, field: "waiting", where: ["request_type", "waiting"] },
  { dialect: "triton", name: tritonBlocks, field: "kvUse", where: ["kv_cache_block_type", "fraction"] },
  { dialect: "triton", name: tritonBlocks, field: "blockSize", where: ["kv_cache_block_type", "tokens_per"] },
  { dialect: "triton", name: tritonBlocks, field: "blockCount", where: ["kv_cache_block_type", "max"] },
  { dialect: "triton", name: "nv_inference_pending_request_count", field: "waiting" },
];

export function unknownSignals(): SignalValues {
  return {
    running: Number.NaN,
    waiting: Number.NaN,
    kvUse: Number.NaN,
    blockSize: Number.NaN,
    blockCount: Number.NaN,
    promptTokensTotal: Number.NaN,
    generationTokensTotal: Number.NaN,
    prefixQueries: Number.NaN,
    prefixHits: Number.NaN,
    awake: Number.NaN,
  };
}
