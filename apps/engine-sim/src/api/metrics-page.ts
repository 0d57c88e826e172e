import type { Histogram } from "@espalier/core";
import type { SimulatedEngine } from "../engine/simulated-engine.ts";

/** The sources of a metrics page's values. */
export interface MetricsSource {
  readonly engine: SimulatedEngine;
  readonly model: string;
  /** Whether it reports no running and no waiting requests. */
  readonly pretendsIdle: boolean;
  /** LoRA adapters in the engine. */
  readonly adapterCount: number;
  /** Data-parallel rank. */
  readonly rank: number;
  /** Unix seconds. */
  readonly nowS: number;
  /** Bytes of KV per token; only of engines that pull from others. */
  readonly pulledBytesPerToken: number | undefined;
}

/** The metrics page of vLLM 0.32, as far as a router reads it. Times are engine time. */
export function vllmMetrics(source: MetricsSource): string {
  const { engine, model, pretendsIdle, adapterCount, rank, nowS, pulledBytesPerToken } = source;
  const { parameters, tallies } = engine;
  const stats = engine.stats();
  const page = createExposition({ engine: String(rank), model_name: model });
  const load = (value: number): number => (pretendsIdle ? 0 : value);
  page.gauge("vllm:num_requests_running", "Number of requests in model execution batches.", load(stats.running));
  page.gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", load(stats.waiting));
  const { sleep } = engine;
  for (const [state, isIn] of [
    ["awake", !sleep],
    ["weights_offloaded", sleep?.level === 1],
    ["discard_all", sleep?.level === 2],
  ] as const) {
    page.gauge("vllm:engine_sleep_state", "Engine sleep state; awake = 0 means engine is sleeping.", isIn ? 1 : 0, {
      sleep_state: state,
    });
  }
  page.gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", load(stats.kvUse));
  page.counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", stats.prefixQueries);
  page.counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", stats.prefixHits);
  if (parameters.cpuBlocks) {
    const missed = stats.prefixQueries - stats.prefixHits;
    page.counter("vllm:external_prefix_cache_queries_total", "Prompt tokens looked up in the external cache.", missed);
    page.counter(
      "vllm:external_prefix_cache_hits_total",
      "Prompt tokens found in the external cache.",
      stats.loadedTokens,
    );
  }
  if (pulledBytesPerToken !== undefined) {
    page.counter(
      "vllm:kv_offload_tiering_read_bytes_total",
      "Bytes read from a secondary tier.",
      stats.pulledTokens * pulledBytesPerToken,
      { tier: "0:p2p" },
    );
    page.counter(
      "vllm:kv_offload_load_bytes_total",
      "Bytes loaded from CPU memory.",
      stats.loadedTokens * pulledBytesPerToken,
    );
  }
  page.counter("vllm:num_preemptions_total", "Cumulative number of preemptions.", stats.preemptions);
  page.counter("vllm:prompt_tokens_total", "Number of prefill tokens processed.", stats.promptTokens);
  const generated = stats.generatedTokens - tallies.poolingTokens;
  page.counter("vllm:generation_tokens_total", "Number of generation tokens processed.", generated);
  for (const [reason, count] of Object.entries(tallies.outcomes)) {
    page.counter("vllm:request_success_total", "Count of requests by how they finished.", count, {
      finished_reason: reason,
    });
  }
  page.histogram("vllm:time_to_first_token_seconds", "Time to first token.", tallies.timeToFirstTokenSeconds);
  page.histogram("vllm:inter_token_latency_seconds", "Inter-token latency.", tallies.interTokenLatencySeconds);
  page.histogram("vllm:e2e_request_latency_seconds", "Latency of whole requests.", tallies.endToEndSeconds);
  page.histogram("vllm:request_queue_time_seconds", "Time spent waiting.", tallies.queueSeconds);
  const config = createExposition({ engine: String(rank) });
  config.gauge("vllm:cache_config_info", "Information of the LLMEngine CacheConfig", 1, {
    block_size: String(parameters.blockSize),
    enable_prefix_caching: parameters.prefixCaching ? "True" : "False",
    // vLLM reserves one block, which the model does not count.
    num_gpu_blocks: String(parameters.blockCount + 1),
  });
  const lora = createExposition({});
  for (const { running, waiting, seenS } of engine.loraSamples(nowS)) {
    lora.gauge("vllm:lora_requests_info", "Running stats on lora requests.", seenS, {
      max_lora: String(parameters.adapterSlots ?? adapterCount),
      running_lora_adapters: running,
      waiting_lora_adapters: waiting,
    });
  }
  const process = createExposition({});
  process.gauge(
    "process_start_time_seconds",
    "Start time of the process since unix epoch in seconds.",
    engine.startedS,
  );
  return page.page() + config.page() + lora.page() + process.page();
}

/** The metrics page of trtllm-serve, as far as a router reads it. */
export function trtllmMetrics({ engine, model, pretendsIdle }: MetricsSource): string {
  const { blockCount, blockSize } = engine.parameters;
  const stats = engine.stats();
  const page = createExposition({ engine_type: "undefined", model_name: model });
  const load = (value: number): number => (pretendsIdle ? 0 : value);
  page.gauge("trtllm_num_requests_running", "Number of requests that run.", load(stats.running));
  page.gauge("trtllm_num_requests_waiting", "Number of requests that wait.", load(stats.waiting));
  page.gauge("trtllm_kv_cache_utilization", "Share of the KV cache in use.", load(stats.kvUse));
  page.gauge("trtllm_kv_cache_tokens_per_block", "Tokens per KV block.", blockSize);
  page.gauge("trtllm_kv_cache_max_blocks", "KV blocks.", blockCount);
  return page.page();
}

