import { createSeededRandom } from "@espalier/core";
import { createVirtualTime, type VirtualTime } from "@espalier/testing";
import type { SimRequest } from "../../src/clients/workload.ts";
import type { FrontOutcome } from "../../src/fleet/front.ts";
import { ModelledEngine } from "../../src/fleet/sim-engine.ts";
import { rivalOf } from "../../src/rivals/rivals.ts";
import { placeFleet } from "../../src/topology.ts";
import { engineParameters, type RequestShape, requestOf } from "../fleet/requests.ts";

export interface RivalRig {
  readonly time: VirtualTime;
  readonly outcomes: FrontOutcome[];
  /** Sends a request from a region; the first one unless told otherwise. */
  send(shape: Omit<RequestShape, "index">, region?: number): void;
  /** Sends it and waits for the answer. @returns the engine that answered */
  ask(shape: Omit<RequestShape, "index">, region?: number): number;
  kill(engine: number): void;
  /** A request that passes the system by. */
  occupy(engine: number, shape: Omit<RequestShape, "index">): void;
}

/** A published system before engines in regions, each `awayMs` from the others, and `insideMs` wide. */
export function createRivalRig(options: {
  readonly name: string;
  readonly perRegion: readonly number[];
  /** In each region; one by default. */
  readonly routers?: number;
  readonly awayMs?: number;
  readonly insideMs?: number;
  readonly maxRunning?: number;
  readonly tenantOf?: (session: number) => string;
}): RivalRig {
  const {
    name,
    perRegion,
    routers = 1,
    awayMs = 100,
    insideMs = 1,
    maxRunning = engineParameters.maxRunning,
    tenantOf,
  } = options;
  const time = createVirtualTime();
  const { clock, scheduler } = time;
  const parameters = { ...engineParameters, maxRunning };
  const count = perRegion.reduce((sum, engines) => sum + engines, 0);
  const engines = Array.from(
    { length: count },
    (_, number) => new ModelledEngine({ number, parameters, clock, scheduler, hasEvents: true, keepsMessages: false }),
  );
  const topology = {
    regions: perRegion.map((inRegion, at) => ({ name: `region-${at}`, engines: inRegion, routers })),
    delaysMs: perRegion.map((_, one) => perRegion.map((__, other) => (one === other ? insideMs : awayMs))),
    clientDelayMs: 0,
    clients: [{ atS: 0, shares: perRegion.map(() => 1) }],
  };
  const placement = placeFleet(topology, { engines: count, routers: perRegion.length * routers }, { hopDelayMs: 0 });
  const random = createSeededRandom(3);
  const rival = rivalOf(name)!({ engines, clock, scheduler, random, placement, parametersOf: () => parameters });
  const outcomes: FrontOutcome[] = [];
  let sent = 0;
  const build = (shape: Omit<RequestShape, "index">): SimRequest => {
    const request = requestOf({ ...shape, index: sent++ });
    return tenantOf ? { ...request, tenant: tenantOf(request.session) } : request;
  };
  const send: RivalRig["send"] = (shape, region = 0) =>
    rival.handle(build(shape), region, (outcome) => outcomes.push(outcome));
  return {
    ...{ time, outcomes, send },
    kill: (engine) => engines[engine]!.kill(),
    ask(shape, region) {
      const before = outcomes.length;
      send(shape, region);
      while (outcomes.length === before) time.advance(10);
      return outcomes.at(-1)!.engine;
    },
    occupy(engine, shape) {
      engines[engine]!.submit(build(shape), { firstToken() {}, progress() {}, finished() {}, lost() {} });
    },
  };
}
