import { createHash, timingSafeEqual } from "node:crypto";
import type { Server } from "node:http";
import { errorResponse } from "@espalier/api";
import { EspalierError } from "@espalier/core";
import type { FastifyHttpOptions, FastifyInstance, FastifyRequest } from "fastify";
import fastify from "fastify";
import { createOpenAnswers } from "../data-plane/client-connections.ts";
import { fromFastifyError } from "../data-plane/error-reply.ts";
import { httpsOptions, type TlsMaterial } from "../lifecycle/certificates.ts";
import { type Readiness, registerProbes } from "../lifecycle/readiness.ts";
import type { ReloadOutcome } from "../lifecycle/reloader.ts";
import { headFault, originForm } from "../lifecycle/request-head.ts";
import type { MeshDescription } from "../mesh/describe-mesh.ts";
import type { FeedReport } from "../prefix/engine-feeds.ts";
import { guardAdmin, registerPreflights } from "./admin-access.ts";
import { adminApi } from "./admin-api.ts";
import type { DashboardParts } from "./dashboard.ts";
import type { PastDecisions } from "./past-decisions.ts";
import { type ById, registerWorkers, type WorkerRoutesDependencies } from "./worker-routes.ts";

export interface AdminDependencies extends WorkerRoutesDependencies {
  readonly readiness: () => Readiness;
  readonly renderMetrics: () => Promise<{ readonly contentType: string; readonly body: string }>;
  /** Plain data for `GET /admin/status`. */
  readonly status: () => unknown;
  /** Plain data for `GET /admin/scale`. */
  readonly scale: () => unknown;
  /** For `GET /admin/feeds`. */
  readonly feeds: () => readonly FeedReport[];
  /** For `GET /admin/mesh`; undefined when nothing is shared with other routers. */
  readonly mesh: () => MeshDescription | undefined;
  /** The compiled configuration with its secrets masked. */
  readonly describeConfig: () => unknown;
  readonly dashboard: Pick<DashboardParts, "who" | "registerGuarded" | "registerOpen">;
  /** For `POST /admin/reload`. */
  readonly reload: () => ReloadOutcome;
  /** For `POST /admin/explain`. */
  readonly explain: Explain;
  /** For `GET /admin/requests/{id}`. */
  readonly past: Pick<PastDecisions, "find">;
  /** Most bytes of a body to explain. */
  readonly maxExplainedBytes: number;
  readonly tls: TlsMaterial | undefined;
  /** SHA-256 of the key that admin requests must carry; undefined leaves the listener open. */
  readonly keySha256: Buffer | undefined;
}

const maxAdminBodyBytes = 65_536;
/** An engine's id is by default its URL without the scheme; URLs have up to this many characters. */
const maxParamLength = 2_048;

/** The operators' application: metrics, engines, configuration. It has its own listener. */
export function createAdminApp(dependencies: AdminDependencies): FastifyInstance {
  const { logger, readiness, renderMetrics, dashboard } = dependencies;
  const options = {
    logger: false,
    bodyLimit: maxAdminBodyBytes,
    routerOptions: { maxParamLength },
    rewriteUrl: originForm,
  };
  const https = dependencies.tls && httpsOptions(dependencies.tls);
  // Node's HTTPS server implements the whole interface of its HTTP server, but fastify's types distinguish them.
  const app = fastify((https ? { ...options, https } : options) as FastifyHttpOptions<Server>);
  createOpenAnswers().watch(app);
  app.addHook("onRequest", (request, reply, done) => done(headFault(request.raw, reply.raw)));
  app.setErrorHandler((error, request, reply) => {
    const known = fromFastifyError(error as Parameters<typeof fromFastifyError>[0], logger, request.id);
    const { status, headers, body } = errorResponse("openai", known);
    return reply.code(status).headers(headers).send(body);
  });
  app.setNotFoundHandler(() => {
    throw new EspalierError("path_not_found");
  });
  // Pages can send text without a preflight.
  app.removeContentTypeParser("text/plain");
  guardAdmin(app, dashboard.who);
  registerProbes(app, readiness);
  registerPreflights(app);
  dashboard.registerOpen(app);
  app.register(async (guarded) => {
    guarded.addHook("onRequest", async ({ headers }) => checkKey(dependencies.keySha256, headers.authorization));
    guarded.get("/metrics", async (_, reply) => {
      const { contentType, body } = await renderMetrics();
      return reply.type(contentType).send(body);
    });
    guarded.get("/admin/status", async () => dependencies.status());
    guarded.get("/admin/scale", async () => dependencies.scale());
    guarded.get("/admin/config", async () => dependencies.describeConfig());
    guarded.get("/admin/openapi.json", async () => adminApi);
    guarded.post("/admin/reload", async (_, reply) => {
      const outcome = dependencies.reload();
      return reply.code(outcome.error ? 422 : 200).send(outcome);
    });
    guarded.get("/admin/feeds", async () => ({ feeds: dependencies.feeds() }));
    guarded.get("/admin/mesh", async () => dependencies.mesh() ?? { backend: "off" });
    dashboard.registerGuarded(guarded);
    guarded.get<ById>("/admin/requests/:id", ({ params }) => dependencies.past.find(params.id));
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

/** Explains a request. `endpoint` is its endpoint's id or path, when the caller names one. */
type Explain = (request: FastifyRequest, endpoint: string | undefined) => Promise<unknown>;

/**
 * `POST /admin/explain`: takes a client's request, headers and body, at the admin listener.
 *
 * @param maxBodyBytes the limit for clients' bodies
 */
function registerExplain(app: FastifyInstance, explain: Explain, maxBodyBytes: number): void {
  app.register(async (asked) => {
    // Reads the body as the data plane does: whole, and parsed by its own rules.
    asked.removeAllContentTypeParsers();
    asked.addContentTypeParser("*", { parseAs: "buffer", bodyLimit: maxBodyBytes }, (_, body, done) =>
      done(null, body),
    );
    asked.post<{ Querystring: { endpoint?: string } }>("/admin/explain", { bodyLimit: maxBodyBytes }, (request) =>
      explain(request, request.query.endpoint),
    );
  });
}
