import type {
  Clock,
  EngineId,
  EngineRole,
  EngineSpec,
  HttpClient,
  Logger,
  Random,
  Scheduler,
  TargetIndex,
} from "@espalier/core";
import { type BreakerState, createBreaker, type OwnedBreaker } from "./breaker.ts";
import type { ControlPace } from "./control-pace.ts";
import { createEngineMonitor, type EngineMonitor } from "./engine-monitor.ts";
import { PaceRecord } from "./engine-pace.ts";
import {
  type EngineHealth,
  type EngineRecord,
  type EngineState,
  rankNumber,
  type Target,
  type TargetExclusion,
  targetKey,
} from "./engine-record.ts";
import { createEngineSignals, type OwnedSignals } from "./engine-signals.ts";
import { type EngineWait, waitOf } from "./engine-wait.ts";
import type { FleetSharing } from "./fleet.ts";
import type { EngineMeters } from "./fleet-meters.ts";
import type { FleetOptions } from "./fleet-options.ts";
import { RoundTrip } from "./round-trip.ts";
import { type ModelList, modelsFromNames, type ServedModel, sameModels } from "./served-models.ts";
import { createTargetAdapters, type OwnedTargetAdapters } from "./target-adapters.ts";
import { createTargetLoad, type TargetLoad } from "./target-load.ts";

/** What changed about an engine. */
export type EngineChange =
  | "state"
  | "spec"
  | "models"
  | "draining"
  | "breaker"
  | "cooldown"
  | "restarted"
  | "asleep"
  | "paused"
  | "emptied";

export interface EngineDeps {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly http: HttpClient;
  readonly logger: Logger;
  readonly options: FleetOptions;
  readonly meters: (engine: EngineId) => EngineMeters;
  onChange(change: EngineChange, engine: Engine): void;
  readonly sharing?: FleetSharing;
  /** By how many engines there are now. */
  readonly pace: () => ControlPace;
  /** As `FleetDeps` has it. */
  readonly metricsEveryMs?: ((models: readonly string[]) => number | undefined) | undefined;
  /** A removed engine has no request left. */
  onIdle(engine: Engine): void;
}

/** Longest cooldown that an engine can ask for with `Retry-After`. */
const maxCooldownMs = 10_000;

/** The mutable side of an engine's record. Only the fleet and the engine's monitor change it. */
export class Engine implements EngineRecord {
  readonly id: EngineId;
  readonly url: string;
  readonly breaker: OwnedBreaker;
  readonly targets: readonly RankTarget[];
  spec: EngineSpec;
  state: EngineState = "starting";
  stateReason = "new";
  stateSinceWallMs: number;
  draining = false;
  isPaused = false;
  models: readonly ServedModel[] | undefined;
  health: EngineHealth = { lastOutcome: undefined, consecutiveFailures: 0, consecutiveSuccesses: 0 };
  /** Whether its breaker is overruled; see `overruledEngines`. Panic mode sets it. */
  isOverruled = false;
  /** Whether it is tried although it is down; see `findHealthPanic`. Panic mode sets it. */
  isTried = false;
  /** Its scrape sets it. */
  isUnread = true;
  /** When it last answered a request or generated tokens, on the monotonic clock. */
  lastAnswerMs = Number.NEGATIVE_INFINITY;
  /** When a number in its metrics last changed, on the same clock. Its scrape sets it. */
  lastChangeMs = Number.NEGATIVE_INFINITY;
  readonly pace: PaceRecord;
  /** Requests in flight over all ranks. */
  inFlight = 0;
  restarts = 0;
  readonly #roundTrip: RoundTrip;
  meters: EngineMeters;
  readonly logger: Logger;
  readonly #deps: EngineDeps;
  readonly #monitor: EngineMonitor;
  #breakerState: BreakerState = "closed";
  #cooldownUntilMs = Number.NEGATIVE_INFINITY;
  #shownFirstRank = 0;
  #hasOtherRanks = false;
  /** Ranks that were asleep when it was looked at last. */
  #asleepRanks: readonly number[] = [];

