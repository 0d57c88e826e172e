import type { GaugeSeries, Meter, Scheduler, Startable } from "@espalier/core";
import { closed, type Described, Type } from "@espalier/core/schema";
import type { FastifyInstance } from "fastify";
import { answer } from "./answer-schemas.ts";

/** The readiness of a router, as its probes report it. */
export interface Readiness {
  readonly ready: boolean;
  /** Why it is not ready, as sentences; empty when it is. */
  readonly reasons: readonly string[];
}

const livePaths = ["/livez", "/healthz", "/liveness", "/live", "/ping"] as const;
const readyPaths = ["/readyz", "/health", "/readiness", "/ready"] as const;

const probePaths: ReadonlySet<string> = new Set([...livePaths, ...readyPaths]);

/** @param route a route's own path, as a router matched it */
export function isProbe(route: string | undefined): boolean {
  return route !== undefined && probePaths.has(route);
}

const livenessAnswer = closed({ status: Type.Literal("alive") }, { title: "Alive" });

const readinessAnswer = closed(
  {
    status: Type.Enum(["ready", "not ready"]),
    reasons: Type.Array(Type.String(), { description: "Reasons if not ready; empty when ready." }),
  },
  { title: "Readiness" },
);

/**
 * Liveness means that the process answers, whatever the state of its engines. Readiness means that a request would find
 * an engine. The aliases are the paths that Kubernetes charts, load balancers and other routers use.
 */
export function registerProbes(app: FastifyInstance, readiness: () => Readiness): void {
  for (const path of livePaths) {
    const schema = probe("live", path, "Liveness of the process.", {
      200: answer("Process is alive.", livenessAnswer),
    });
    app.get(path, { schema }, async (): Promise<Described<typeof livenessAnswer>> => ({ status: "alive" }));
  }
  for (const path of readyPaths) {
    const schema = probe("ready", path, "Readiness for requests.", {
      200: answer("Ready.", readinessAnswer),
      503: answer("Not ready, with the reasons.", readinessAnswer),
    });
    app.get(path, { schema }, async (_, reply) => {
      const { ready, reasons } = readiness();
      const body: Described<typeof readinessAnswer> = { status: ready ? "ready" : "not ready", reasons };
      return reply.code(ready ? 200 : 503).send(body);
    });
  }
}

/** One operation at several paths. */
const probe = (name: string, path: string, summary: string, response: object) => ({
  ...{ operationId: `${name}_${path.slice(1)}`, summary, security: [], tags: ["probes"], response },
});

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
