import { createHash, timingSafeEqual } from "node:crypto";
import type { Server } from "node:http";
import { EspalierError, isLoopback } from "@espalier/common";
import { errorResponse } from "@espalier/openai";
import fastify, { type FastifyHttpOptions, type FastifyInstance, type FastifyRequest } from "fastify";
import type { DashboardParts } from "../dashboard/dashboard-parts.ts";
import { guardOrigins, registerPreflights } from "../dashboard/who-may-read.ts";
import { fromFastifyError } from "../data-plane/error-reply.ts";
import { type Readiness, registerProbes } from "../data-plane/probe-routes.ts";
import { createOpenAnswers } from "../lifecycle/open-answers.ts";
import type { ReloadOutcome } from "../lifecycle/reloader.ts";
import { httpsOptions, type TlsMaterial } from "../lifecycle/tls-material.ts";
import { type Explain, registerExplain } from "./explain-route.ts";
import { registerWorkers, type WorkerRoutesDependencies } from "./worker-routes.ts";

export interface AdminDependencies extends WorkerRoutesDependencies {
  readonly readiness: () => Readiness;
  readonly renderMetrics: () => Promise<{ readonly contentType: string; readonly body: string }>;
  /** Plain data for `GET /admin/status`. */
  readonly status: () => unknown;
  /** Plain data for `GET /admin/feeds`. */
  readonly feeds: () => unknown;
  /** Plain data for `GET /admin/mesh`; undefined when nothing is shared with other routers. */
  readonly mesh: () => unknown;
  /** The compiled configuration with its secrets masked. */
  readonly describeConfig: () => unknown;
  readonly dashboard: Pick<DashboardParts, "who" | "registerGuarded" | "registerOpen">;
  /** For `POST /admin/reload`. */
  readonly reload: () => ReloadOutcome;
  /** For `POST /admin/explain`. */
  readonly explain: Explain;
  /** The longest body that may be explained. */
  readonly maxExplainedBytes: number;
  readonly tls: TlsMaterial | undefined;
  /** SHA-256 of the key that admin requests must carry; undefined leaves the listener open. */
  readonly keySha256: Buffer | undefined;
}

const maxAdminBodyBytes = 65_536;
/** An engine's id is its URL, without the scheme, unless it has another; URLs have up to this many characters. */
const maxParamLength = 2_048;

/** The application that operators talk to: metrics, engines, configuration. It has its own listener. */
export function createAdminApp(dependencies: AdminDependencies): FastifyInstance {
  const { logger, readiness, renderMetrics, dashboard } = dependencies;
  const options = { logger: false, bodyLimit: maxAdminBodyBytes, routerOptions: { maxParamLength } };
  const https = dependencies.tls && httpsOptions(dependencies.tls);
  // Node's HTTPS server has the whole interface of its HTTP server; fastify's types keep them apart.
  const app = fastify((https ? { ...options, https } : options) as FastifyHttpOptions<Server>);
  createOpenAnswers().watch(app);
  app.setErrorHandler((error, request, reply) => {
    const known = fromFastifyError(error as Parameters<typeof fromFastifyError>[0], logger, request.id);
    const { status, headers, body } = errorResponse("openai", known);
    return reply.code(status).headers(headers).send(body);
  });
  app.setNotFoundHandler(() => {
    throw new EspalierError("path_not_found");
  });
  registerProbes(app, readiness);
  app.register(async (open) => {
    guardOrigins(open, dashboard.who);
    registerPreflights(open);
    dashboard.registerOpen(open);
  });
  app.register(async (guarded) => {
    guardOrigins(guarded, dashboard.who);
    guarded.addHook("onRequest", async (request) => {
      checkKey(dependencies.keySha256, request.headers.authorization);
      if (!dependencies.keySha256) checkHost(request);
    });
    guarded.get("/metrics", async (_, reply) => {
      const { contentType, body } = await renderMetrics();
      return reply.type(contentType).send(body);
    });
    guarded.get("/admin/status", async () => dependencies.status());
    guarded.get("/admin/config", async () => dependencies.describeConfig());
    guarded.post("/admin/reload", async (_, reply) => {
      const outcome = dependencies.reload();
      return reply.code(outcome.error ? 422 : 200).send(outcome);
    });
    guarded.get("/admin/feeds", async () => ({ feeds: dependencies.feeds() }));
    guarded.get("/admin/mesh", async () => dependencies.mesh() ?? { backend: "off" });
    dashboard.registerGuarded(guarded);
    registerExplain(guarded, dependencies.explain, dependencies.maxExplainedBytes);
    registerWorkers(guarded, dependencies);
  });
  return app;
}

function checkKey(expected: Buffer | undefined, authorization: string | undefined): void {
  if (!expected) return;
  if (authorization === undefined) throw new EspalierError("missing_api_key");
  const presented = authorization.replace(/^bearer\s+/i, "");
  const digest = createHash("sha256").update(presented).digest();
  if (!timingSafeEqual(expected, digest)) throw new EspalierError("invalid_api_key");
}

/**
 * Without a key the listener is on a loopback address, which pages of any site reach from the browser of this machine under
 * a name of theirs that resolves to it. What changes anything is done only under a name of this machine.
 */
function checkHost({ method, hostname }: FastifyRequest): void {
  if (method === "GET" || method === "HEAD") return;
  if (!isLoopback(hostname.replace(/^\[|\]$/g, ""))) {
    throw new EspalierError(
      "invalid_header",
      "Without admin.key, the admin listener must be called by a loopback address.",
      {
        param: "host",
      },
    );
  }
}
