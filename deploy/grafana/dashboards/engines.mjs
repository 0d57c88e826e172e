import { of, plot, rate, row, sum } from "../panels.mjs";

export const engines = {
  title: "Espalier: engines and KV events",
  panels: [
    row("Engines"),
    plot(
      "Up",
      "short",
      [
        [`min by (engine) (${of("espalier_engine_up")})`, "{{engine}}"],
        [`max by (engine) (${of("espalier_engine_health_overruled")}) > 0`, "{{engine}} tried though down"],
        [`max by (engine) (${of("espalier_engine_asleep_ranks")}) > 0`, "{{engine}} ranks asleep"],
      ],
      "1 while all routers find it up. Tried though down: too few engines of a model are up, and requests find out which are. Ranks asleep get no requests.",
    ),
    plot(
      "Circuit breaker",
      "short",
      [
        [`max by (engine) (${of("espalier_engine_breaker_state")})`, "{{engine}}"],
        [`max by (engine) (${of("espalier_engine_breaker_overruled")}) > 0`, "{{engine}} overruled"],
      ],
      "0 closed, 1 half-open, 2 open. Overruled: those of too many engines are open, and do not count.",
    ),
    plot(
      "Control calls of RL frameworks",
      "ops",
      [[sum(rate("espalier_control_calls_total"), "call, outcome"), "{{call}} {{outcome}}"]],
      "Pauses, weight updates and the like, per engine asked. Refused: no engine was asked.",
    ),
    plot(
      "Requests in flight",
      "short",
      [[sum(of("espalier_engine_requests_in_flight"), "engine"), "{{engine}}"]],
      "Of all routers together. Far apart: one engine is slow, or a prefix is hot.",
    ),
    plot(
      "Time to first token",
      "s",
      [[`max by (engine) (${of("espalier_engine_time_to_first_token_seconds")})`, "{{engine}}"]],
      "Median of a router's streams in the last minute, from dispatch to first token. One engine far above the others is slow.",
    ),
    plot(
      "Time per output token",
      "s",
      [[`max by (engine) (${of("espalier_engine_time_per_output_token_seconds")})`, "{{engine}}"]],
      "Median of a router's streams in the last minute, after the first token.",
    ),
    plot(
      "Oldest wait",
      "s",
      [
        [`max by (engine) (${of("espalier_engine_oldest_wait_seconds")})`, "{{engine}}"],
        [`max by (engine) (${of("espalier_engine_unresponsive_seconds")}) > 0`, "{{engine}} unresponsive"],
      ],
      "Age of the oldest request in flight without a first token. Unresponsive: nothing comes from an engine that should have answered.",
    ),
    plot(
      "Health probes",
      "ops",
      [
        [
          sum(rate("espalier_engine_health_probes_total", 'outcome!="ok"'), "engine, outcome"),
          "{{engine}} {{outcome}}",
        ],
      ],
      "Probes per second that did not end well.",
    ),
    plot(
      "Scrapes",
      "ops",
      [
        [
          sum(rate("espalier_engine_metrics_scrapes_total", 'outcome!="ok"'), "engine, outcome"),
          "{{engine}} {{outcome}}",
        ],
      ],
      "Reads of the engine's metrics per second that did not end well.",
    ),
    plot(
      "Round trip",
      "s",
      [
        [`min by (engine) (${of("espalier_engine_network_round_trip_seconds")})`, "{{engine}}, nearest router"],
        [`max by (engine) (${of("espalier_engine_network_round_trip_seconds")})`, "{{engine}}, farthest router"],
      ],
      "The way between routers and the engine: the fastest answer of the last minute to a probe or scrape.",
    ),
    plot(
      "Lines that could not be used",
      "ops",
      [[sum(rate("espalier_engine_metrics_malformed_lines_total"), "engine"), "{{engine}}"]],
      "Of the engines' metrics.",
    ),
    plot(
      "Engines that are named",
      "short",
      [[of("espalier_discovery_engines"), "{{instance}}"]],
      "By all sources together, as each router sees them. They should be the same.",
    ),
    plot(
      "Sources",
      "short",
      [[`min by (source) (${of("espalier_discovery_source_up")})`, "{{source}}"]],
      "1 while all routers can follow it; else its last list stays.",
    ),
    plot(
      "Failures of sources",
      "ops",
      [[sum(rate("espalier_discovery_failures_total"), "source"), "{{source}}"]],
      "Each counted once for as long as it lasts.",
    ),
    plot(
      "What InferencePools say of requests",
      "short",
      [
        [of("espalier_discovery_inference_objectives"), "objectives {{instance}}"],
        [of("espalier_discovery_rewritten_models"), "rewritten models {{instance}}"],
      ],
      "InferenceObjectives, and models that InferenceModelRewrites name. They should be the same at each router.",
    ),
    row("KV events"),
    plot(
      "State of feeds",
      "short",
      [[`max by (feed) (${of("espalier_kv_feed_state")})`, "{{feed}}"]],
      "4 live, 3 partial, 2 replaying, 1 stale, 0 off; by the router that reads it best.",
    ),
    plot(
      "Delay",
      "s",
      [[`max by (feed) (${of("espalier_kv_feed_lag_seconds")})`, "{{feed}}"]],
      "Of the latest message beyond the fastest of the last minutes.",
    ),
    plot(
      "Messages and events",
      "ops",
      [
        [sum(rate("espalier_kv_feed_messages_total")), "messages"],
        [sum(rate("espalier_kv_feed_events_total")), "events"],
      ],
      "Read by all routers.",
    ),
    plot(
      "Blocks",
      "ops",
      [
        [sum(rate("espalier_kv_feed_blocks_stored_total")), "stored"],
        [sum(rate("espalier_kv_feed_blocks_removed_total")), "removed"],
      ],
      "As many removed as stored: the caches are full.",
    ),
    plot(
      "Holes",
      "ops",
      [
        [sum(rate("espalier_kv_feed_gaps_total"), "feed"), "{{feed}} gaps"],
        [sum(rate("espalier_kv_feed_missed_messages_total"), "feed"), "{{feed}} messages"],
      ],
      "Holes that no replay could fill leave a feed partial.",
    ),
    plot(
      "Replays",
      "ops",
      [
        [sum(rate("espalier_kv_feed_replays_total"), "outcome"), "{{outcome}}"],
        [sum(rate("espalier_kv_feed_resyncs_total")), "resyncs"],
        [sum(rate("espalier_kv_feed_open_failures_total")), "cannot open"],
      ],
      "Requests for an engine's history.",
    ),
    plot(
      "Left out",
      "ops",
      [
        [sum(rate("espalier_kv_feed_refused_messages_total"), "reason"), "messages: {{reason}}"],
        [sum(rate("espalier_kv_feed_undecoded_events_total")), "events"],
        [sum(rate("espalier_kv_feed_duplicates_total")), "came again"],
      ],
      "Messages and events that could not be used.",
    ),
    plot(
      "New epochs",
      "ops",
      [
        [sum(rate("espalier_engine_restarts_total"), "engine"), "{{engine}}"],
        [sum(rate("espalier_kv_feed_restarts_total"), "feed"), "{{feed}}, met by its feed"],
        [sum(rate("espalier_feed_epochs_total")), "made known"],
      ],
      "Engines that began anew, with an empty cache.",
    ),
    plot(
      "Who reads",
      "ops",
      [
        [sum(rate("espalier_feed_takeovers_total"), "method"), "taken over by {{method}}"],
        [sum(rate("espalier_feed_yields_total")), "given away"],
        [sum(rate("espalier_feed_checkpoints_total")), "checkpoints"],
      ],
      "Feeds that went from router to router.",
    ),
    plot(
      "Lists of KV pools' keys",
      "ops",
      [[sum(rate("espalier_kv_pool_lists_total"), "pool, outcome"), "{{pool}}: {{outcome}}"]],
      "Read from the masters of KV pools, by outcome.",
    ),
    plot(
      "Unknown keys of KV pools",
      "short",
      [[`max by (pool) (${of("espalier_kv_pool_unknown_keys")})`, "{{pool}}"]],
      "In the latest list, of blocks that no engine has announced.",
    ),
    row("LoRA adapters and what is learned"),
    plot(
      "Adapters loaded",
      "ops",
      [[sum(rate("espalier_adapter_loads_total"), "outcome"), "{{outcome}}"]],
      "By outcome.",
    ),
    plot(
      "Adapters unloaded",
      "ops",
      [[sum(rate("espalier_adapter_unloads_total"), "outcome"), "{{outcome}}"]],
      "By outcome.",
    ),
    plot(
      "Times learned from other routers",
      "ops",
      [[sum(rate("espalier_learned_times_received_total"), "outcome"), "{{outcome}}"]],
      "Whether what others told could be used.",
    ),
    plot(
      "Copies of beginnings: notes of other routers",
      "ops",
      [[sum(rate("espalier_copy_credits_received_total"), "outcome"), "{{outcome}}"]],
      "What prompts that begin alike have overpaid there: together routers copy what pays. Whether it could be read.",
    ),
  ],
};
