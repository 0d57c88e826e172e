import { json, namedSchemas, type Schema } from "@espalier/core";
import { livenessAnswer, livePaths, readinessAnswer, readyPaths } from "../lifecycle/readiness.ts";
import { reloadOutcome } from "../lifecycle/reloader.ts";
import { meshDescription, meshOff } from "../mesh/describe-mesh.ts";
import { feedReport } from "../prefix/engine-feeds.ts";
import { scaleReport } from "../scale/scale-parts.ts";
import type { readablePaths } from "./admin-access.ts";
import { dashboardAnswer } from "./dashboard.ts";
import { decisionBatch } from "./decision-feed.ts";
import { explanation } from "./explain-request.ts";
import { historyReport } from "./history.ts";
import { pastRequest } from "./past-decisions.ts";
import { prefixesReport } from "./prefix-report.ts";
import { recordedLine } from "./recorder.ts";
import { routerStatus } from "./router-status.ts";
import { drainRequest, newWorker, worker } from "./worker-routes.ts";

const errorBody = json.named(
  "Error",
  json.object({
    error: json.object({
      message: json.text(),
      type: json.text(),
      param: json.nullable(json.text()),
      code: json.text("Stable; docs/ERRORS.md says of each what to do."),
    }),
  }),
);

interface Operation {
  /** Unique, for generated clients. */
  readonly operationId: string;
  readonly tag: "probes" | "metrics" | "router" | "workers" | "dashboard";
  readonly summary: string;
  readonly parameters?: readonly object[];
  readonly requestBody?: object;
  /** By status. */
  readonly responses: Readonly<Record<number, object>>;
}

/** A route that needs no key. */
const open = ({ operationId, summary, tag, ...rest }: Operation) => ({
  ...{ operationId, summary, security: [], tags: [tag], ...rest },
});

/** A route that asks for `admin.key`. */
const guarded = ({ operationId, summary, tag, responses, ...rest }: Operation) => ({
  ...{ operationId, summary, tags: [tag], ...rest },
  responses: { ...responses, 401: { $ref: "#/components/responses/Unauthorized" } },
});

const content = (schema: Schema<unknown>, type = "application/json") => ({ content: { [type]: { schema } } });
const answer = (description: string, schema: Schema<unknown>, type?: string) => ({
  description,
  ...content(schema, type),
});
const described = (schema: Schema<unknown>) => answer("As described.", schema);
const error = (description: string) => answer(description, errorBody);
const body = (schema: Schema<unknown>, description?: string) => ({
  required: true,
  ...(description !== undefined && { description }),
  ...content(schema),
});

const inPath = (name: string, description?: string) => ({
  ...{ name, in: "path", required: true },
  ...(description !== undefined && { description }),
  schema: json.text(),
});
const inQuery = (name: string, description: string, schema: Schema<unknown> = json.text()) => ({
  ...{ name, in: "query", description, schema },
});
const workerId = inPath("id", "The engine's id, as the list has it, percent-encoded.");

/** One operation at several paths. */
const aliases = (paths: readonly string[], { operationId, ...operation }: Operation) =>
  Object.fromEntries(
    paths.map((path) => [path, { get: open({ operationId: `${operationId}_${path.slice(1)}`, ...operation }) }]),
  );

/** A route that pages of other routers may read, with the question that their browsers ask before. */
const readable = (path: (typeof readablePaths)[number], operation: Omit<Operation, "tag" | "operationId">) => {
  const operationId = path.slice("/admin/".length);
  return {
    [path]: {
      get: guarded({ operationId, tag: "dashboard", ...operation }),
      options: open({
        operationId: `preflight${operationId[0]?.toUpperCase()}${operationId.slice(1)}`,
        summary: "A browser's question whether a page of another router may read it.",
        tag: "dashboard",
        responses: {
          204: { description: "A page of another router of the mesh may read it." },
          404: error("Any other page."),
        },
      }),
    },
  };
};

const probes = {
  ...aliases(livePaths, {
    operationId: "live",
    summary: "Whether the process answers.",
    tag: "probes",
    responses: { 200: answer("It does.", livenessAnswer) },
  }),
  ...aliases(readyPaths, {
    operationId: "ready",
    summary: "Whether a request would find an engine.",
    tag: "probes",
    responses: {
      200: answer("It would.", readinessAnswer),
      503: answer("It would not; the reasons say why.", readinessAnswer),
    },
  }),
  "/metrics": {
    get: guarded({
      operationId: "metrics",
      summary: "Metrics in Prometheus' text format (docs/METRICS.md).",
      tag: "metrics",
      responses: { 200: answer("One page.", json.text(), "text/plain") },
    }),
  },
};

