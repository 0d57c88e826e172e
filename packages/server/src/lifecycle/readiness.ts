import { type Described, type GaugeSeries, json, type Meter, type Scheduler, type Startable } from "@espalier/core";
import type { FastifyInstance } from "fastify";

/** The readiness of a router, as its probes report it. */
export interface Readiness {
  readonly ready: boolean;
  /** Why it is not ready, as sentences; empty when it is. */
  readonly reasons: readonly string[];
}

export const livePaths = ["/livez", "/healthz", "/liveness", "/live", "/ping"] as const;
export const readyPaths = ["/readyz", "/health", "/readiness", "/ready"] as const;

const probePaths: ReadonlySet<string> = new Set([...livePaths, ...readyPaths]);

/** @param route a route's own path, as a router matched it */
export function isProbe(route: string | undefined): boolean {
  return route !== undefined && probePaths.has(route);
}

export const livenessAnswer = json.named("Alive", json.object({ status: json.constant("alive") }));

export const readinessAnswer = json.named(
  "Readiness",
  json.object({
    status: json.oneOf(["ready", "not ready"]),
    reasons: json.list(json.text(), "Why not; empty when ready."),
  }),
);

/**
 * Liveness means that the process answers, whatever the state of its engines. Readiness means that a request would find
 * an engine. The aliases are the paths that Kubernetes charts, load balancers and other routers use.
 */
export function registerProbes(app: FastifyInstance, readiness: () => Readiness): void {
  for (const path of livePaths)
    app.get(path, async (): Promise<Described<typeof livenessAnswer>> => ({ status: "alive" }));
  for (const path of readyPaths) {
    app.get(path, async (_, reply) => {
      const { ready, reasons } = readiness();
      const answer: Described<typeof readinessAnswer> = { status: ready ? "ready" : "not ready", reasons };
      return reply.code(ready ? 200 : 503).send(answer);
    });
  }
}

/** The readiness as a gauge; set at each scrape. */
export function createReadyGauge(meter: Meter): GaugeSeries {
  return meter.gauge("espalier_ready", "1 while /readyz reports ready, else 0.").series();
}

const askEveryMs = 20;
/** After this time an unready router serves anyway and reports why it is not ready. */
export const readyWithinMs = 10_000;

/** A part whose start resolves when the router is ready or after 10 s. Parts after it start then. */
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
