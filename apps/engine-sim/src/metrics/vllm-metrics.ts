import type { SimulatedEngine } from "../engine/simulated-engine.ts";
import { createExposition } from "./exposition.ts";

/** What a metrics page shows of an engine. */
export interface MetricsSource {
  readonly engine: SimulatedEngine;
  readonly model: string;
  /** Whether it pretends that nothing runs and nothing waits. */
  readonly pretendsIdle: boolean;
  /** LoRA adapters that the engine has. */
  readonly adapterCount: number;
  /** Unix seconds. */
  readonly nowS: number;
}

/** The metrics page of vLLM 0.32, as far as a router reads it. Times are engine time. */
export function vllmMetrics({ engine, model, pretendsIdle, adapterCount, nowS }: MetricsSource): string {
  const { parameters, tallies } = engine;
  const stats = engine.stats();
  const page = createExposition({ engine: "0", model_name: model });
  const load = (value: number): number => (pretendsIdle ? 0 : value);
  page.gauge("vllm:num_requests_running", "Number of requests in model execution batches.", load(stats.running));
  page.gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", load(stats.waiting));
  page.gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", load(stats.kvUse));
  page.counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", stats.prefixQueries);
  page.counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", stats.prefixHits);
  if (parameters.cpuBlocks) {
    const missed = stats.prefixQueries - stats.prefixHits;
    page.counter(
      "vllm:external_prefix_cache_queries_total",
      "Prompt tokens looked up behind the prefix cache.",
      missed,
    );
    page.counter("vllm:external_prefix_cache_hits_total", "Prompt tokens found behind it.", stats.loadedTokens);
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
  const config = createExposition({ engine: "0" });
  config.gauge("vllm:cache_config_info", "Information of the LLMEngine CacheConfig", 1, {
    block_size: String(parameters.blockSize),
    enable_prefix_caching: parameters.prefixCaching ? "True" : "False",
    // vLLM keeps one block for itself, which the model does not count.
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
  return page.page() + config.page() + lora.page();
}