const ofRouter = {
  "/admin/status": {
    get: guarded({
      operationId: "status",
      summary: "How the router is, and what it shares with which others.",
      tag: "router",
      responses: { 200: described(routerStatus) },
    }),
  },
  "/admin/config": {
    get: guarded({
      operationId: "config",
      summary: "The configuration in force, every default written out, secrets masked.",
      tag: "router",
      responses: { 200: described(json.anyObject("As docs/configuration.schema.json describes it.")) },
    }),
  },
  "/admin/openapi.json": {
    get: guarded({
      operationId: "openapi",
      summary: "This description of the admin API.",
      tag: "router",
      responses: {
        200: described({
          ...json.anyObject("An OpenAPI 3.1 document."),
          required: ["openapi", "info", "paths"],
          properties: { openapi: json.text(), info: json.anyObject(), paths: json.anyObject() },
        }),
      },
    }),
  },
  "/admin/reload": {
    post: guarded({
      operationId: "reload",
      summary: "Read the configuration again.",
      tag: "router",
      responses: {
        200: answer("What became of it.", reloadOutcome),
        422: answer("It is not valid; the old one stays.", reloadOutcome),
      },
    }),
  },
  "/admin/scale": {
    get: guarded({
      operationId: "scale",
      summary: "How many engines the load of each model needs, over all routers.",
      tag: "router",
      responses: { 200: described(scaleReport) },
    }),
  },
  "/admin/feeds": {
    get: guarded({
      operationId: "feeds",
      summary: "The KV event feeds of engines and pools.",
      tag: "router",
      responses: { 200: described(json.object({ feeds: json.list(feedReport) })) },
    }),
  },
  "/admin/mesh": {
    get: guarded({
      operationId: "mesh",
      summary: "This router's place among the others.",
      tag: "router",
      responses: { 200: described(json.either(meshDescription, meshOff)) },
    }),
  },
  "/admin/explain": {
    post: guarded({
      operationId: "explain",
      summary: "Where a request would go, and why. Nothing is sent to an engine.",
      tag: "router",
      parameters: [
        inQuery(
          "endpoint",
          "`chat`, `completions`, `messages`, `responses`, or a path; guessed of the body unless given.",
        ),
      ],
      requestBody: body(json.anyObject(), "The request's body, as a client would send it, with its headers."),
      responses: {
        200: described(explanation),
        400: error("As the request itself would be refused."),
        404: error("No engine serves the model, or there is no such endpoint."),
        413: error("The body is too long."),
      },
    }),
  },
  "/admin/recording": {
    get: guarded({
      operationId: "recording",
      summary: "Every request that ends from now on, without its text, as `espalier record` writes it into a trace.",
      tag: "router",
      parameters: [
        {
          ...{ name: "x-espalier-salt", in: "header", required: true },
          description: "32 hexadecimal digits by which blocks, sessions and tenants get numbers.",
          schema: json.text(),
        },
      ],
      responses: {
        200: answer(
          "A JSON object a line: a request, or, once a second, the number of those left out so far.",
          recordedLine,
          "application/x-ndjson",
        ),
        400: error("The salt is missing."),
        429: error("Too many recordings."),
      },
    }),
  },
  "/admin/requests/{id}": {
    get: guarded({
      operationId: "pastRequest",
      summary: "What was decided about a request, at this router or another one of its mesh, and why.",
      tag: "router",
      parameters: [inPath("id", "`x-request-id` of the answer.")],
      responses: {
        200: described(pastRequest),
        404: error("No router of the mesh has it."),
        429: error("Too many others are looked for."),
      },
    }),
  },
};

const ofWorkers = {
  "/admin/workers": {
    get: guarded({
      operationId: "listWorkers",
      summary: "The engines.",
      tag: "workers",
      responses: { 200: described(json.object({ workers: json.list(worker) })) },
    }),
    post: guarded({
      operationId: "addWorker",
      summary: "Add an engine; with a mesh, at every router.",
      tag: "workers",
      requestBody: body(newWorker),
      responses: { 201: answer("It was added.", worker), 400: error("The body is no engine.") },
    }),
  },
  "/admin/workers/{id}": {
    get: guarded({
      operationId: "getWorker",
      summary: "One engine.",
      tag: "workers",
      parameters: [workerId],
      responses: { 200: described(worker), 404: error("There is no such engine.") },
    }),
    patch: guarded({
      operationId: "drainWorker",
      summary: "Give an engine no new requests, or give it new ones again.",
      tag: "workers",
      parameters: [workerId],
      requestBody: body(drainRequest),
      responses: {
        200: described(worker),
        400: error("The body is another one."),
        404: error("There is no such engine."),
      },
    }),
    delete: guarded({
      operationId: "removeWorker",
      summary: "Remove an engine; with a mesh, at every router. Requests that it has are not cut.",
      tag: "workers",
      parameters: [workerId],
      responses: { 204: { description: "It is gone." }, 404: error("There is no such engine.") },
    }),
  },
};

