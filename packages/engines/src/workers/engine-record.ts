import type { EngineId, EngineRole, KvEventsSpec, KvPullSpec, KvTransferSpec, TargetIndex } from "@espalier/core";
import type { Breaker } from "./breaker.ts";
import type { FetchOutcome } from "./control-fetch.ts";
import type { EnginePace } from "./engine-pace.ts";
import type { EngineSignals } from "./engine-signals.ts";
import type { EngineWait } from "./engine-wait.ts";
import type { ServedModel } from "./served-models.ts";
import type { TargetAdapters } from "./target-adapters.ts";
import type { TargetLoad } from "./target-load.ts";

/**
 * `starting`: new, not yet seen healthy. `unreachable`: new, and none of 30 probes was answered. `up` and `down`: as health probes say. `removed`: gone from discovery, kept
 * only until its last request has ended.
 */
export type EngineState = "starting" | "unreachable" | "up" | "down" | "removed";

export interface EngineHealth {
  /** How the last probe ended; undefined before the first. */
  readonly lastOutcome: FetchOutcome | undefined;
  readonly consecutiveFailures: number;
  readonly consecutiveSuccesses: number;
}

/** All that the router knows about one engine. A live view: its fields change under the reader. */
export interface EngineRecord {
  readonly id: EngineId;
  readonly url: string;
  readonly state: EngineState;
  /** Why it is in this state, for people. */
  readonly stateReason: string;
  /** Unix milliseconds at which it entered this state. */
  readonly stateSinceWallMs: number;
  /** Set by an operator: finish what runs, take nothing new. */
  readonly draining: boolean;
  /** Whether an RL framework paused it, or released its memory. Neither its failures nor its health checks count then. */
  readonly isPaused: boolean;
  readonly role: EngineRole;
  /** Relative share of traffic, above 0. */
  readonly weight: number;
  readonly labels: Readonly<Record<string, string>>;
  /** Where it is; undefined if that is not known. */
  readonly region: string | undefined;
  /** Where it publishes KV events, according to discovery. */
  readonly kvEvents: KvEventsSpec | undefined;
  /** Its role in requests that two engines serve together; undefined without one. */
  readonly kvTransfer: KvTransferSpec | undefined;
  /** How it fetches KV blocks from other engines and lends its own; undefined if it does neither. */
  readonly kvPull: KvPullSpec | undefined;
  /** The models it serves; undefined until it or discovery has named them. While it is down, the last known models. */
  readonly models: readonly ServedModel[] | undefined;
  readonly health: EngineHealth;
  /** Whether no metrics of it were read since it came up. */
  readonly isUnread: boolean;
  /** Milliseconds of a round trip between this router and the engine; NaN until it is measured. */
  readonly networkMs: number;
  /** How often its process was restarted since this router has known it. */
  readonly restarts: number;
  /** How fast it has answered in the last minute. */
  readonly pace: EnginePace;
  /** For how long requests from this router wait for it, now. */
  readonly wait: EngineWait;
  readonly breaker: Breaker;
  /** Whether its breaker is overruled, because those of too many engines are open. */
  readonly isOverruled: boolean;
  /** Whether it is tried although it is down, because too few of a model's engines are up. */
  readonly isTried: boolean;
  /** Whether it is in a `Retry-After` cooldown and gets no requests. */
  readonly isCoolingDown: boolean;
  /**
   * Starts a cooldown, 10 s at most: it answered that it is saturated, with `Retry-After`. It ends when a model has no other
   * usable engine.
   */
  coolDown(pauseMs: number): void;
  /** One per rank. */
  readonly targets: readonly Target[];
  /** The engine's number of its first rank: not 0 at the second node of vLLM's hybrid load balancing. */
  readonly firstRank: number;
}

/** Why a target gets no requests: the state of its engine, or what keeps one that is up from use. */
export const targetExclusions = [
  "starting",
  "unreachable",
  "down",
  "removed",
  "draining",
  "circuit_open",
  "half_open",
  "cooldown",
  "asleep",
  "paused",
] as const;
/**
 * `half_open`: the trial request of its circuit breaker is in flight. `cooldown`: it answered with `Retry-After`. `asleep`: its
 * metrics say so, and it answers no request until it is awake. `paused`: an RL framework paused it through a router.
 */
export type TargetExclusion = (typeof targetExclusions)[number];

/** The number by which its engine knows a rank. */
export function rankNumber({
  engine,
  rank,
}: {
  readonly engine: Pick<EngineRecord, "firstRank">;
  rank: number;
}): number {
  return engine.firstRank + rank;
}

/** The key of a target, the same in every router: the engine's id, with `#rank` after it for ranks other than 0. */
export function targetKey(engine: EngineId, rank: number): string {
  return rank === 0 ? engine : `${engine}#${rank}`;
}

/** The destination of a request: one rank of an engine. */
export interface Target {
  /** Dense in this process, and reused only after the engine is gone. */
  readonly index: TargetIndex;
  /** See `targetKey`. */
  readonly key: string;
  /** Position among the engine's data-parallel ranks, from 0. */
  readonly rank: number;
  readonly engine: EngineRecord;
  readonly load: TargetLoad;
  readonly signals: EngineSignals;
  readonly adapters: TargetAdapters;
  /** That of its engine. */
  readonly networkMs: number;
  /** Whether it gets requests. */
  readonly usable: boolean;
  /** Why it gets none; undefined for a usable one. */
  readonly exclusion: TargetExclusion | undefined;
}

/** Whether all ranks of an engine are asleep. */
export function isEngineAsleep({ targets }: Pick<EngineRecord, "targets">): boolean {
  return targets.every(({ exclusion }) => exclusion === "asleep");
}

/** Whether sleep is why none of these targets is usable: all are asleep whose engine is up and not drained. */
export function areAsleep(targets: readonly Target[]): boolean {
  const able = targets.filter(({ engine }) => engine.state === "up" && !engine.draining);
  return able.length > 0 && able.every(({ exclusion }) => exclusion === "asleep");
}

/**
 * The kind of an engine: SGLang if its list of models or its metrics are SGLang's, else vLLM, which others imitate.
 */
export function engineKindOf({ models, targets }: Pick<EngineRecord, "models" | "targets">): "vllm" | "sglang" {
  const isSglang =
    models?.some(({ ownedBy }) => ownedBy === "sglang") || targets.some(({ signals }) => signals.dialect === "sglang");
  return isSglang ? "sglang" : "vllm";
}
