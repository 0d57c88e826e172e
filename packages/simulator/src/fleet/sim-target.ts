import { asEngineId, asTargetIndex, type Clock, type EngineId, type TargetIndex } from "@espalier/common";
import type { RoutingTarget } from "@espalier/routing";
import { createTargetLoad, type TargetLoad } from "@espalier/workers";
import { blockTokens } from "../clients/workload.ts";
import type { SimEngine } from "./sim-engine.ts";

/** What engines' own metrics said when a router last read them. */
class SimSignals {
  running = Number.NaN;
  waiting = Number.NaN;
  kvUse = Number.NaN;
  readonly blockSize = blockTokens;
  readonly blockCount: number;
  readonly promptTokensTotal = Number.NaN;
  readonly generationTokensTotal = Number.NaN;
  readonly prefixQueries = Number.NaN;
  readonly prefixHits = Number.NaN;
  inFlightAtScrape = Number.NaN;
  readonly #clock: Clock;
  #atMs = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock, blockCount: number) {
    this.#clock = clock;
    this.blockCount = blockCount;
  }

  ageMs(): number {
    return this.#clock.nowMs() - this.#atMs;
  }

  read(engine: SimEngine, inFlight: number): void {
    const stats = engine.stats();
    this.running = stats.running;
    this.waiting = stats.waiting;
    this.kvUse = stats.kvUse;
    this.inFlightAtScrape = inFlight;
    this.#atMs = this.#clock.nowMs();
  }

  forget(): void {
    this.running = Number.NaN;
    this.waiting = Number.NaN;
    this.kvUse = Number.NaN;
    this.inFlightAtScrape = Number.NaN;
    this.#atMs = Number.NEGATIVE_INFINITY;
  }
}

/** An engine as one router sees it. */
export class SimTarget implements RoutingTarget {
  readonly index: TargetIndex;
  readonly key: string;
  readonly engine: { readonly id: EngineId; readonly role: "both"; readonly weight: number };
  readonly load: TargetLoad;
  readonly signals: SimSignals;
  /** The engine itself, to which requests go. */
  readonly model: SimEngine;
  usable = true;
  #goodProbes = 0;

  constructor(options: {
    readonly model: SimEngine;
    readonly index: number;
    readonly clock: Clock;
    readonly onChange: (target: SimTarget) => void;
  }) {
    const { model, index, clock, onChange } = options;
    this.model = model;
    this.index = asTargetIndex(index);
    this.key = model.key;
    this.engine = { id: asEngineId(model.key), role: "both", weight: 1 };
    this.load = createTargetLoad({ onChange: () => onChange(this) });
    this.signals = new SimSignals(clock, model.kvTokens / blockTokens);
  }

  /** A request was refused, or the engine went away while it answered. */
  failed(): void {
    this.usable = false;
    this.#goodProbes = 0;
  }

  /** A health probe: two good ones bring an engine back. */
  probe(): void {
    if (!this.model.isUp) this.failed();
    else if (!this.usable && ++this.#goodProbes >= 2) this.usable = true;
  }
}
