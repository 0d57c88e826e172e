import type { IncomingMessage, Server } from "node:http";
import {
  asRouterId,
  type Clock,
  EspalierError,
  type Logger,
  type Meter,
  type Scheduler,
  type Startable,
} from "@espalier/core";
import { closed, type Described, nullable, Type } from "@espalier/core/schema";
import { createYWebsocketEndpoint, type Origin } from "@espalier/mesh";
import type { FastifyInstance, FastifyReply } from "fastify";
import type { CompiledConfig } from "../config/index.ts";
import type { RouterParts } from "../create-context.ts";
import type { DecisionFeed } from "../decisions/decision-feed.ts";
import { answer, bare, described, error } from "../lifecycle/answer-schemas.ts";
import type { Readiness } from "../lifecycle/readiness.ts";
import { advertisedHost } from "../mesh/mesh-parts.ts";
import { createOverview, keysByIndex } from "../mesh/overview.ts";
import { createWhoMayRead, isLocalOrigin, type WhoMayRead } from "./admin-access.ts";
import { createAdminPeers } from "./admin-peers.ts";
import { registerDecisions } from "./decision-stream.ts";
import { createEventLog } from "./events.ts";
import { createHistory, type History, historyPoints, historyStepMs, registerHistory } from "./history.ts";
import { createPrefixReporter, prefixesReport } from "./prefix-report.ts";
import { type Recorder, registerRecording } from "./recorder.ts";

/** The dashboard page, provided by the embedding program. */
export interface DashboardPage {
  /** Called when somebody first loads the page: in a clone it is made of the sources, which takes a second. */
  readonly files: () => Promise<readonly PageFile[]>;
  /** For demonstrations: the command that kills this router. */
  readonly killCommand?: string;
}

/** What the page needs to begin. */
const dashboardAnswer = closed(
  {
    router: Type.String(),
    document: Type.String({ description: "Path of the overview document below `/yjs/`." }),
    killCommand: nullable(Type.String(), { description: "Command that kills the router, in demos only." }),
    grafana: nullable(Type.String(), { description: "`admin.grafana`." }),
  },
  { title: "Dashboard" },
);

interface DashboardPartsOptions {
  readonly config: CompiledConfig;
  readonly context: RouterParts;
  readonly readiness: () => Readiness;
  readonly page: DashboardPage | undefined;
  /** Known once the admin listener is open. */
  readonly adminUrl: () => string;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly logger: Logger;
  readonly meter: Meter;
}

/**
 * The dashboard: its page, its endpoints and documents, and access to them. Start it after the admin listener and stop
 * it before.
 */
export interface DashboardParts extends Startable {
  readonly who: WhoMayRead;
  /** Admin URLs of the other live routers that advertise one. */
  peers(): readonly { readonly router: string; readonly adminUrl: string }[];
  readonly routes: DashboardRoutes;
  /** Lets stock y-websocket clients follow this router's shared state and its overview, read-only, at `/yjs/`. */
  serveDocuments(server: Server): void;
}

/** What the routes of the dashboard answer from. */
export interface DashboardRoutes {
  readonly describe: () => Described<typeof dashboardAnswer>;
  readonly prefixes: (below: string | undefined) => Described<typeof prefixesReport>;
  readonly history: Pick<History, "report">;
  readonly decisions: DecisionFeed;
  readonly recorder: Recorder;
  readonly logger: Logger;
  readonly scheduler: Scheduler;
  /** Of the page; undefined where it is not shown. */
  readonly files: DashboardPage["files"] | undefined;
  /** Origins of the other routers. */
  readonly origins: () => readonly string[];
}

/** Registers the endpoints that require the key. */
export function registerDashboard(app: FastifyInstance, routes: DashboardRoutes): void {
  const start = {
    operationId: "dashboard",
    summary: "Bootstrap data of the dashboard.",
    ...{ tags: ["dashboard"], response: { 200: described(dashboardAnswer) } },
  };
  app.get("/admin/dashboard", { schema: start }, async () => routes.describe());
  const shared = {
    operationId: "prefixes",
    summary: "Shared prompt prefixes and the engines that cache them.",
    tags: ["dashboard"],
    querystring: Type.Object({
      below: Type.Optional(
        Type.String({ description: "Hash of a prefix. The answer lists this prefix first, then its continuations." }),
      ),
    }),
    response: { 200: described(prefixesReport), 400: error("`below` is not a hash.") },
  };
  app.get<{ Querystring: { below?: string } }>("/admin/prefixes", { schema: shared }, async ({ query }) =>
    routes.prefixes(query.below),
  );
  registerHistory(app, routes.history);
  registerDecisions(app, routes.decisions, routes.scheduler);
  registerRecording(app, routes);
}