const toDashboard = { description: "To `/dashboard/`." };

const ofDashboard = {
  ...readable("/admin/dashboard", {
    summary: "What the dashboard's page needs to begin.",
    responses: { 200: described(dashboardAnswer) },
  }),
  ...readable("/admin/history", {
    summary: "The router's last fifteen minutes, a point each second.",
    parameters: [
      inQuery(
        "after",
        "Only points after this time of the router's clock, in milliseconds since the Unix epoch.",
        json.number(),
      ),
    ],
    responses: { 200: described(historyReport) },
  }),
  ...readable("/admin/prefixes", {
    summary: "What prompts have in common, and which engines have it.",
    parameters: [inQuery("below", "Hash of a prefix: that one comes first, and the others continue it.")],
    responses: { 200: described(prefixesReport), 400: error("`below` is no hash.") },
  }),
  ...readable("/admin/decisions", {
    summary: "Decisions from now on, as server-sent events named `decisions`, whose data is a `DecisionBatch`.",
    responses: {
      200: answer("A stream without end; a comment every two seconds.", decisionBatch, "text/event-stream"),
      503: error("Too many read it already."),
    },
  }),
  "/": {
    get: open({
      operationId: "root",
      summary: "Sends browsers to the dashboard, where there is one; else says what is here.",
      tag: "dashboard",
      responses: { 200: answer("A few paths.", json.text(), "text/plain"), 302: toDashboard },
    }),
  },
  "/dashboard": {
    get: open({
      operationId: "dashboardRedirect",
      summary: "Sends browsers to the dashboard.",
      tag: "dashboard",
      responses: { 302: toDashboard },
    }),
  },
  "/dashboard/": {
    get: open({
      operationId: "dashboardPage",
      summary: "The dashboard's page.",
      tag: "dashboard",
      responses: { 200: answer("The page.", json.text(), "text/html"), 404: error("It was not built.") },
    }),
  },
  "/dashboard/{name}": {
    get: open({
      operationId: "dashboardFile",
      summary: "A file of the dashboard's page.",
      tag: "dashboard",
      parameters: [inPath("name")],
      responses: { 200: answer("The file.", json.text(), "*/*"), 404: error("There is no such file.") },
    }),
  },
  "/yjs/{document}": {
    get: guarded({
      operationId: "documents",
      summary:
        "Follow a shared document, read-only, by the y-websocket protocol (docs/PROTOCOL.md). Only as a websocket; the key may be given as `?key=`.",
      tag: "dashboard",
      parameters: [inPath("document", "Its name; may have slashes."), inQuery("key", "The admin key, for browsers.")],
      responses: {
        101: { description: "The websocket is open." },
        404: { description: "There is no such document." },
      },
    }),
  },
};

const paths = { ...probes, ...ofRouter, ...ofWorkers, ...ofDashboard };
const responses = { Unauthorized: error("The admin key is missing or wrong.") };

/**
 * The description of the admin API (OpenAPI 3.1): `GET /admin/openapi.json`, and `docs/openapi.json`, which is made of it. Every
 * route of the admin listener has its entry here; the schema of an answer stands beside what makes the answer.
 * `test/integration/openapi.test.ts` compares both with routers that run.
 */
export const adminApi: Readonly<Record<string, unknown>> = {
  openapi: "3.1.0",
  info: {
    title: "Espalier admin API",
    version: "0.1.0",
    license: { name: "Apache-2.0", identifier: "Apache-2.0" },
    description:
      "What the admin listener of a router answers. Every GET is answered to HEAD as well, without a body. Where `admin.key` is set, everything but the probes and the dashboard's files asks for it; where it is not, the Host header must name a loopback address. What a page of another site sends is answered with 403. Errors have OpenAI's shape.",
  },
  servers: [{ url: "http://127.0.0.1:9090" }],
  security: [{}, { adminKey: [] }],
  tags: ["probes", "metrics", "router", "workers", "dashboard"].map((name) => ({ name })),
  paths,
  components: {
    securitySchemes: { adminKey: { type: "http", scheme: "bearer" } },
    responses,
    schemas: namedSchemas({ responses, paths }),
  },
};
