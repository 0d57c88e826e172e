/** A way in which a release of an engine differs from what clients of its API expect. */
interface Behaviour {
  /** Flavour and release that show it, then what it is. */
  readonly name: `${"vllm" | "sglang" | "trtllm" | "llama.cpp"}-${string}:${string}`;
  /** One line of `--help`. */
  readonly summary: string;
  /** The engine's source file, capture or public report that shows it. */
  readonly source: string;
}

/** Everything that `--behaviour` can turn on. All are off by default: the plain simulation answers as clients hope. */
export const behaviours = [
  {
    name: "sglang-0.5.23:health-takes-a-second",
    summary: "GET /health generates a token, and answers after 1 s of sleep",
    source: "sglang/srt/entrypoints/http_server.py, health_generate (SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION)",
  },
  {
    name: "vllm-0.32.0:second-node-ranks",
    summary: "has the rank 4 of a second node, in metrics and KV events, and refuses requests for other ranks",
    source: "vllm/engine/arg_utils.py, --data-parallel-start-rank; report vllm-project/router#210",
  },
  {
    name: "vllm-0.32.0:errors-are-events",
    summary: "errors of streamed requests (faults `sick` and `status`, a full engine) are an event after status 200",
    source:
      "vllm/entrypoints/generate/base/serving.py, create_streaming_error_response; its callers yield it and [DONE]",
  },
  {
    name: "sglang-0.5.23:errors-are-events",
    summary: "errors of streamed requests (faults `sick` and `status`, a full engine) are an event after status 200",
    source:
      "sglang/srt/entrypoints/openai/serving_base.py, create_streaming_error_response, for requests that are aborted with a " +
      "status (managers/tokenizer_manager.py, _handle_abort_finish_reason), as a full queue does",
  },
  {
    name: "vllm-0.32.0:keep-alive-comments",
    summary: "an idle stream gets a comment every second, as with --sse-keep-alive-interval 1",
    source: "vllm/entrypoints/serve/utils/sse_keep_alive.py",
  },
  {
    name: "llama.cpp-00efb3e:timings",
    summary: "completions have `timings` beside their usage, in streams in the last chunk",
    source: "tools/server/server-task.cpp, result_timings::to_json and to_json_oaicompat_chat_stream",
  },
  {
    name: "llama.cpp-00efb3e:endless-answers",
    summary: "`max_tokens: -1` asks for an answer of any length",
    source: "tools/server/README.md, n_predict; tools/server/server-task.cpp reads max_tokens as n_predict",
  },
  {
    name: "llama.cpp-00efb3e:says-that-it-loads",
    summary: "GET /health with the fault `unhealthy` answers as while a model loads",
    source: "tools/server/server-http.cpp, middleware_server_state (read at 00dd081)",
  },
  {
    name: "trtllm-00057725:metrics-wait",
    summary: "GET /metrics waits 2 s for statistics and answers with JSON; the page is at /prometheus/metrics",
    source:
      "tensorrt_llm/serve/openai_server.py, get_iteration_stats and mount_metrics (with return_perf_metrics); " +
      "LLM.get_stats_async",
  },
] as const satisfies readonly Behaviour[];

export type BehaviourName = (typeof behaviours)[number]["name"];

/** Whether a streamed request fails by an event. */
export function hasErrorEvents(on: ReadonlySet<BehaviourName>): boolean {
  return on.has("vllm-0.32.0:errors-are-events") || on.has("sglang-0.5.23:errors-are-events");
}

/** Data-parallel rank of a simulated engine. */
export function rankOf(behaviours: ReadonlySet<BehaviourName>): number {
  return behaviours.has("vllm-0.32.0:second-node-ranks") ? 4 : 0;
}

/**
 * Names of behaviours from what `--behaviour` was given: one of them, or a release for all of its own.
 *
 * @throws RangeError for what is neither
 */
export function behavioursNamed(written: readonly string[]): ReadonlySet<BehaviourName> {
  const found = new Set<BehaviourName>();
  for (const text of written) {
    const named = behaviours.filter(({ name }) => name === text || name.startsWith(`${text}:`));
    if (named.length === 0) {
      throw new RangeError(`behaviour must be one of ${behaviours.map(({ name }) => name).join(", ")}, or a release`);
    }
    for (const { name } of named) found.add(name);
  }
  return found;
}
