import { createHash, timingSafeEqual } from "node:crypto";
import type { Server } from "node:http";
import { errorResponse } from "@espalier/api";
import { EspalierError } from "@espalier/core";
import { closed, type TSchema, Type } from "@espalier/core/schema";
import type { FastifyHttpOptions, FastifyInstance, FastifyRequest } from "fastify";
import fastify from "fastify";
import { createOpenAnswers } from "../data-plane/client-connections.ts";
import { type PastDecisions, pastRequest } from "../decisions/past-decisions.ts";
import { answer, described, error } from "../lifecycle/answer-schemas.ts";
import { httpsOptions, type TlsMaterial } from "../lifecycle/certificates.ts";
import { type Readiness, registerProbes } from "../lifecycle/readiness.ts";
import { type ReloadOutcome, reloadOutcome } from "../lifecycle/reloader.ts";
import { headFault, originForm } from "../lifecycle/request-head.ts";
import { type MeshDescription, meshDescription, meshOff } from "../mesh/describe-mesh.ts";
import { type FeedReport, feedReport } from "../prefix/engine-feeds.ts";
import { type Programs, programReport } from "../programs/programs.ts";
import { fromFastifyError } from "../request/error-reply.ts";
import { scaleReport } from "../scale/scale-parts.ts";
import { guardAdmin, registerPreflights } from "./admin-access.ts";
import { describeGuard, describeRoutes, descriptionOf } from "./admin-api.ts";
import { type DashboardParts, registerDashboard, registerIndex, registerPage } from "./dashboard.ts";
import { type ById, type EngineRoutesDependencies, registerEngines } from "./engine-routes.ts";
import { explanation } from "./explain-request.ts";
import { routerStatus } from "./router-status.ts";

export interface AdminDependencies extends EngineRoutesDependencies {
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
  readonly dashboard: Pick<DashboardParts, "who" | "routes">;
  /** For `POST /admin/reload`. */
  readonly reload: () => ReloadOutcome;
  /** For `POST /admin/explain`. */
  readonly explain: Explain;
  /** For `GET /admin/requests/{id}`. */
  readonly past: Pick<PastDecisions, "find">;
  readonly programs: Programs["report"];
  /** Most bytes of a body to explain. */
  readonly maxExplainedBytes: number;
  readonly tls: TlsMaterial | undefined;
  /** SHA-256 of the key that admin requests must carry; undefined leaves the listener open. */
  readonly keySha256: Buffer | undefined;
}

/** Largest body of an admin request, except of `/admin/explain`. */
const maxAdminBodyBytes = 65_536;
/** An engine's id is by default its URL without the scheme; URLs have up to this many characters. */
const maxParamLength = 2_048;

/** The operators' application: metrics, engines, configuration. It has its own listener. */
export function createAdminApp(dependencies: AdminDependencies): FastifyInstance {
  const { logger, readiness, dashboard } = dependencies;
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
  describeRoutes(app);
  app.register(async (open) => {
    registerProbes(open, readiness);
    registerPreflights(open);
    registerIndex(open, dashboard.routes.files !== undefined);
    registerPage(open, dashboard.routes.files, dashboard.routes.origins);
  });
  app.register(async (guarded) => {
    guarded.addHook("onRequest", async ({ headers }) => checkKey(dependencies.keySha256, headers.authorization));
    describeGuard(guarded);
    registerRouter(guarded, dependencies);
    registerDashboard(guarded, dashboard.routes);
    registerExplain(guarded, dependencies.explain, dependencies.maxExplainedBytes);
    registerEngines(guarded, dependencies);
  });
  return app;
}

/** The description of the admin API, `docs/openapi.json`: what any router's `GET /admin/openapi.json` answers. */
export async function adminApi(): Promise<Readonly<Record<string, unknown>>> {
  // Nothing is asked of what the routes answer from.
  const app = createAdminApp({ dashboard: { routes: {} } } as unknown as AdminDependencies);
  await app.ready();
  return descriptionOf(app);
}

