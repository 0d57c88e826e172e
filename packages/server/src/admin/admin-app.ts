import { createHash, timingSafeEqual } from "node:crypto";
import type { Server } from "node:http";
import { asEngineId, EspalierError, type Logger } from "@espalier/common";
import { errorResponse } from "@espalier/openai";
import { describeEngine, type EngineRecord, type Fleet } from "@espalier/workers";
import fastify, { type FastifyHttpOptions, type FastifyInstance } from "fastify";
import { fromFastifyError } from "../data-plane/error-reply.ts";
import { type Readiness, registerProbes } from "../data-plane/probe-routes.ts";
import { httpsOptions, type TlsMaterial } from "../lifecycle/tls-material.ts";
import { type Explain, registerExplain } from "./explain-route.ts";

export interface AdminDependencies {
  readonly fleet: Fleet;
  readonly logger: Logger;
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
  /** Which side of pairs an engine keeps to, by the balance of roles; undefined where it does not. */
  readonly dutyOf: (engine: EngineRecord) => "prefill" | "decode" | undefined;
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
  const { fleet, logger, readiness, renderMetrics } = dependencies;
  const options = { logger: false, bodyLimit: maxAdminBodyBytes, routerOptions: { maxParamLength } };
  const https = dependencies.tls && httpsOptions(dependencies.tls);
  // Node's HTTPS server has the whole interface of its HTTP server; fastify's types keep them apart.
  const app = fastify((https ? { ...options, https } : options) as FastifyHttpOptions<Server>);
  app.setErrorHandler((error, request, reply) => {
    const known = fromFastifyError(error as Parameters<typeof fromFastifyError>[0], logger, request.id);
    const { status, headers, body } = errorResponse("openai", known);
    return reply.code(status).headers(headers).send(body);
  });
  app.setNotFoundHandler(() => {
    throw new EspalierError("path_not_found");
  });
  registerProbes(app, readiness);
  app.register(async (guarded) => {
    guarded.addHook("onRequest", async (request) => checkKey(dependencies.keySha256, request.headers.authorization));
    guarded.get("/metrics", async (_, reply) => {
      const { contentType, body } = await renderMetrics();
      return reply.type(contentType).send(body);
    });
    guarded.get("/admin/status", async () => dependencies.status());
    guarded.get("/admin/config", async () => dependencies.describeConfig());
    guarded.get("/admin/feeds", async () => ({ feeds: dependencies.feeds() }));
    guarded.get("/admin/mesh", async () => dependencies.mesh() ?? { backend: "off" });
    registerExplain(guarded, dependencies.explain, dependencies.maxExplainedBytes);
    const describe = (engine: EngineRecord) => ({
      ...describeEngine(engine),
      duty: dependencies.dutyOf(engine) ?? null,
    });
    guarded.get("/admin/workers", async () => ({ workers: fleet.engines.map(describe) }));
    guarded.patch<{ Params: { id: string } }>("/admin/workers/:id", async ({ params, body }) => {
      const draining = readDraining(body);
      const engine = fleet.engine(asEngineId(params.id));
      if (!engine) throw new EspalierError("worker_not_found");
      fleet.setDraining(engine.id, draining);
      logger.info("worker drain set by an operator", { worker: engine.id, draining });
      return describe(engine);
    });
  });
  return app;
}

function readDraining(body: unknown): boolean {
  if (typeof body === "object" && body !== null && "draining" in body && typeof body.draining === "boolean") {
    return body.draining;
  }
  throw new EspalierError("invalid_type", 'The body must be {"draining": true} or {"draining": false}.', {
    param: "draining",
  });
}

function checkKey(expected: Buffer | undefined, authorization: string | undefined): void {
  if (!expected) return;
  if (authorization === undefined) throw new EspalierError("missing_api_key");
  const presented = authorization.replace(/^bearer\s+/i, "");
  const digest = createHash("sha256").update(presented).digest();
  if (!timingSafeEqual(expected, digest)) throw new EspalierError("invalid_api_key");
}