/** The metrics page of SGLang 0.5.23, as far as a router reads it. Times are engine time. */
export function sglangMetrics({ engine, model, pretendsIdle }: MetricsSource): string {
  const { parameters, tallies } = engine;
  const { blockCount, blockSize } = parameters;
  const stats = engine.stats();
  // The scheduler's metrics name its rank, those of the front end do not.
  const page = createExposition({ engine_type: "unified", model_name: model, pp_rank: "0", tp_rank: "0" });
  const load = (value: number): number => (pretendsIdle ? 0 : value);
  const usedTokens = Math.round(stats.kvUse * blockCount) * blockSize;
  const generated = stats.generatedTokens - tallies.poolingTokens;
  const throughput = stats.running > 0 && stats.busyMs > 0 ? (generated * 1000) / stats.busyMs : 0;
  const { stop, length, abort } = tallies.outcomes;
  page.gauge("sglang:num_running_reqs", "The number of running requests.", load(stats.running));
  page.gauge("sglang:num_queue_reqs", "The number of requests in the waiting queue.", load(stats.waiting));
  page.gauge("sglang:token_usage", "The token usage.", load(stats.kvUse));
  page.gauge("sglang:num_used_tokens", "The number of used tokens.", load(usedTokens));
  page.gauge("sglang:gen_throughput", "The generation throughput (token/s).", load(throughput));
  page.gauge(
    "sglang:cache_hit_rate",
    "The prefix cache hit rate.",
    stats.prefixQueries > 0 ? stats.prefixHits / stats.prefixQueries : 0,
  );
  page.gauge("sglang:max_total_num_tokens", "Tokens in the KV cache pool.", blockCount * blockSize);
  if (parameters.cpuBlocks) {
    const hostTokens = (blocks: number): number => blocks * blockSize;
    page.gauge("sglang:hicache_host_used_tokens", "Tokens in host memory.", hostTokens(stats.cpuBlocks));
    page.gauge(
      "sglang:hicache_host_total_tokens",
      "Capacity of host memory in tokens.",
      hostTokens(parameters.cpuBlocks),
    );
  }
  page.gauge("sglang:page_size", "KV cache page size in tokens.", blockSize);
  page.gauge("sglang:num_pages", "Number of KV cache pages.", blockCount);
  page.gauge("sglang:context_len", "Maximum context length.", parameters.maxModelLength);
  page.histogram("sglang:queue_time_seconds", "Time spent waiting.", tallies.queueSeconds);
  const requests = createExposition({ engine_type: "unified", model_name: model });
  // The front end's counters have no sample before the first request.
  if (stop + length + abort === 0) return page.page();
  requests.counter("sglang:prompt_tokens_total", "Number of prefill tokens processed.", stats.promptTokens);
  requests.counter("sglang:generation_tokens_total", "Number of generation tokens processed.", generated);
  const cachedTokens = stats.prefixHits + stats.loadedTokens;
  requests.counter("sglang:cached_tokens_total", "Number of cached prompt tokens.", cachedTokens);
  requests.counter("sglang:num_requests_total", "Number of requests processed.", stop + length + abort);
  requests.counter("sglang:num_aborted_requests_total", "Number of requests aborted.", abort);
  requests.histogram("sglang:time_to_first_token_seconds", "Time to first token.", tallies.timeToFirstTokenSeconds);
  requests.histogram("sglang:inter_token_latency_seconds", "Inter-token latency.", tallies.interTokenLatencySeconds);
  requests.histogram("sglang:e2e_request_latency_seconds", "Latency of whole requests.", tallies.endToEndSeconds);
  return page.page() + requests.page();
}

type Labels = Readonly<Record<string, string>>;

/** Writes one page of the Prometheus text format, version 0.0.4. @param common labels of every sample */
function createExposition(common: Labels) {
  let page = "";
  const declared = new Set<string>();
  const declare = (name: string, help: string, type: string): void => {
    if (declared.has(name)) return;
    declared.add(name);
    page += `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`;
  };
  const sample = (name: string, labels: Labels, value: number): void => {
    page += `${name}${labelText({ ...common, ...labels })} ${numberText(value)}\n`;
  };
  const write =
    (type: "gauge" | "counter") =>
    (name: string, help: string, value: number, labels: Labels = {}): void => {
      declare(name, help, type);
      sample(name, labels, value);
    };
  return {
    gauge: write("gauge"),
    /** The name ends in `_total`. */
    counter: write("counter"),
    histogram(name: string, help: string, histogram: Histogram): void {
      declare(name, help, "histogram");
      const counts = histogram.cumulative();
      for (const [at, count] of counts.entries()) {
        const bound = histogram.bounds[at];
        sample(`${name}_bucket`, { le: bound === undefined ? "+Inf" : numberText(bound) }, count);
      }
      sample(`${name}_count`, {}, counts.at(-1) ?? 0);
      sample(`${name}_sum`, {}, histogram.sum);
    },
    page: (): string => page,
  };
}

function labelText(labels: Labels): string {
  const pairs = Object.entries(labels).map(
    ([name, value]) => `${name}="${value.replace(/[\\"\n]/g, escapeCharacter)}"`,
  );
  return pairs.length === 0 ? "" : `{${pairs.join(",")}}`;
}

const escapeCharacter = (character: string): string => (character === "\n" ? "\\n" : `\\${character}`);

/** Floats as the Python client writes them: whole numbers keep a decimal. */
const numberText = (value: number): string => (Number.isInteger(value) ? `${value}.0` : String(value));
