import type { EngineRecord, Target } from "./engine-record.ts";
import type { TargetAdapters } from "./target-adapters.ts";

/** One engine as plain JSON, for operators. */
export interface EngineDescription {
  readonly id: string;
  readonly url: string;
  readonly state: string;
  readonly reason: string;
  /** ISO 8601. */
  readonly since: string;
  readonly draining: boolean;
  /** null until known. */
  readonly models: readonly string[] | null;
  readonly role: string;
  /** How it hands KV blocks to other engines; null when it does not. */
  readonly kv_transfer: string | null;
  /** How it fetches KV blocks from other engines; null when it does not. */
  readonly kv_pull: string | null;
  readonly weight: number;
  readonly labels: Readonly<Record<string, string>>;
  /** Where it is; null if that is not known. */
  readonly region: string | null;
  /** Milliseconds of a round trip to it, to the hundredth; null until it is measured. */
  readonly network_ms: number | null;
  /** `overruled`: it is ignored, because those of too many engines are open. */
  readonly breaker: { readonly state: string; readonly reason: string; readonly overruled: boolean };
  /** `overruled`: it is tried although it is down, because too few engines of a model are up. */
  readonly health: {
    readonly last_outcome: string | null;
    readonly consecutive_failures: number;
    readonly consecutive_successes: number;
    readonly overruled: boolean;
  };
  readonly targets: readonly TargetDescription[];
}

export interface TargetDescription {
  readonly key: string;
  readonly usable: boolean;
  readonly load: {
    readonly in_flight: number;
    readonly pending_prefill_tokens: number;
    readonly decode_tokens: number;
    readonly outstanding_output_tokens: number;
  };
  /** null where the engine's metrics say nothing. */
  readonly signals: {
    readonly dialect: string | null;
    readonly age_ms: number | null;
    readonly running: number | null;
    readonly waiting: number | null;
    readonly kv_use: number | null;
    readonly block_size: number | null;
    readonly block_count: number | null;
    readonly prompt_tokens_total: number | null;
    readonly generation_tokens_total: number | null;
    readonly prefix_queries: number | null;
    readonly prefix_hits: number | null;
  };
  /** LoRA adapters; null while none was ever reported or requested. */
  readonly adapters: {
    readonly slots: number | null;
    readonly running: readonly string[];
    readonly waiting: readonly string[];
    /** Those assumed to be loaded, least recently used first. */
    readonly loaded: readonly string[];
  } | null;
}

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

function describeTarget({ key, usable, load, signals, adapters }: Target): TargetDescription {
  return {
    key,
    usable,
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
