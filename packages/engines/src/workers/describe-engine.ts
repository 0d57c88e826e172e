import { type Described, json } from "@espalier/core";
import type { EngineRecord, Target } from "./engine-record.ts";
import type { TargetAdapters } from "./target-adapters.ts";

const targetDescription = json.named(
  "Target",
  json.object({
    key: json.text(),
    usable: json.boolean(),
    /** By its metrics. A target that sleeps is not usable. */
    asleep: json.boolean(),
    load: json.object({
      in_flight: json.integer(),
      pending_prefill_tokens: json.number(),
      decode_tokens: json.number(),
      outstanding_output_tokens: json.number(),
    }),
    signals: json.object(
      {
        dialect: json.nullable(json.text()),
        age_ms: json.nullable(json.number()),
        running: json.nullable(json.number()),
        waiting: json.nullable(json.number()),
        kv_use: json.nullable(json.number()),
        block_size: json.nullable(json.number()),
        block_count: json.nullable(json.number()),
        prompt_tokens_total: json.nullable(json.number()),
        generation_tokens_total: json.nullable(json.number()),
        prefix_queries: json.nullable(json.number()),
        prefix_hits: json.nullable(json.number()),
      },
      "Null where the engine's metrics say nothing.",
    ),
    adapters: json.nullable(
      json.object({
        slots: json.nullable(json.integer()),
        running: json.list(json.text()),
        waiting: json.list(json.text()),
        /** Those assumed to be loaded, least recently used first. */
        loaded: json.list(json.text()),
      }),
      "LoRA adapters; null while none was seen or asked for.",
    ),
  }),
);

export type TargetDescription = Described<typeof targetDescription>;

/** One engine as plain JSON, for operators. */
export const engineDescription = json.object({
  id: json.text(),
  url: json.text(),
  state: json.text(),
  reason: json.text(),
  since: json.dateTime(),
  draining: json.boolean(),
  models: json.nullable(json.list(json.text()), "Null until known."),
  role: json.oneOf(["both", "prefill", "decode"]),
  kv_transfer: json.nullable(json.text(), "The protocol by which it hands over KV blocks."),
  kv_pull: json.nullable(json.text(), "The protocol by which it fetches KV blocks of prompts from other engines."),
  weight: json.number(),
  labels: json.record(json.text()),
  region: json.nullable(json.text(), "Where it is; null if that is not known."),
  /** In milliseconds, to the hundredth. */
  network_ms: json.nullable(json.number(), "Round trip between this router and it; null until it is measured."),
  /** `overruled`: it is ignored, because those of too many engines are open. */
  breaker: json.object({ state: json.text(), reason: json.text(), overruled: json.boolean() }),
  /** `overruled`: it is tried although it is down, because too few engines of a model are up. */
  health: json.object({
    last_outcome: json.nullable(json.text()),
    consecutive_failures: json.integer(),
    consecutive_successes: json.integer(),
    overruled: json.boolean(),
  }),
  targets: json.list(targetDescription),
});

export type EngineDescription = Described<typeof engineDescription>;

/** What operators see of an engine: `espalier workers` and `GET /admin/workers`. */
export function describeEngine(engine: EngineRecord): EngineDescription {
  const { health, breaker } = engine;
  return {
    id: engine.id,
    url: engine.url,
    state: engine.state,
    reason: engine.stateReason,
    since: new Date(engine.stateSinceWallMs).toISOString(),
    draining: engine.draining,
    models: engine.models?.map((model) => model.id) ?? null,
    role: engine.role,
    kv_transfer: engine.kvTransfer?.protocol ?? null,
    kv_pull: engine.kvPull?.protocol ?? null,
    weight: engine.weight,
    labels: { ...engine.labels },
    region: engine.region ?? null,
    network_ms: known(Math.round(engine.networkMs * 100) / 100),
    breaker: { state: breaker.state, reason: breaker.reason, overruled: engine.isOverruled },
    health: {
      last_outcome: health.lastOutcome ?? null,
      consecutive_failures: health.consecutiveFailures,
      consecutive_successes: health.consecutiveSuccesses,
      overruled: engine.isTried,
    },
    targets: engine.targets.map(describeTarget),
  };
}

function describeTarget({ key, usable, exclusion, load, signals, adapters }: Target): TargetDescription {
  return {
    key,
    usable,
    asleep: exclusion === "asleep",
    load: {
      in_flight: load.inFlight,
      pending_prefill_tokens: load.pendingPrefillTokens,
      decode_tokens: load.decodeTokens,
      outstanding_output_tokens: load.outstandingOutputTokens,
    },
    signals: {
      dialect: signals.dialect ?? null,
      age_ms: known(Math.round(signals.ageMs())),
      running: known(signals.running),
      waiting: known(signals.waiting),
      kv_use: known(signals.kvUse),
      block_size: known(signals.blockSize),
      block_count: known(signals.blockCount),
      prompt_tokens_total: known(signals.promptTokensTotal),
      generation_tokens_total: known(signals.generationTokensTotal),
      prefix_queries: known(signals.prefixQueries),
      prefix_hits: known(signals.prefixHits),
    },
    adapters: describeAdapters(adapters),
  };
}

function describeAdapters({ reading, loaded }: TargetAdapters): TargetDescription["adapters"] {
  const names = loaded();
  if (!reading && names.length === 0) return null;
  const { slots = null, running = [], waiting = [] } = reading ?? {};
  return { slots, running, waiting, loaded: names };
}

const known = (value: number): number | null => (Number.isFinite(value) ? value : null);
