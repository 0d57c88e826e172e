import { createExposition } from "./exposition.ts";
import type { MetricsSource } from "./vllm-metrics.ts";

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
    page.gauge("sglang:hicache_host_total_tokens", "Tokens that fit there.", hostTokens(parameters.cpuBlocks));
  }
  page.gauge("sglang:page_size", "KV cache page size in tokens.", blockSize);
  page.gauge("sglang:num_pages", "Number of KV cache pages.", blockCount);
  page.gauge("sglang:context_len", "Maximum context length.", parameters.maxModelLength);
  page.histogram("sglang:queue_time_seconds", "Time spent waiting.", tallies.queueSeconds);
  const requests = createExposition({ engine_type: "unified", model_name: model });
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
