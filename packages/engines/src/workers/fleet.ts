import {
  asTargetIndex,
  type Clock,
  type EngineId,
  type EngineSpec,
  type HttpClient,
  type KvPullSpec,
  type KvTransferSpec,
  type Logger,
  type Meter,
  type Random,
  type Scheduler,
  type Startable,
  type TargetIndex,
} from "@espalier/core";
import { controlPaceOf } from "./control-pace.ts";
import { Engine, type EngineChange, type EngineDeps } from "./engine.ts";
import { type EngineRecord, type Target, targetKey } from "./engine-record.ts";
import { createFleetMeters } from "./fleet-meters.ts";
import { completeFleetOptions, type FleetOptionsInput } from "./fleet-options.ts";
import { createPanicMode, type PanicMode } from "./panic-mode.ts";
import { type ManagedAdapter, type ModelEntry, ModelIndex } from "./served-models.ts";

/** What `apply` changed. */
interface ApplyReport {
  readonly added: readonly EngineId[];
  /** Known before, with another description now. A new address makes it another engine with the same id. */
  readonly changed: readonly EngineId[];
  readonly removed: readonly EngineId[];
  readonly refused: readonly { readonly id: EngineId; readonly reason: string }[];
}

/** `gone` comes last: the engine's target indices may be reused after it. */
export type FleetChange = EngineChange | "added" | "gone";

export interface FleetDeps {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly http: HttpClient;
  readonly logger: Logger;
  readonly meter: Meter;
  readonly options?: FleetOptionsInput;
  readonly sharing?: FleetSharing;
  /** Without `sharing`, target indices below this one are not given to targets; 0 by default. */
  readonly firstIndex?: number;
  /**
   * How often to scrape an engine that serves these models. Called before each pause; undefined means `scrape.intervalMs` of
   * the options.
   */
  readonly metricsEveryMs?: EngineDeps["metricsEveryMs"];
  /** LoRA adapters that engines load on demand; none by default. */
  readonly adapters?: readonly ManagedAdapter[];
}

export interface Fleet extends Startable {
  /**
   * Makes the fleet what `specs` says. A removed engine with requests in flight stays, as `removed`, until the last of
   * them has ended; it is in no pool. Probing begins at once, or with `start`.
   */
  apply(specs: readonly EngineSpec[]): ApplyReport;
  /** All engines, removed ones with work in flight included, in the order they were first seen. */
  readonly engines: readonly EngineRecord[];
  /**
   * Targets that serve this model, in any state, in the order of `engines`. The array is never changed; it is the same
   * one until engines or their models change.
   */
  pool(model: string): readonly Target[];
  /** Every model that some engine serves, sorted by id. The same array until engines or their models change. */
  models(): readonly ModelEntry[];
  /** One of them. */
  model(id: string): ModelEntry | undefined;
  target(index: TargetIndex): Target | undefined;
  /** The engine with this id; a removed one only when no other has the id. */
  engine(id: EngineId): EngineRecord | undefined;
  /**
   * Marks an engine as draining, or as taking work again. It outlasts changes of its spec.
   *
   * @returns false when no engine has this id
   */
  setDraining(id: EngineId, draining: boolean): boolean;
  /** Takes an engine out of use without calling it failed, or back into use. It outlasts changes of its spec. */
  setPaused(id: EngineId, isPaused: boolean): void;
  /** What is believed to be in an engine's caches is so no longer. */
  voidCaches(id: EngineId): void;
  /**
   * Reads the list of models of one engine again, or those of all engines: an answer has shown that it may be wrong. An
   * engine is asked at most every two seconds, and not at all where discovery names its models.
   *
   * @returns fulfilled when the lists are read; never rejected
   */
  refreshModels(id?: EngineId): Promise<void>;
  /**
   * Engines that could take a whole request now: with a usable target, serving a model, and not for prefill only. An engine
   * that is tried although it is down counts once trial requests to it have succeeded.
   */
  usableCount(): number;
  /**
   * @param listener called after every change; what it throws is logged
   * @returns ends the subscription
   */
  onChange(listener: (change: FleetChange, engine: EngineRecord) => void): () => void;
}

/** An empty fleet. */
export function createFleet(deps: FleetDeps): Fleet {
  return new EngineFleet(deps);
}

class EngineFleet implements Fleet {
  readonly #logger: Logger;
  readonly #firstIndex: number;
  readonly #engineDeps: EngineDeps;
  readonly #active = new Map<EngineId, Engine>();
  /** Active engines and removed ones with requests in flight, in the order they were first seen. */
  readonly #all = new Set<Engine>();
  readonly #removed = new Set<Engine>();
  readonly #targets: (Target | undefined)[] = [];
  readonly #listeners = new Set<(change: FleetChange, engine: EngineRecord) => void>();
  readonly #panicMode: PanicMode;
  #running = false;
  #pace = controlPaceOf(0, 0);
  #engines: readonly EngineRecord[] | undefined;
  readonly #index: ModelIndex;