export function createDashboardParts(options: DashboardPartsOptions): DashboardParts {
  const { config, context, clock, scheduler, logger, meter, page } = options;
  const { mesh, fleet, index, reloader, drain } = context;
  const { keySha256 } = config.admin;
  const peers = createAdminPeers({
    notes: mesh?.replica.notes,
    members: () => mesh?.members() ?? [],
    localOnly: keySha256 === undefined,
    ...{ clock, scheduler },
  });
  const { advertise } = config.admin;
  const who = createWhoMayRead({ origins: peers.readers, advertised: advertise, isOpen: keySha256 === undefined });
  const origin: Origin = mesh?.replica.ports.origin ?? { router: asRouterId("router"), epoch: clock.wallMs() };
  let ownAdmin: string | undefined;
  const overview = createOverview({
    ...{ origin, fleet, index, clock, scheduler },
    status: () => ({ ...options.readiness(), draining: drain.started, reload: reloader.last ?? null }),
    shared: mesh && {
      ...{ replica: mesh.replica, slots: mesh.slots },
      describe: () => mesh.describe(),
    },
    queues: () => context.admission.counts(),
    totals: () => context.metrics.totals,
    inFlight: () => context.inFlight.count,
    feedCount: () => context.prefix.feeds?.count ?? 0,
    release: context.release,
    adminOf: (router) => (router === origin.router ? ownAdmin : peers.originOf(router)),
  });
  const prefixes = createPrefixReporter({
    ...{ index, blockSize: config.prefix.blockSize, use: context.prefixUse, clock },
    keyOf: (target) => (mesh ? mesh.slots.keyOf(target) : keysByIndex(fleet)(target)),
  });
  const events = createEventLog({
    ...{ router: origin.router, fleet, keptMs: historyPoints * historyStepMs, clock, scheduler },
    members: () => mesh?.members() ?? [],
    lost: () => mesh?.lost() ?? [],
    ownerOf: (target) => mesh?.replica.feeds.claimOf(target)?.origin.router,
    lastReload: () => reloader.last,
    isDraining: () => drain.started,
  });
  const history = createHistory({
    ...{ metrics: context.metrics, events, clock, scheduler },
    waiting: () => context.admission.counts().reduce((sum, { queued }) => sum + queued, 0),
    takeEventLagMs: () => context.prefix.feeds?.takeWorstLagMs(),
  });
  const ends: (() => void)[] = [() => overview.stop(), () => peers.stop(), () => history.stop(), () => events.stop()];
  return {
    who,
    peers: () =>
      (mesh?.members() ?? []).flatMap(({ router, state }) => {
        const adminUrl = state === "alive" ? peers.originOf(router) : undefined;
        return adminUrl === undefined ? [] : [{ router, adminUrl }];
      }),
    routes: {
      ...{ prefixes, history, logger, scheduler, decisions: context.decisions, recorder: context.recorder },
      describe: () => ({
        router: origin.router,
        document: overview.document.name,
        killCommand: page?.killCommand ?? null,
        grafana: config.admin.grafana ?? null,
      }),
      files: config.admin.dashboard ? page?.files : undefined,
      origins: () => peers.origins(),
    },
    serveDocuments(server) {
      const documents = [...(mesh ? [mesh.replica.store] : []), overview.document];
      const allows = ({ headers }: Pick<IncomingMessage, "headers">): boolean =>
        who.refusal({ method: "GET", headers }) === undefined;
      const endpoint = createYWebsocketEndpoint({ documents, keySha256, allows, logger, meter, scheduler });
      ends.push(() => endpoint.stop());
      server.on("upgrade", (request, socket, head) => {
        if (!endpoint.handleUpgrade(request, socket, head)) socket.destroy();
      });
    },
    async start() {
      ownAdmin = adminOrigin(config, options.adminUrl());
      if (mesh && page && config.admin.dashboard && needsAnnouncement(config, ownAdmin, mesh.address)) {
        peers.announce(ownAdmin);
      }
    },
    async stop() {
      for (const end of ends.splice(0)) end();
    },
  };
}

/**
 * The origin for browsers on other machines: as configured, or, when listening on all addresses, the mesh's advertised
 * host.
 */
function adminOrigin({ admin, mesh }: CompiledConfig, adminUrl: string): string {
  if (admin.advertise !== undefined) return admin.advertise;
  const { protocol, port } = new URL(adminUrl);
  const isAny = admin.host === "0.0.0.0" || admin.host === "::";
  const advertised = isAny ? mesh.advertise?.replace(/:\d+$/, "") : undefined;
  return `${protocol}//${advertised ?? advertisedHost(admin.host)}:${port}`;
}

