import type { FastifyInstance } from "fastify";

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
