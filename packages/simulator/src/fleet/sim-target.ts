import {
  asEngineId,
  asTargetIndex,
  type Clock,
  type EngineId,
  type EngineRole,
  type KvPullSpec,
  type KvTransferSpec,
  type TargetIndex,
} from "@espalier/core";
import type { EngineStats } from "@espalier/engine-model";
import {
  type AdapterReading,
  createTargetAdapters,
  createTargetLoad,
  type OwnedTargetAdapters,
  type TargetLoad,
  unreportedRequests,
} from "@espalier/engines";
import type { RoutingTarget } from "@espalier/routing";
import { blockTokens } from "../clients/workload.ts";
import type { SimEngine } from "./sim-engine.ts";

/** Columns in the readings of one engine. */
const column = { running: 0, waiting: 1, kvUse: 2, inFlight: 3, foreign: 4, atMs: 5, count: 6 } as const;

/** One router's readings, engine by engine. They are contiguous because every decision scans them. */
export function createReadings(engines: number): Float64Array {
  return new Float64Array(engines * column.count);
}

/** When a router asked an engine for its metrics, and what all routers had in flight there. */
interface Asked {
  readonly inFlight: number;
  readonly atMs: number;
}

/** The last scraped metrics of one engine. */
class SimSignals {
  readonly blockSize = blockTokens;
  readonly blockCount: number;
  readonly promptTokensTotal = Number.NaN;
  readonly generationTokensTotal = Number.NaN;
  readonly prefixQueries = Number.NaN;
  readonly prefixHits = Number.NaN;
  readonly #clock: Clock;
  readonly #readings: Float64Array;
  readonly #first: number;

  constructor(options: {
    readonly clock: Clock;
    readonly blockCount: number;
    readonly readings: Float64Array;
    readonly index: number;
  }) {
    this.#clock = options.clock;
    this.blockCount = options.blockCount;
    this.#readings = options.readings;
    this.#first = options.index * column.count;
    this.forget();
  }

  get running(): number {
    return this.#readings[this.#first + column.running]!;
  }

  get waiting(): number {
    return this.#readings[this.#first + column.waiting]!;
  }

  get kvUse(): number {
    return this.#readings[this.#first + column.kvUse]!;
  }

  get inFlightAtScrape(): number {
    return this.#readings[this.#first + column.inFlight]!;
  }

  ageMs(): number {
    return this.#clock.nowMs() - this.#readings[this.#first + column.atMs]!;
  }

  read(stats: EngineStats, { inFlight, atMs }: Asked): void {
    this.#readings[this.#first + column.running] = stats.running;
    this.#readings[this.#first + column.waiting] = stats.waiting;
    this.#readings[this.#first + column.kvUse] = stats.kvUse;
    const foreign = stats.running + stats.waiting - inFlight;
    const lastForeign = this.#readings[this.#first + column.foreign]!;
    this.#readings[this.#first + column.inFlight] = inFlight + unreportedRequests(foreign, lastForeign);
    this.#readings[this.#first + column.foreign] = foreign;
    this.#readings[this.#first + column.atMs] = atMs;
  }

  forget(): void {
    this.#readings.fill(Number.NaN, this.#first, this.#first + column.atMs);
    this.#readings[this.#first + column.atMs] = Number.NEGATIVE_INFINITY;
  }
}

/** How engines transfer KV blocks in disaggregated serving. */
const nixl: KvTransferSpec = { protocol: "nixl", host: undefined, port: undefined };

/** How they pull them from each other. */
const p2p: KvPullSpec = { protocol: "p2p", host: undefined, port: undefined };

/** What an engine's metrics say at one moment. */
interface SimMetrics {
  readonly stats: EngineStats;
  readonly adapters: AdapterReading | undefined;
}

/** The metrics of an engine now; undefined when it is down. */
export function metricsOf(engine: SimEngine): SimMetrics | undefined {
  return engine.isUp ? { stats: engine.stats(), adapters: engine.adapterReading() } : undefined;
}

/** An engine as one router sees it. */
export class SimTarget implements RoutingTarget {
  readonly index: TargetIndex;
  readonly key: string;
  readonly engine: {
    readonly id: EngineId;
    readonly role: EngineRole;
    readonly weight: number;
    readonly kvTransfer: KvTransferSpec;
    readonly kvPull: KvPullSpec | undefined;
  };
  readonly load: TargetLoad;
  readonly signals: SimSignals;
  readonly adapters: OwnedTargetAdapters;
  /** The engine itself, to which requests go. */
  readonly model: SimEngine;
  /** One way to it, in milliseconds. */
  readonly delayMs: number;
  /** The round trip that the router has measured, in milliseconds; NaN for unknown. */
  readonly networkMs: number;
  usable = true;
  #goodProbes = 0;

  constructor(options: {
    readonly model: SimEngine;
    readonly index: number;
    readonly clock: Clock;
    /** From `createReadings`; shared by all targets of one router. */
    readonly readings: Float64Array;
    readonly onChange: (target: SimTarget) => void;
    /** One way to it, in milliseconds. */
    readonly delayMs: number;
    /** The round trip that the router has measured, in milliseconds; NaN by default. */
    readonly networkMs?: number;
    /** `both` by default. */
    readonly role?: EngineRole | undefined;
  }) {
    const { model, index, clock, readings, onChange, delayMs, networkMs = Number.NaN, role = "both" } = options;
    this.model = model;
    this.delayMs = delayMs;
    this.networkMs = networkMs;
    this.index = asTargetIndex(index);
    this.key = model.key;
    this.engine = {
      id: asEngineId(model.key),
      role,
      weight: 1,
      kvTransfer: nixl,
      kvPull: model.lends ? p2p : undefined,
    };
    this.load = createTargetLoad({ clock, onChange: () => onChange(this) });
    this.adapters = createTargetAdapters(() => clock.nowMs());
    this.signals = new SimSignals({ clock, blockCount: model.kvTokens / blockTokens, readings, index });
  }

  /**
   * Takes an answer of the engine with its metrics, named as in vLLM.
   *
   * @param metrics undefined when the engine was down
   */
  read(metrics: SimMetrics | undefined, asked: Asked): void {
    if (!metrics) {
      this.forget();
      return;
    }
    this.signals.read(metrics.stats, asked);
    this.adapters.accept(metrics.adapters, asked.atMs, true);
  }

  forget(): void {
    this.signals.forget();
    this.adapters.forget();
  }

  get exclusion(): "down" | undefined {
    return this.usable ? undefined : "down";
  }

  /** A request was refused, or the engine disappeared while it answered. */
  failed(): void {
    this.usable = false;
    this.#goodProbes = 0;
  }

  /** A health probe. Two successes bring an engine back. */
  probe(): void {
    if (!this.model.isUp) this.failed();
    else if (!this.usable && ++this.#goodProbes >= 2) this.usable = true;
  }
}