  constructor({ meter, options = {}, adapters = [], firstIndex = 0, ...deps }: FleetDeps) {
    this.#logger = deps.logger;
    this.#index = new ModelIndex(adapters);
    this.#firstIndex = firstIndex;
    this.#engineDeps = {
      ...deps,
      options: completeFleetOptions(options),
      meters: createFleetMeters(meter),
      pace: () => this.#pace,
      onChange: (change, engine) => this.#changed(change, engine),
      onIdle: (engine) => this.#forget(engine),
    };
    this.#panicMode = createPanicMode({
      ...{ logger: deps.logger, options: this.#engineDeps.options },
      pools: () => this.#index.pools(),
      has: (engine) => this.#all.has(engine),
    });
  }

  async start(): Promise<void> {
    this.#running = true;
    for (const engine of this.#active.values()) engine.start();
  }

  async stop(): Promise<void> {
    this.#running = false;
    for (const engine of this.#all) engine.stop();
  }

  apply(specs: readonly EngineSpec[]): ApplyReport {
    const { wanted, refused } = selectSpecs(specs);
    const added: EngineId[] = [];
    const changed: EngineId[] = [];
    const removed: EngineId[] = [];
    this.#setPace([...wanted.values()]);
    for (const engine of [...this.#active.values()]) {
      if (wanted.has(engine.id)) continue;
      removed.push(engine.id);
      this.#retire(engine, "gone from discovery");
    }
    for (const spec of wanted.values()) {
      const engine = this.#active.get(spec.id);
      if (!engine) {
        added.push(spec.id);
        this.#admit(spec, false);
      } else if (!samePlace(engine.spec, spec)) {
        changed.push(spec.id);
        this.#retire(engine, engine.url === spec.url ? "has other ranks" : `moved to ${spec.url}`);
        this.#admit(spec, engine.draining);
      } else if (!sameSpec(engine.spec, spec)) {
        changed.push(spec.id);
        engine.update(spec);
      }
    }
    for (const { id, reason } of refused) this.#logger.error("engine refused", { engine: id, reason });
    return { added, changed, removed, refused };
  }

  get engines(): readonly EngineRecord[] {
    this.#engines ??= [...this.#all];
    return this.#engines;
  }

  pool(model: string): readonly Target[] {
    return this.#index.pool(model);
  }

  models(): readonly ModelEntry[] {
    return this.#index.models();
  }

  model(id: string): ModelEntry | undefined {
    return this.#index.entry(id);
  }

  target(index: TargetIndex): Target | undefined {
    return this.#targets[index];
  }

  engine(id: EngineId): EngineRecord | undefined {
    return this.#active.get(id) ?? this.engines.find((engine) => engine.id === id);
  }

  setDraining(id: EngineId, draining: boolean): boolean {
    const engine = this.#active.get(id);
    engine?.setDraining(draining);
    return engine !== undefined;
  }

  setPaused(id: EngineId, isPaused: boolean): void {
    this.#active.get(id)?.setPaused(isPaused);
  }

  voidCaches(id: EngineId): void {
    this.#active.get(id)?.voidCaches();
  }

  async refreshModels(id?: EngineId): Promise<void> {
    const one = id === undefined ? undefined : this.#active.get(id);
    const engines = id === undefined ? [...this.#active.values()] : one ? [one] : [];
    await Promise.all(engines.map((engine) => engine.refreshModels()));
  }

  usableCount(): number {
    let count = 0;
    for (const engine of this.#active.values()) {
      const isUnproven = engine.state !== "up" && engine.breaker.state !== "closed";
      const canServe = engine.models?.length && engine.role !== "prefill" && !isUnproven;
      if (canServe && engine.targets.some(({ usable }) => usable)) count += 1;
    }
    return count;
  }

  onChange(listener: (change: FleetChange, engine: EngineRecord) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #admit(spec: EngineSpec, draining: boolean): void {
    const known = this.#takeRemoved(spec);
    const engine = known ?? new Engine(this.#engineDeps, spec, this.#indicesFor(spec));
    this.#active.set(spec.id, engine);
    this.#index.set(engine);
    if (known) {
      engine.revive(spec);
    } else {
      this.#all.add(engine);
      for (const target of engine.targets) this.#targets[target.index] = target;
      this.#changed("added", engine);
      engine.takeNamedModels();
    }
    if (draining) engine.setDraining(true);
    if (this.#running) engine.start();
  }

  #setPace(specs: readonly EngineSpec[]): void {
    const before = this.#pace;
    this.#pace = controlPaceOf(
      specs.length,
      specs.reduce((sum, { ranks = 1 }) => sum + ranks, 0),
    );
    const { health, scrape } = this.#engineDeps.options;
    const isSlower = ({ probeMs, scrapeMs }: typeof before): boolean =>
      probeMs > health.intervalMs || scrapeMs > scrape.intervalMs;
    if (isSlower(before) || !isSlower(this.#pace)) return;
    this.#logger.warn("too many engines: probing less often than configured", {
      engines: specs.length,
      healthMs: Math.max(health.intervalMs, this.#pace.probeMs),
      metricsMs: Math.max(scrape.intervalMs, this.#pace.scrapeMs),
    });
  }

  /** The removed engine that `spec` describes, if it still has requests in flight. */
  #takeRemoved(spec: EngineSpec): Engine | undefined {
    for (const engine of this.#removed) {
      if (engine.id !== spec.id || !samePlace(engine.spec, spec)) continue;
      this.#removed.delete(engine);
      return engine;
    }
    return undefined;
  }

  #retire(engine: Engine, reason: string): void {
    this.#index.remove(engine);
    this.#active.delete(engine.id);
    this.#removed.add(engine);
    engine.retire(reason);
  }

  #forget(engine: Engine): void {
    if (!this.#removed.delete(engine)) return;
    this.#all.delete(engine);
    engine.stop();
    for (const target of engine.targets) this.#targets[target.index] = undefined;
    this.#changed("gone", engine);
  }

  /** Indices from `sharing`, or else the lowest free ones. */
  #indicesFor({ id, ranks: count = 1 }: EngineSpec): readonly TargetIndex[] {
    const { sharing } = this.#engineDeps;
    if (sharing) return Array.from({ length: count }, (_, rank) => sharing.indexOf(targetKey(id, rank)));
    const free: TargetIndex[] = [];
    for (let index = this.#firstIndex; free.length < count; index++) {
      if (this.#targets[index] === undefined) free.push(asTargetIndex(index));
    }
    return free;
  }

  #changed(change: FleetChange, engine: Engine): void {
    if (change === "added" || change === "gone") this.#engines = undefined;
    if (change === "models" && this.#active.get(engine.id) === engine) this.#index.set(engine);
    this.#panicMode.changed(change, engine);
    for (const listener of this.#listeners) {
      try {
        listener(change, engine);
      } catch (error) {
        this.#logger.error("a listener of the fleet failed", { change, engine: engine.id, error });
      }
    }
  }
}

/** More engines than this are refused. Removed ones that still have requests in flight do not count. */
export const maxEngines = 4_096;

/** The specs of a list that can be engines together, and why the others are refused. */
function selectSpecs(specs: readonly EngineSpec[]): {
  wanted: ReadonlyMap<EngineId, EngineSpec>;
  refused: ApplyReport["refused"];
} {
  const wanted = new Map<EngineId, EngineSpec>();
  const refused: { id: EngineId; reason: string }[] = [];
  for (const spec of specs) {
    if (wanted.has(spec.id)) refused.push({ id: spec.id, reason: "another engine has this id" });
    else if (wanted.size === maxEngines) refused.push({ id: spec.id, reason: `more than ${maxEngines} engines` });
    else wanted.set(spec.id, spec);
  }
  return { wanted, refused };
}

/** Whether two specs mean the same engine: its URL and its ranks cannot change. */
function samePlace(left: EngineSpec, right: EngineSpec): boolean {
  return left.url === right.url && (left.ranks ?? 1) === (right.ranks ?? 1) && left.firstRank === right.firstRank;
}

/** Whether two specs of one engine are equal. */
function sameSpec(left: EngineSpec, right: EngineSpec): boolean {
  return (
    left.role === right.role &&
    left.weight === right.weight &&
    left.models.length === right.models.length &&
    left.models.every((model, index) => model === right.models[index]) &&
    left.region === right.region &&
    sameLabels(left.labels, right.labels) &&
    left.kvEvents?.endpoint === right.kvEvents?.endpoint &&
    left.kvEvents?.replay === right.kvEvents?.replay &&
    left.kvEvents?.topic === right.kvEvents?.topic &&
    sameAddress(left.kvTransfer, right.kvTransfer) &&
    sameAddress(left.kvPull, right.kvPull)
  );
}

function sameAddress(left: KvTransferSpec | KvPullSpec | undefined, right: typeof left): boolean {
  return left?.protocol === right?.protocol && left?.host === right?.host && left?.port === right?.port;
}

function sameLabels(left: EngineSpec["labels"], right: EngineSpec["labels"]): boolean {
  const keys = Object.keys(left);
  return keys.length === Object.keys(right).length && keys.every((key) => left[key] === right[key]);
}

/** What a fleet shares with the fleets of other routers. */
export interface FleetSharing {
  /** The index for a target. No other target may have it. */
  indexOf(targetKey: string): TargetIndex;
  /** This router's load on the target changed. Called often, so it should only record it. */
  loadChanged(target: Target): void;
  /** Requests that other routers have in flight to a target. */
  othersInFlight(target: TargetIndex): number;
}
