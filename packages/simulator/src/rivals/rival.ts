import type { Clock, Random, Scheduler } from "@espalier/core";
import type { EngineParameters } from "@espalier/engine-model";
import type { SimRequest } from "../clients/workload.ts";
import type { FrontOutcome } from "../fleet/front.ts";
import type { SimEngine } from "../fleet/sim-engine.ts";
import type { Placement } from "../topology.ts";

export interface RivalParts {
  readonly engines: readonly SimEngine[];
  /** By the engine's number. */
  readonly parametersOf: (engine: number) => EngineParameters;
  readonly placement: Placement;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
}

/** A published system in place of our routers, built by its authors' rules. It runs as long as the fleet. */
export interface Rival {
  /**
   * Takes a client's request from a region, and answers there.
   *
   * @param ended called once
   */
  handle(request: SimRequest, region: number, ended: (outcome: FrontOutcome) => void): void;
}

export type CreateRival = (parts: RivalParts) => Rival;
