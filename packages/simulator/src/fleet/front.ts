import type { Clock, Random } from "@espalier/core";
import type { RequestOutcome, SimRequest } from "../clients/workload.ts";
import type { SimEngine } from "./sim-engine.ts";

/** An answer and how it was routed. */
export interface FrontOutcome extends RequestOutcome {
  /** -1 for none. */
  readonly engine: number;
  /** The engine that computed the prompt, if it was another one. */
  readonly prefillEngine?: number;
  /** Predicted prompt tokens in the engine's cache. */
  readonly predictedTokens: number;
  /** Prompt tokens that the engine pulled from another one; none when absent. */
  readonly pulledTokens?: number;
  readonly isSpill: boolean;
}

/** The other end of a client's connection: a router, or engines behind a plain service address. */
export interface SimFront {
  /** @param ended called once */
  handle(request: SimRequest, ended: (outcome: FrontOutcome) => void): void;
}

interface ClusterIpOptions {
  readonly engines: readonly SimEngine[];
  readonly clock: Clock;
  readonly random: Random;
}

/** Valid for one epoch of the engine. */
interface Connection {
  readonly engine: SimEngine;
  readonly epoch: number;
}

/**
 * No router: a Kubernetes Service in front of engines, and clients with persistent connections. A new connection goes
 * to a random engine and stays there. A request takes the connection that became idle last, as HTTP clients' pools do,
 * and opens one when none is idle. Clients are one hop away from engines; the caller adds that delay.
 */
export function createClusterIp({ engines, clock, random }: ClusterIpOptions): SimFront {
  /** Never more than the highest number of requests in flight. */
  const idle: Connection[] = [];
  const connect = (): Connection | undefined => {
    for (let kept = idle.pop(); kept; kept = idle.pop()) {
      if (kept.engine.isUp && kept.engine.epochs === kept.epoch) return kept;
    }
    const up = engines.filter(({ isUp }) => isUp);
    const engine = up[random.integer(Math.max(1, up.length))];
    return engine && { engine, epoch: engine.epochs };
  };
  return {
    handle(request: SimRequest, ended: (outcome: FrontOutcome) => void) {
      const connection = connect();
      let firstTokenMs = Number.NaN;
      const finish = (cachedTokens: number, error: string | undefined): void =>
        ended({
          ...{ firstTokenMs, cachedTokens, error, endMs: clock.nowMs() },
          ...{ engine: error === undefined && connection ? connection.engine.number : -1 },
          ...{ predictedTokens: 0, isSpill: false },
        });
      const isTaken = connection?.engine.submit(request, {
        firstToken: (timeMs) => {
          firstTokenMs = timeMs;
        },
        progress() {},
        finished: ({ cachedTokens }) => {
          idle.push(connection);
          finish(cachedTokens, undefined);
        },
        lost: () => finish(Number.NaN, "the engine went away"),
      });
      if (!isTaken) finish(Number.NaN, "no engine is available");
    },
  };
}
