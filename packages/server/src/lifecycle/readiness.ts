import type { GaugeSeries, Meter, Scheduler, Startable } from "@espalier/common";
import type { FastifyInstance } from "fastify";

const askEveryMs = 20;
/** A router that is not ready by then serves what it can, and says why it is not ready. */
export const readyWithinMs = 10_000;

/** A part whose start takes until the router is ready, 10 s at most, so that what is started after it finds it so. */
export function untilReady(isReady: () => boolean, scheduler: Scheduler): Startable {
  let isStopped = false;
  return {
    async start() {
      for (let waitedMs = 0; !isStopped && waitedMs < readyWithinMs && !isReady(); waitedMs += askEveryMs) {
        await new Promise<void>((resolve) => scheduler.after(askEveryMs, resolve));
      }
    },
    async stop() {
      isStopped = true;
    },
  };
}

/** What the probes tell. */
export interface Readiness {
  readonly ready: boolean;
  /** Why not, in one line each; empty when ready. */
  readonly reasons: readonly string[];
}

const livePaths = ["/livez", "/healthz", "/liveness", "/live", "/ping"];
const readyPaths = ["/readyz", "/health", "/readiness", "/ready"];

/**
 * Liveness says that the process answers, whatever its engines do. Readiness says that a request would find an
 * engine. The aliases are the paths that Kubernetes charts, load balancers and other routers use.
 */
export function registerProbes(app: FastifyInstance, readiness: () => Readiness): void {
  for (const path of livePaths) app.get(path, async () => ({ status: "alive" }));
  for (const path of readyPaths) {
    app.get(path, async (_, reply) => {
      const { ready, reasons } = readiness();
      return reply.code(ready ? 200 : 503).send({ status: ready ? "ready" : "not ready", reasons });
    });
  }
}

/** What `/readyz` says, as a number; set when the metrics are read. */
export function createReadyGauge(meter: Meter): GaugeSeries {
  return meter
    .gauge({ name: "espalier_ready", help: "1 while the router says that it can serve, as /readyz does, else 0." })
    .series();
}