/** Routes about the router itself. */
function registerRouter(app: FastifyInstance, dependencies: AdminDependencies): void {
  const get = (path: string, summary: string, schema: TSchema, read: () => unknown) => {
    const operationId = path.replace(/^.*\/|\..*$/g, "");
    const described200 = { 200: described(schema) };
    app.get(path, { schema: { operationId, summary, tags: ["router"], response: described200 } }, async () => read());
  };
  const page = {
    operationId: "metrics",
    summary: "Metrics in Prometheus text format (docs/METRICS.md).",
    ...{ tags: ["metrics"], response: { 200: answer("Metrics page.", Type.String(), "text/plain") } },
  };
  app.get("/metrics", { schema: page }, async (_, reply) => {
    const { contentType, body } = await dependencies.renderMetrics();
    return reply.type(contentType).send(body);
  });
  get("/admin/status", "Status of the router and its mesh.", routerStatus, dependencies.status);
  get("/admin/scale", "Engines needed for the mesh-wide load of each model.", scaleReport, dependencies.scale);
  get(
    "/admin/config",
    "Effective configuration with defaults, secrets masked.",
    Type.Object({}, { description: "Configuration in the form of docs/configuration.schema.json." }),
    dependencies.describeConfig,
  );
  get(
    "/admin/openapi.json",
    "OpenAPI document of the admin API.",
    Type.Object(
      { openapi: Type.String(), info: Type.Object({}), paths: Type.Object({}) },
      { description: "OpenAPI 3.1 document." },
    ),
    () => descriptionOf(app),
  );
  get("/admin/feeds", "KV event feeds of engines and pools.", closed({ feeds: Type.Array(feedReport) }), () => ({
    feeds: dependencies.feeds(),
  }));
  get(
    "/admin/programs",
    "Sessions and agents by their requests, over all routers.",
    programReport,
    dependencies.programs,
  );
  get(
    "/admin/mesh",
    "Mesh state of this router.",
    Type.Union([meshDescription, meshOff]),
    () => dependencies.mesh() ?? { backend: "off" },
  );
  const reload = {
    operationId: "reload",
    ...{ summary: "Reload the configuration.", tags: ["router"] },
    response: {
      200: answer("Result of the reload.", reloadOutcome),
      422: answer("Invalid configuration; the previous one stays in use.", reloadOutcome),
    },
  };
  app.post("/admin/reload", { schema: reload }, async (_, reply) => {
    const outcome = dependencies.reload();
    return reply.code(outcome.error ? 422 : 200).send(outcome);
  });
  const request = {
    operationId: "pastRequest",
    summary: "Explain a past request: the decision of any router in the mesh, with the reason.",
    tags: ["router"],
    params: Type.Object({ id: Type.String({ description: "`x-request-id` of the answer to the request." }) }),
    response: {
      200: described(pastRequest),
      404: error("Request unknown in the mesh."),
      429: error("Too many concurrent lookups."),
    },
  };
  app.get<ById>("/admin/requests/:id", { schema: request }, ({ params }) => dependencies.past.find(params.id));
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
    const schema = {
      operationId: "explain",
      summary: "Explain which engine a request would go to. No engine receives the request.",
      tags: ["router"],
      querystring: Type.Object({
        endpoint: Type.Optional(
          Type.String({
            description: "`chat`, `completions`, `messages`, `responses`, or a path. Default: derived from the body.",
          }),
        ),
      }),
      body: Type.Object({}, { description: "Body of the request, with the client's headers." }),
      response: {
        200: described(explanation),
        400: error("The error that the request itself would get."),
        404: error("Unknown model or endpoint."),
        413: error("Body too large."),
      },
    };
    asked.post<{ Querystring: { endpoint?: string } }>(
      "/admin/explain",
      { schema, bodyLimit: maxBodyBytes },
      (request) => explain(request, request.query.endpoint),
    );
  });
}