  /** @param indices one for each rank */
  constructor(deps: EngineDeps, spec: EngineSpec, indices: readonly TargetIndex[]) {
    this.id = spec.id;
    this.url = spec.url;
    this.spec = spec;
    this.stateSinceWallMs = deps.clock.wallMs();
    this.logger = deps.logger.child({ engine: spec.id });
    this.#roundTrip = new RoundTrip(deps.clock);
    this.pace = new PaceRecord(deps.clock);
    this.#deps = deps;
    const { clock, scheduler, random, options } = deps;
    const onBreaker = (): void => this.#breakerChanged();
    const onSuccess = (): void => this.answersRequests();
    this.breaker = createBreaker({
      clock,
      scheduler,
      random,
      options: options.breaker,
      onChange: onBreaker,
      onSuccess,
      isIgnoring: () => this.isPaused,
    });
    this.targets = indices.map((index, rank) => new RankTarget(this, index, rank, deps));
    this.meters = this.#newMeters();
    this.#monitor = createEngineMonitor(deps, this);
  }

  get networkMs(): number {
    return this.#roundTrip.ms;
  }

  /** @param ms from a request to its answer on an open connection; not a number if that is not known */
  answered(ms: number): void {
    const before = this.networkMs;
    this.#roundTrip.measured(ms);
    const now = this.networkMs;
    if (now !== before && !Number.isNaN(now) && this.state !== "removed") this.meters.network(now);
  }

