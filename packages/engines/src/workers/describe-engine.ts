import { closed, type Described, nullable, record, Type } from "@espalier/core/schema";
import type { EngineRecord, Target } from "./engine-record.ts";
import type { TargetAdapters } from "./target-adapters.ts";

const targetDescription = closed(
  {
    key: Type.String(),
    usable: Type.Boolean(),
    /** By its metrics. A target that sleeps is not usable. */
    asleep: Type.Boolean(),
    load: closed({
      in_flight: Type.Integer(),
      pending_prefill_tokens: Type.Number(),
      decode_tokens: Type.Number(),
      outstanding_output_tokens: Type.Number(),
    }),
    signals: closed(
      {
        dialect: nullable(Type.String()),
        age_ms: nullable(Type.Number()),
        running: nullable(Type.Number()),
        waiting: nullable(Type.Number()),
        kv_use: nullable(Type.Number()),
        block_size: nullable(Type.Number()),
        block_count: nullable(Type.Number()),
        prompt_tokens_total: nullable(Type.Number()),
        generation_tokens_total: nullable(Type.Number()),
        prefix_queries: nullable(Type.Number()),
        prefix_hits: nullable(Type.Number()),
      },
      { description: "Value from the engine's metrics; null if missing." },
    ),
    adapters: nullable(
      closed({
        slots: nullable(Type.Integer()),
        running: Type.Array(Type.String()),
        waiting: Type.Array(Type.String()),
        /** Those assumed to be loaded, least recently used first. */
        loaded: Type.Array(Type.String()),
      }),
      { description: "LoRA adapters; null until one was seen or requested." },
    ),
  },
  { title: "Target" },
);

type TargetDescription = Described<typeof targetDescription>;

/** One engine as plain JSON, for operators. */
export const engineDescription = closed({
  id: Type.String(),
  url: Type.String(),
  state: Type.String(),
  reason: Type.String(),
  since: Type.String({ format: "date-time" }),
  draining: Type.Boolean(),
  paused: Type.Boolean({ description: "Whether an RL framework paused it or released its memory." }),
  models: nullable(Type.Array(Type.String()), { description: "Null until known." }),
  role: Type.Enum(["both", "prefill", "decode"]),
  kv_transfer: nullable(Type.String(), { description: "KV transfer protocol of the engine." }),
  kv_pull: nullable(Type.String(), {
    description: "Protocol for fetching KV blocks from other engines.",
  }),
  weight: Type.Number(),
  labels: record(Type.String()),
  region: nullable(Type.String(), { description: "Region of the engine; null if unknown." }),
  /** In milliseconds, to the hundredth. */
  network_ms: nullable(Type.Number(), {
    description: "Round trip between this router and the engine; null until measured.",
  }),
  /** `overruled`: it is ignored, because those of too many engines are open. */
  breaker: closed({ state: Type.String(), reason: Type.String(), overruled: Type.Boolean() }),
  /** `overruled`: it is tried although it is down, because too few engines of a model are up. */
  health: closed({
    last_outcome: nullable(Type.String()),
    consecutive_failures: Type.Integer(),
    consecutive_successes: Type.Integer(),
    overruled: Type.Boolean(),
  }),
  restarts: Type.Integer({ description: "Restarts of its process since this router has known it, by its metrics." }),
  oldest_wait_ms: nullable(Type.Number(), {
    description: "Age of the oldest request from this router in flight without a first token; null without one.",
  }),
  unresponsive_ms: nullable(Type.Number(), {
    description: "Time since the last sign of work of an engine that should have answered; null for one that works.",
  }),
  last_minute: closed(
    {
      first_tokens: Type.Integer({ description: "First tokens measured; at most 64." }),
      ttft_ms: nullable(Type.Number(), { description: "Median time from dispatch to first token." }),
      tpot_ms: nullable(Type.Number(), { description: "Median time per output token after the first." }),
    },
    { description: "Streams of this router." },
  ),
  targets: Type.Array(targetDescription),
});

export type EngineDescription = Described<typeof engineDescription>;

/** What operators see of an engine: `espalier engines` and `GET /admin/engines`. */
export function describeEngine(engine: EngineRecord): EngineDescription {
  const { health, breaker } = engine;
  return {
    id: engine.id,
    url: engine.url,
    state: engine.state,
    reason: engine.stateReason,
    since: new Date(engine.stateSinceWallMs).toISOString(),
    draining: engine.draining,
    paused: engine.isPaused,
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
    restarts: engine.restarts,
    oldest_wait_ms: known(Math.round(engine.wait.oldestMs)),
    unresponsive_ms: known(Math.round(engine.wait.unresponsiveMs)),
    last_minute: {
      first_tokens: engine.pace.firstTokens,
      ttft_ms: known(Math.round(engine.pace.ttftMs)),
      tpot_ms: known(Math.round(engine.pace.tpotMs * 10) / 10),
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
