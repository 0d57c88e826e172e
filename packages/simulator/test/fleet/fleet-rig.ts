import { createSeededRandom } from "@espalier/core";
import type { FrontOutcome } from "../../src/fleet/front.ts";
import { RealView } from "../../src/fleet/router-view.ts";
import { SimFleet, type SimFleetOptions } from "../../src/fleet/sim-fleet.ts";
import { defaultTiming } from "../../src/run.ts";
import { engineParameters, type RequestShape, requestOf } from "./requests.ts";

interface Ended extends FrontOutcome {
  readonly index: number;
  readonly router: number;
}

export interface FleetRig {
  readonly fleet: SimFleet;
  readonly ended: readonly Ended[];
  readonly sentCount: number;
  send(shape?: Partial<RequestShape>): void;
  /** Requests at random moments, of contents that return, until so much time has passed. */
  load(options: { readonly durationMs: number; readonly perS: number; readonly outputTokens?: number }): Promise<void>;
  /** Lets time pass. */
  pass(durationMs: number): Promise<void>;
  /** Lets time pass until all that was sent has ended. @throws Error when it has not after a minute */
  drain(): Promise<void>;
}

/** Real links between three routers in front of four engines, unless told otherwise. Not started. */
export function createFleetRig(options: Partial<SimFleetOptions> = {}): FleetRig {
  const seed = options.seed ?? 1;
  const fleet = new SimFleet({
    ...{ engines: 4, routers: 3, policy: "least_work", sharing: "mesh", links: "real", timing: defaultTiming },
    parameters: { ...engineParameters, blockCount: 400 },
    ...{ ...options, seed },
  });
  const { clock, scheduler } = fleet.time;
  const random = createSeededRandom(seed + 100);
  const ended: Ended[] = [];
  let sentCount = 0;
  const send = (shape: Partial<RequestShape> = {}): void => {
    const request = requestOf({ index: sentCount++, ...shape });
    fleet.send(request, (outcome, router) => ended.push({ ...outcome, index: request.index, router }));
  };
  const pass = (durationMs: number): Promise<void> => fleet.run(clock.nowMs() + durationMs);
  return {
    ...{ fleet, ended, send, pass },
    get sentCount() {
      return sentCount;
    },
    async load({ durationMs, perS, outputTokens = 32 }) {
      const requests = Math.round((durationMs / 1_000) * perS);
      for (let left = requests; left > 0; left--) {
        const promptTokens = 64 + random.integer(400);
        const shape = { session: random.integer(40), sharedTokens: 48, promptTokens, outputTokens };
        scheduler.after(random.float() * durationMs, () => send(shape));
      }
      await pass(durationMs);
    },
    pass,
    async drain() {
      const untilMs = clock.nowMs() + 60_000;
      while (ended.length < sentCount) {
        if (clock.nowMs() > untilMs) throw new Error(`${sentCount - ended.length} requests do not end`);
        await pass(100);
      }
    },
  };
}

/** Views of the routers that run. @throws TypeError for a fleet without links */
export function viewsOf(fleet: SimFleet): Map<number, RealView> {
  const views = new Map<number, RealView>();
  for (const { router, number } of fleet.routerNodes) {
    if (!router) continue;
    if (!(router.view instanceof RealView)) throw new TypeError("these routers have no links");
    views.set(number, router.view);
  }
  return views;
}
