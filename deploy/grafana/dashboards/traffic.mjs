import { mean, of, plot, quantile, quantiles, rate, row, stat, sum } from "../panels.mjs";

const cachedShare = `${sum(rate("espalier_tokens_total", 'kind="cached"'))} / ${sum(rate("espalier_tokens_total", 'kind="prompt"'))}`;
/** No request with such a status yet is a share of 0. */
const share = (matchers) =>
  `(${sum(rate("espalier_requests_total", matchers))} or vector(0)) / ${sum(rate("espalier_requests_total"))}`;

const measuredRequests = sum(rate("espalier_slo_requests_total"), "model, class");
/** Where no request has met its objectives yet it is 0. */
const goodput = `(${sum(rate("espalier_slo_requests_total", 'result="met"'), "model, class")} or 0 * ${measuredRequests}) / ${measuredRequests}`;

export const traffic = {
  title: "Espalier: traffic and caches",
  panels: [
    row("At a glance"),
    stat("Ready routers", "short", [[sum(of("espalier_ready")), "ready"]], "Routers that say they can serve."),
    stat(
      "Usable engines",
      "short",
      [[`max(${sum(of("espalier_engine_up"), "instance")})`, "up"]],
      "Engines that are up, by the router that sees most.",
    ),
    stat("Requests", "reqps", [[sum(rate("espalier_requests_total")), "requests"]], "Requests answered per second."),
    stat(
      "Cached share",
      "percentunit",
      [[cachedShare, "cached"]],
      "Part of all prompt tokens that engines found in their caches.",
    ),
    stat(
      "Refused",
      "percentunit",
      [[share('outcome="refused"'), "refused"]],
      "Part of the requests that nobody took: 429 or 503.",
    ),
    stat(
      "Failed or cut",
      "percentunit",
      [[share('outcome=~"failed|cut"'), "failed"]],
      "Part of the requests that ended with an error, or with a part of an answer.",
    ),
    row("Requests"),
    plot(
      "Requests by status",
      "reqps",
      [[sum(rate("espalier_requests_total"), "status"), "{{status}}"]],
      "Answers per second.",
    ),
    plot(
      "Requests by model",
      "reqps",
      [[sum(rate("espalier_requests_total"), "model, endpoint"), "{{model}} {{endpoint}}"]],
      "Answers per second, by served model and endpoint.",
    ),
    plot(
      "In flight by router",
      "short",
      [[sum(of("espalier_requests_in_flight"), "instance"), "{{instance}}"]],
      "Requests in flight.",
    ),
    plot(
      "Request bodies in flight",
      "bytes",
      [[`max by (instance) (${of("espalier_request_body_bytes")})`, "{{instance}}"]],
      "Beyond limits.max-body-bytes-in-flight further ones are answered with 429.",
    ),
    plot(
      "Connections",
      "short",
      [
        [sum(of("espalier_open_connections"), "instance, listener"), "{{instance}} {{listener}}"],
        [sum(of("espalier_realtime_connections"), "instance"), "{{instance}} realtime"],
        [
          sum(rate("espalier_refused_connections_total"), "instance, listener, outcome"),
          "{{instance}} {{listener}} {{outcome}} a second",
        ],
      ],
      "Open ones, and those beyond limits.max-connections: answered with 503, or closed at once.",
    ),
    plot(
      "Event loop delay",
      "s",
      [[`max by (instance) (${of("espalier_event_loop_delay_seconds")})`, "{{instance}}"]],
      "How late a router comes to its work for half a second on end. Beyond limits.max-event-loop-delay it refuses requests.",
    ),
    plot(
      "Refused for want of time, memory or room towards other routers",
      "percentunit",
      [
        [`max by (instance) (${of("espalier_shed_ratio")})`, "{{instance}} refused"],
        [`max by (instance) (${of("espalier_heap_used_ratio")})`, "{{instance}} heap"],
        [sum(rate("espalier_shed_requests_total"), "instance, pressure"), "{{instance}} {{pressure}} a second"],
      ],
      "Share of new requests that is refused, of the heap that is used, and refusals per second.",
    ),
    plot(
      "Time to first byte",
      "s",
      quantiles("espalier_time_to_first_byte_seconds"),
      "From acceptance to the first byte of the engine's answer, queues of router and engine included.",
    ),
    plot(
      "Time to first byte by model (p99)",
      "s",
      [[quantile(0.99, "espalier_time_to_first_byte_seconds", { by: "model" }), "{{model}}"]],
      "Whether one model is slow, or all are.",
    ),
    plot(
      "Time per output token",
      "s",
      quantiles("espalier_time_per_output_token_seconds"),
      "Of streams, the mean time of a token after the first.",
    ),
    plot(
      "Goodput",
      "percentunit",
      [[goodput, "{{model}} {{class}}"]],
      "Share of requests that met their slo: first token and later tokens in time.",
    ),
    plot(
      "Whole answer",
      "s",
      quantiles("espalier_request_duration_seconds"),
      "Time from acceptance to the end of the answer, in seconds.",
    ),
    plot(
      "The router's own time",
      "s",
      [...quantiles("espalier_overhead_seconds"), [mean("espalier_overhead_seconds"), "mean"]],
      "From a complete request to its dispatch: tokenizing, matching, choosing. Time in the queue is not in it.",
    ),
    plot(
      "Tokens",
      "short",
      [[sum(rate("espalier_tokens_total"), "kind"), "{{kind}}"]],
      "Tokens per second, by the engines' own reports.",
    ),
    plot(
      "Bytes to clients",
      "Bps",
      [[sum(rate("espalier_proxy_response_bytes_total"), "instance"), "{{instance}}"]],
      "Bodies of answers.",
    ),
    row("Caches"),
    plot(
      "Cached share",
      "percentunit",
      [
        [cachedShare, "all"],
        [
          `${sum(rate("espalier_tokens_total", 'kind="cached"'), "model")} / ${sum(rate("espalier_tokens_total", 'kind="prompt"'), "model")}`,
          "{{model}}",
        ],
      ],
      "Part of the prompt tokens that engines found cached. What a fall means: docs/OPERATIONS.md.",
    ),
    plot(
      "Predicted and reported",
      "short",
      [[sum(rate("espalier_cache_tokens_total"), "kind"), "{{kind}}"]],
      "Cached tokens per second: what routers expected, what engines reported, and by how much expectations were over and under.",
    ),
    plot(
      "Cache given up for load",
      "percentunit",
      [
        [
          `1 - ${sum(rate("espalier_prefix_tokens_total", 'kind="chosen"'))} / ${sum(rate("espalier_prefix_tokens_total", 'kind="best"'))}`,
          "given up",
        ],
      ],
      "Of the prompt tokens that some engine held, the part whose requests went elsewhere: what balance costs, and all that a router who looks at nothing but caches could gain.",
    ),
    plot(
      "Prompts cut by",
      "ops",
      [[sum(rate("espalier_prompts_total"), "source"), "{{source}}"]],
      "By tokens, by tokens of the beginning only, or by bytes. Only tokens can be compared with KV events.",
    ),
    plot(
      "Index",
      "short",
      [[`max by (layer) (${of("espalier_prefix_index_blocks")})`, "{{layer}}"]],
      "Blocks that engines are known (facts) or expected (placements) to hold.",
    ),
    plot("Memory of the index", "bytes", [[of("espalier_prefix_index_bytes"), "{{instance}}"]], "Of each router."),
    plot(
      "From pools and other engines",
      "short",
      [
        [sum(rate("espalier_pool_tokens_total")), "from pools"],
        [sum(rate("espalier_kv_pull_tokens_total")), "from engines"],
      ],
      "Prompt tokens per second that engines were expected to fetch from a pool of KV blocks, or from another engine.",
    ),
    plot(
      "Fetches from other engines",
      "ops",
      [[sum(rate("espalier_kv_pulls_total"), "outcome"), "{{outcome}}"]],
      "Whether the blocks came, by the cached tokens of the answers.",
    ),
    row("Decisions and what went wrong"),
    plot(
      "Decisions",
      "ops",
      [[sum(rate("espalier_decisions_total"), "policy, reason"), "{{policy}}: {{reason}}"]],
      "Why engines were chosen.",
    ),
    plot(
      "Attempts at engines",
      "ops",
      [[sum(rate("espalier_proxy_attempts_total"), "outcome"), "{{outcome}}"]],
      "How they ended.",
    ),
    plot(
      "Retries",
      "ops",
      [
        [sum(rate("espalier_proxy_retries_total"), "budget"), "{{budget}}"],
        [sum(rate("espalier_proxy_retry_budget_exhausted_total")), "refused by the budget"],
      ],
      "Requests sent to another engine.",
    ),
    plot(
      "Broken streams",
      "ops",
      [[sum(rate("espalier_broken_streams_total"), "outcome"), "{{outcome}}"]],
      "Streams whose engine died. Completed: by another engine.",
    ),
    plot(
      "Kept to resume streams",
      "bytes",
      [[of("espalier_resume_kept_bytes"), "{{instance}}"]],
      "Requests and answers of running streams.",
    ),
    plot(
      "Hooks that failed",
      "ops",
      [[sum(rate("espalier_hook_failures_total"), "hook, outcome"), "{{hook}}: {{outcome}}"]],
      "Calls of hooks of plugins and of embedding programs. The requests went on without them.",
    ),
    plot(
      "Requests by outcome",
      "reqps",
      [[sum(rate("espalier_requests_total"), "outcome"), "{{outcome}}"]],
      "How requests ended for their clients. Cut: with a part of an answer.",
    ),
    plot(
      "CPU",
      "short",
      [[`rate(${of("process_cpu_seconds_total")}[$__rate_interval])`, "{{instance}}"]],
      "Cores in use. One router uses about one.",
    ),
    plot(
      "Memory and event loop",
      "short",
      [
        [of("process_resident_memory_bytes"), "{{instance}} bytes"],
        [of("nodejs_eventloop_lag_p99_seconds"), "{{instance}} loop p99 (s)"],
        [rate("espalier_log_dropped_lines_total"), "{{instance}} log lines dropped"],
      ],
      "An event loop that lags delays every stream.",
    ),
    plot(
      "Metrics left out",
      "ops",
      [
        [sum(rate("espalier_metrics_overflow_total"), "metric"), "{{metric}} is full"],
        [sum(rate("espalier_metrics_refused_total"), "metric"), "{{metric}} refused"],
      ],
      "Label sets beyond 1,000, which share one series.",
    ),
    plot(
      "Trace spans",
      "ops",
      [[sum(rate("espalier_trace_spans_total"), "outcome"), "{{outcome}}"]],
      "What became of recorded spans: sent, failed (rejected by the collector), dropped (the queue was full).",
    ),
    row("Configuration"),
    plot(
      "Last reload",
      "short",
      [[of("espalier_config_last_reload_successful"), "{{instance}}"]],
      "1 went well, 0 failed: the old configuration stays.",
    ),
    plot(
      "Reloads",
      "ops",
      [[sum(rate("espalier_config_reloads_total"), "outcome"), "{{outcome}}"]],
      "That changed something, or failed.",
    ),
    plot(
      "Age of the configuration",
      "s",
      [[`time() - ${of("espalier_config_applied_timestamp_seconds")}`, "{{instance}}"]],
      "Routers of different ages run with different configurations.",
    ),
    plot(
      "Requests of gateways",
      "reqps",
      [
        [sum(rate("espalier_picker_served_elsewhere_total")), "served by another engine than the chosen one"],
        [sum(rate("espalier_picker_unobserved_responses_total")), "answer not shown"],
      ],
      "What a router that is an endpoint picker did not decide, or does not see.",
    ),
    plot(
      "Certificates",
      "ops",
      [[sum(rate("espalier_tls_reloads_total"), "listener, outcome"), "{{listener}} {{outcome}}"]],
      "Changes of certificates, by listener or towards engines. Where one failed the old one stays.",
    ),
    plot(
      "Certificates expire in",
      "s",
      [[`min by (listener) (${of("espalier_tls_certificate_expiry_timestamp_seconds")}) - time()`, "{{listener}}"]],
      "The one that ends first, by listener or towards engines.",
    ),
  ],
};