/** Announces a loopback address only when all routers are on one machine or when it is configured. */
function needsAnnouncement({ admin }: CompiledConfig, origin: string, meshAddress: string | null): boolean {
  if (admin.advertise !== undefined || !isLocalOrigin(origin)) return true;
  return isLocalOrigin(`http://${meshAddress ?? "elsewhere"}`);
}

/** Asset of the dashboard. */
export interface PageFile {
  /** Path below `/dashboard/`; `index.html` is the page itself. */
  readonly name: string;
  readonly contentType: string;
  readonly text: string;
}

/** Placeholder in the page for the origins that it may contact. */
const originsPlace = 'data-origins=""';

const commonHeaders = {
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cross-origin-resource-policy": "same-origin",
  "cross-origin-opener-policy": "same-origin",
} as const;

const indexText = [
  "The admin listener of an Espalier router.",
  "",
  "/dashboard/           in a browser",
  "/readyz, /livez       probes",
  "/metrics              for Prometheus",
  "/admin/status         readiness, counts of requests, other routers",
  "/admin/engines        engines",
  "/admin/openapi.json   everything else",
  "",
].join("\n");

/** A route that needs no key. */
const open = (operationId: string, summary: string, response: object) => ({
  ...{ operationId, summary, security: [], tags: ["dashboard"], response },
});
const toDashboard = { 302: bare("Redirect to `/dashboard/`.") };

/** What is here: the dashboard for browsers, where there is one, else a few paths as text. */
export function registerIndex(app: FastifyInstance, hasPage: boolean): void {
  const schema = open("root", "List of paths; browsers are redirected to the dashboard, if enabled.", {
    ...{ 200: answer("List of paths.", Type.String(), "text/plain"), ...toDashboard },
  });
  app.get("/", { schema }, (request, reply) => {
    if (hasPage && request.headers.accept?.includes("text/html")) return reply.redirect("/dashboard/");
    return reply.type("text/plain; charset=utf-8").send(indexText);
  });
}

/**
 * Serves `/dashboard/`. The files are public; the page requests its data with the key that its
 * user enters.
 *
 * @param files undefined where no page is shown: then nothing is found here
 * @param origins those of the other routers, read each time the page is loaded
 */
export function registerPage(
  app: FastifyInstance,
  files: DashboardPage["files"] | undefined,
  origins: () => readonly string[],
): void {
  let loaded: Promise<readonly PageFile[]> | undefined;
  const fileOf = async (name: string): Promise<PageFile> => {
    loaded ??= files?.();
    const file = (await loaded)?.find((each) => each.name === name);
    if (!file) throw new EspalierError("path_not_found");
    return file;
  };
  const send = (reply: FastifyReply, file: PageFile, text: string): FastifyReply =>
    reply
      .headers({ ...commonHeaders, "cache-control": "no-cache" })
      .type(file.contentType)
      .send(text);
  const sendIndex = async (reply: FastifyReply): Promise<FastifyReply> => {
    const index = await fileOf("index.html");
    const allowed = origins();
    reply.header("content-security-policy", contentPolicy(allowed));
    return send(reply, index, index.text.replace(originsPlace, `data-origins="${allowed.join(" ")}"`));
  };
  const redirect = open("dashboardRedirect", "Redirect to the dashboard.", toDashboard);
  app.get("/dashboard", { schema: redirect }, (_, reply) => {
    if (!files) throw new EspalierError("path_not_found");
    return reply.redirect("/dashboard/");
  });
  const index = open("dashboardPage", "Page of the dashboard.", {
    ...{ 200: answer("Dashboard page.", Type.String(), "text/html"), 404: error("Dashboard not built.") },
  });
  app.get("/dashboard/", { schema: index }, (_, reply) => sendIndex(reply));
  const file = open("dashboardFile", "Asset of the dashboard.", {
    ...{ 200: answer("Asset.", Type.String(), "*/*"), 404: error("File not found.") },
  });
  app.get<{ Params: { name: string } }>("/dashboard/:name", { schema: file }, async ({ params }, reply) => {
    if (params.name === "index.html") return sendIndex(reply);
    const found = await fileOf(params.name);
    return send(reply, found, found.text);
  });
}

/**
 * The page's content security policy. The page may contact its own listener, and those of the other routers in case its
 * own is gone.
 *
 * @param origins as `readOrigin` returns them
 */
export function contentPolicy(origins: readonly string[]): string {
  const others = origins.flatMap((origin) => [origin, origin.replace(/^http/, "ws")]);
  return [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    ["connect-src 'self'", ...others].join(" "),
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join("; ");
}
