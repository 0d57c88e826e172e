import type { Clock, Random, Scheduler } from "@espalier/common";
import type { SimRequest } from "../clients/workload.ts";
import type { FrontOutcome } from "../fleet/front.ts";
import type { SimEngine } from "../fleet/sim-engine.ts";

/** Regions by number, and what a request takes from one to another, one way, in milliseconds. */
export interface RivalRegions {
  readonly count: number;
  ofEngine(engine: number): number;
  wayMs(from: number, to: number): number;
  /** From a client in one region to a balancer in another one, or the same. */
  clientMs(client: number, balancer: number): number;
}

export interface RivalParts {
  readonly engines: readonly SimEngine[];
  readonly regions: RivalRegions;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
  /** Who asks in a session, for hashes by users. */
  userOf(session: number): number;
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
