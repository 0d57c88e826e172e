import type { Clock, Random, Scheduler } from "@espalier/common";
import type { SimRequest } from "../clients/workload.ts";
import type { SimEngine } from "./sim-engine.ts";
import type { FrontOutcome, SimFront } from "./sim-front.ts";

export interface ClusterIpOptions {
  readonly engines: readonly SimEngine[];
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly hopDelayMs: number;
}

/**
 * No router at all: a Kubernetes Service in front of engines, and clients that keep connections. A new connection goes
 * to a random engine and stays with it; a request takes the connection that became idle last, as the pools of HTTP
 * clients do, and opens one when none is idle.
 */
export function createClusterIp({ engines, clock, scheduler, random, hopDelayMs }: ClusterIpOptions): SimFront {
  const idle: SimEngine[] = [];
  const connection = (): SimEngine | undefined => {
    for (let known = idle.pop(); known; known = idle.pop()) if (known.isUp) return known;
    const up = engines.filter(({ isUp }) => isUp);
    return up[random.integer(Math.max(1, up.length))];
  };
  return {
    handle(request: SimRequest, ended: (outcome: FrontOutcome) => void) {
      const engine = connection();
      let firstTokenMs = Number.NaN;
      const finish = (cachedTokens: number, error: string | undefined): void =>
        ended({
          ...{ firstTokenMs, cachedTokens, error, endMs: clock.nowMs() },
          ...{ engine: error === undefined && engine ? engine.number : -1, predictedTokens: 0, isSpill: false },
        });
      scheduler.after(hopDelayMs, () => {
        const isTaken = engine?.submit(request, {
          firstToken: (timeMs) => {
            firstTokenMs = timeMs;
          },
          progress() {},
          finished: ({ cachedTokens }) => {
            idle.push(engine);
            finish(cachedTokens, undefined);
          },
          lost: () => finish(Number.NaN, "the engine went away"),
        });
        if (!isTaken) finish(Number.NaN, "no engine is available");
      });
    },
  };
}