  get wait(): EngineWait {
    return waitOf(this, this.#deps.clock);
  }

  /**
   * Measures what changes by itself as time passes. An unresponsive engine gets trial requests only, because each request that
   * waits there hides from policies how slow it is.
   */
  measure(): void {
    if (this.state === "removed") return;
    const { wait } = this;
    this.meters.wait(wait);
    this.meters.pace(this.pace);
    if (!Number.isNaN(wait.unresponsiveMs) && !this.isPaused) this.breaker.trip("unresponsive: no output");
  }

  answersRequests(): void {
    this.lastAnswerMs = this.#deps.clock.nowMs();
  }

  get role(): EngineRole {
    return this.spec.role;
  }

  get weight(): number {
    return this.spec.weight;
  }

  get kvEvents(): EngineSpec["kvEvents"] {
    return this.spec.kvEvents;
  }

  get kvTransfer(): EngineSpec["kvTransfer"] {
    return this.spec.kvTransfer;
  }

  get kvPull(): EngineSpec["kvPull"] {
    return this.spec.kvPull;
  }

  get region(): string | undefined {
    return this.spec.region;
  }

  get firstRank(): number {
    return this.spec.firstRank ?? this.#shownFirstRank;
  }

  /**
   * Its metrics name these ranks.
   *
   * @param numbers ascending
   * @returns whether its first rank is another one than before
   */
  ranksShown(numbers: readonly number[]): boolean {
    if (numbers.length === 0) return false;
    const before = this.firstRank;
    const [first] = numbers;
    const count = this.targets.length;
    const isWhole = numbers.length === count && numbers[count - 1] === first! + count - 1;
    if (isWhole) this.#shownFirstRank = first!;
    const isOther = count > 1 && !this.targets.every(({ rank }) => numbers.includes(this.firstRank + rank));
    if (isOther && !this.#hasOtherRanks) {
      const { firstRank } = this;
      this.logger.warn("ranks in an engine's metrics differ from its configuration", {
        shown: numbers,
        firstRank,
        count,
      });
    }
    this.#hasOtherRanks = isOther;
    if (this.firstRank === before) return false;
    this.#deps.onChange("spec", this);
    return true;
  }

  get labels(): EngineSpec["labels"] {
    return this.spec.labels;
  }

  /** Begins to probe. The first probe goes out at once. */
  start(): void {
    this.#monitor.start();
  }

  stop(): void {
    this.#monitor.stop();
    this.breaker.stop();
  }

  /** @param spec another description of the same engine, at the same address */
  update(spec: EngineSpec): void {
    this.spec = spec;
    this.takeNamedModels();
    this.#monitor.refreshModels();
    this.#deps.onChange("spec", this);
  }

  /** See `Fleet.refreshModels`. */
  refreshModels(): Promise<void> {
    return this.#monitor.readModelsAgain();
  }

  enter(state: EngineState, reason: string): void {
    const fields = { from: this.state, to: state, reason, url: this.url };
    this.state = state;
    this.stateReason = reason;
    this.stateSinceWallMs = this.#deps.clock.wallMs();
    if (state !== "removed") this.meters.up(state === "up");
    if (state === "down" || state === "unreachable") this.logger.warn("engine state changed", fields);
    else this.logger.info("engine state changed", fields);
    this.#deps.onChange("state", this);
  }

  /** Its metrics show that its process was restarted. */
  restarted(): void {
    this.restarts += 1;
    if (this.state !== "removed") this.meters.restarted();
    this.logger.info("engine restarted");
    this.#deps.onChange("restarted", this);
  }

  /** Looks which ranks are asleep, after their signals have changed. */
  lookWhoSleeps(): void {
    const asleep = this.targets.flatMap((target) => (target.signals.awake === 0 ? [rankNumber(target)] : []));
    if (asleep.join() === this.#asleepRanks.join()) return;
    this.#asleepRanks = asleep;
    if (this.state !== "removed") this.meters.asleep(asleep.length);
    if (asleep.length > 0) this.logger.info("engine asleep", { ranks: asleep });
    else this.logger.info("engine awake");
    this.#deps.onChange("asleep", this);
  }

  setDraining(draining: boolean): void {
    if (this.draining === draining) return;
    this.draining = draining;
    this.logger.info("engine draining changed", { draining });
    this.#deps.onChange("draining", this);
  }

  setPaused(isPaused: boolean): void {
    if (this.isPaused === isPaused) return;
    this.isPaused = isPaused;
    // Its silence until now says nothing.
    if (!isPaused) this.answersRequests();
    this.logger.info(isPaused ? "engine paused" : "engine resumed");
    this.#deps.onChange("paused", this);
  }

  /** Its weights are others now, or its caches were emptied. */
  voidCaches(): void {
    this.logger.info("engine caches void");
    this.#deps.onChange("emptied", this);
  }

  /** Whether a cooldown that it asked for is still running. */
  get isCoolingDown(): boolean {
    return this.#cooldownUntilMs !== Number.NEGATIVE_INFINITY && this.#deps.clock.nowMs() < this.#cooldownUntilMs;
  }

  coolDown(pauseMs: number): void {
    const untilMs = this.#deps.clock.nowMs() + Math.min(maxCooldownMs, pauseMs);
    this.#cooldownUntilMs = Math.max(this.#cooldownUntilMs, untilMs);
    this.logger.debug("engine in cooldown after Retry-After", { pauseMs });
    this.#deps.onChange("cooldown", this);
  }

  /** Panic mode: no other engine is left for a model. */
  endCooldown(): void {
    this.#cooldownUntilMs = Number.NEGATIVE_INFINITY;
    this.logger.info("engine cooldown ignored: last engine of a model");
  }

  overrule(isOverruled: boolean): void {
    if (this.isOverruled === isOverruled) return;
    this.isOverruled = isOverruled;
    if (this.state !== "removed") this.meters.overruled(isOverruled);
    if (isOverruled) this.logger.warn("engine breaker ignored: too many open");
    else this.logger.info("engine breaker respected again");
  }

  /**
   * Sends it requests although it is down. The breaker is half-open meanwhile, so that one request at a time tests whether
   * the health checks are right.
   */
  tryThoughDown(isTried: boolean): void {
    if (this.isTried === isTried) return;
    this.isTried = isTried;
    if (this.state !== "removed") this.meters.tried(isTried);
    if (isTried) this.breaker.halfOpen("panic mode: down engine gets requests");
    else this.breaker.trust("panic mode ended: health checks respected again");
  }

  /** Uses the models that discovery names, if it names any. */
  takeNamedModels(): void {
    if (this.spec.models.length === 0) return;
    this.takeModels(modelsFromNames(this.spec.models, Math.floor(this.#deps.clock.wallMs() / 1_000)));
  }

  takeModels({ models, ignored }: ModelList): void {
    const known = this.models ?? [];
    if (this.models && sameModels(known, models)) return;
    this.models = models.map((model) => ({
      ...model,
      created: known.find(({ id }) => id === model.id)?.created ?? model.created,
    }));
    this.logger.info("engine models changed", { models: models.length });
    if (ignored > 0) this.logger.warn("too many models of an engine; ignoring the rest", { ignored });
    this.#deps.onChange("models", this);
  }

  /** Takes no new work from now on. The fleet removes it once nothing is in flight. */
  retire(reason: string): void {
    this.#monitor.stop();
    this.meters.remove();
    this.enter("removed", reason);
    this.#reportIdle();
  }

  /** Undoes `retire`, for an engine that came back before its last request had ended. */
  revive(spec: EngineSpec): void {
    this.meters = this.#newMeters();
    this.enter("starting", "back in discovery");
    this.update(spec);
  }

  inFlightChanged(change: 1 | -1): void {
    this.inFlight += change;
    if (this.state === "removed") this.#reportIdle();
    else this.meters.inFlight(this.inFlight);
  }

  #reportIdle(): void {
    if (this.inFlight === 0) this.#deps.onIdle(this);
  }

  #newMeters(): EngineMeters {
    const meters = this.#deps.meters(this.id);
    meters.up(false);
    meters.inFlight(this.inFlight);
    meters.breaker(this.breaker.state);
    meters.overruled(this.isOverruled);
    meters.tried(this.isTried);
    meters.asleep(this.#asleepRanks.length);
    meters.wait(this.wait);
    if (!Number.isNaN(this.networkMs)) meters.network(this.networkMs);
    return meters;
  }

  #breakerChanged(): void {
    const { state, reason } = this.breaker;
    const fields = { from: this.#breakerState, to: state, reason };
    this.#breakerState = state;
    if (state === "open") this.logger.warn("engine breaker changed", fields);
    else this.logger.info("engine breaker changed", fields);
    if (this.state === "removed") return;
    this.meters.breaker(state);
    this.#deps.onChange("breaker", this);
  }
}

class RankTarget implements Target {
  readonly index: TargetIndex;
  readonly key: string;
  readonly rank: number;
  readonly engine: Engine;
  readonly load: TargetLoad;
  readonly signals: OwnedSignals;
  readonly adapters: OwnedTargetAdapters;

  constructor(engine: Engine, index: TargetIndex, rank: number, { clock, sharing }: EngineDeps) {
    this.index = index;
    this.rank = rank;
    this.key = targetKey(engine.id, rank);
    this.engine = engine;
    this.load = createTargetLoad({
      clock,
      onInFlight: (change) => engine.inFlightChanged(change),
      onTokens: () => engine.answersRequests(),
      onFirstToken: (afterMs, tokensAhead) => engine.pace.firstToken(afterMs, tokensAhead),
      onStreamed: (msPerToken) => engine.pace.streamed(msPerToken),
      ...(sharing ? { onChange: () => sharing.loadChanged(this) } : {}),
    });
    this.signals = createEngineSignals(clock);
    this.adapters = createTargetAdapters(() => clock.nowMs());
  }

  get networkMs(): number {
    return this.engine.networkMs;
  }

  get usable(): boolean {
    return this.exclusion === undefined;
  }

  get exclusion(): TargetExclusion | undefined {
    const { state, draining, isPaused, breaker, isOverruled, isTried, isCoolingDown } = this.engine;
    if (state !== "up" && !isTried) return state;
    if (this.signals.awake === 0) return "asleep";
    if (isPaused) return "paused";
    if (draining) return "draining";
    if (!breaker.allows && !isOverruled) return breaker.state === "open" ? "circuit_open" : "half_open";
    return isCoolingDown ? "cooldown" : undefined;
  }
}
