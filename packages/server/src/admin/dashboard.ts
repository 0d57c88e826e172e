import type { IncomingMessage, Server } from "node:http";
import {
  asRouterId,
  type Clock,
  type Described,
  EspalierError,
  json,
  type Logger,
  type Meter,
  type Scheduler,
  type Startable,
} from "@espalier/core";
import { createYWebsocketEndpoint, type Origin } from "@espalier/mesh";
import type { FastifyInstance, FastifyReply } from "fastify";
import type { CompiledConfig } from "../config/index.ts";
import { advertisedHost } from "../mesh/mesh-parts.ts";
import { createOverview, keysByIndex } from "../mesh/overview.ts";
import type { RouterContext } from "../router-context.ts";
import { createWhoMayRead, isLocalOrigin, type WhoMayRead } from "./admin-access.ts";
import { createAdminPeers } from "./admin-peers.ts";
import { registerDecisions } from "./decision-feed.ts";
import { createHistory, registerHistory } from "./history.ts";
import { createPrefixReporter } from "./prefix-report.ts";
import { registerRecording } from "./recorder.ts";

/** The dashboard page, provided by the embedding program. */
export interface DashboardPage {
  readonly files: readonly PageFile[];
  /** For demonstrations: the command that kills this router. */
  readonly killCommand?: string;
}

/** What the page needs to begin. */
export const dashboardAnswer = json.named(
  "Dashboard",
  json.object({
    router: json.text(),
    document: json.text("Name of the overview's document below `/yjs/`."),
    killCommand: json.nullable(json.text(), "For demonstrations."),
  }),
);

interface DashboardPartsOptions {
  readonly config: CompiledConfig;
  readonly context: RouterContext;
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
  /** Admin listeners of the other live routers, as far as they announce them. */
  peers(): readonly { readonly router: string; readonly adminUrl: string }[];
  /** Registers the endpoints that require the key. */
  registerGuarded(app: FastifyInstance): void;
  /** Registers the page itself and what `/` answers, which require no key. */
  registerOpen(app: FastifyInstance): void;
  /** Lets stock y-websocket clients follow this router's shared state and its overview, read-only, at `/yjs/`. */
  serveDocuments(server: Server): void;
}

export function createDashboardParts(options: DashboardPartsOptions): DashboardParts {
  const { config, context, clock, scheduler, logger, meter, page } = options;
  const { mesh, fleet, index } = context;
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
    shared: mesh && {
      ...{ replica: mesh.replica, slots: mesh.slots },
      describe: () => mesh.describe(),
    },
    queues: () => context.admission.counts(),
    totals: () => context.metrics.totals,
    inFlight: () => context.inFlight.count,
    release: context.release,
    adminOf: (router) => (router === origin.router ? ownAdmin : peers.originOf(router)),
  });
  const prefixes = createPrefixReporter({
    ...{ index, blockSize: config.prefix.blockSize, clock },
    keyOf: (target) => (mesh ? mesh.slots.keyOf(target) : keysByIndex(fleet)(target)),
  });
  const history = createHistory({
    ...{ metrics: context.metrics, clock, scheduler },
    waiting: () => context.admission.counts().reduce((sum, { queued }) => sum + queued, 0),
    takeEventLagMs: () => context.prefix.feeds?.takeWorstLagMs(),
  });
  const ends: (() => void)[] = [() => overview.stop(), () => peers.stop(), () => history.stop()];
  return {
    who,
    peers: () =>
      (mesh?.members() ?? []).flatMap(({ router, state }) => {
        const adminUrl = state === "alive" ? peers.originOf(router) : undefined;
        return adminUrl === undefined ? [] : [{ router, adminUrl }];
      }),
    registerGuarded(app) {
      app.get(
        "/admin/dashboard",
        async (): Promise<Described<typeof dashboardAnswer>> => ({
          router: origin.router,
          document: overview.document.name,
          killCommand: page?.killCommand ?? null,
        }),
      );
      app.get<{ Querystring: { below?: string } }>("/admin/prefixes", async ({ query }) => prefixes(query.below));
      registerHistory(app, history);
      registerDecisions(app, context.decisions, scheduler);
      registerRecording(app, { recorder: context.recorder, logger, scheduler });
    },
    registerOpen(app) {
      const shown = config.admin.hasDashboard ? page : undefined;
      registerIndex(app, shown !== undefined);
      if (shown) registerPage(app, shown.files, () => peers.origins());
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
      if (mesh && page && config.admin.hasDashboard && isWorthAnnouncing(config, ownAdmin, mesh.address)) {
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
function isWorthAnnouncing({ admin }: CompiledConfig, origin: string, meshAddress: string | null): boolean {
  if (admin.advertise !== undefined || !isLocalOrigin(origin)) return true;
  return isLocalOrigin(`http://${meshAddress ?? "elsewhere"}`);
}

/** A file of the dashboard's page. */
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
  "/admin/workers        engines",
  "/admin/openapi.json   everything else",
  "",
].join("\n");

/** What is here: the dashboard for browsers, where there is one, else a few paths as text. */
export function registerIndex(app: FastifyInstance, hasPage: boolean): void {
  app.get("/", (request, reply) => {
    if (hasPage && request.headers.accept?.includes("text/html")) return reply.redirect("/dashboard/");
    return reply.type("text/plain; charset=utf-8").send(indexText);
  });
}

/**
 * Serves `/dashboard/`. The files are public; the page requests its data with the key that its
 * user enters.
 *
 * @param origins those of the other routers, read each time the page is loaded
 */
export function registerPage(app: FastifyInstance, files: readonly PageFile[], origins: () => readonly string[]): void {
  const byName = new Map(files.map((file) => [file.name, file]));
  const send = (reply: FastifyReply, file: PageFile, text: string): FastifyReply =>
    reply
      .headers({ ...commonHeaders, "cache-control": "no-cache" })
      .type(file.contentType)
      .send(text);
  const sendIndex = (reply: FastifyReply): FastifyReply => {
    const index = byName.get("index.html");
    if (!index) throw new EspalierError("path_not_found");
    const allowed = origins();
    reply.header("content-security-policy", contentPolicy(allowed));
    return send(reply, index, index.text.replace(originsPlace, `data-origins="${allowed.join(" ")}"`));
  };
  app.get("/dashboard", (_, reply) => reply.redirect("/dashboard/"));
  app.get("/dashboard/", (_, reply) => sendIndex(reply));
  app.get<{ Params: { name: string } }>("/dashboard/:name", ({ params }, reply) => {
    if (params.name === "index.html") return sendIndex(reply);
    const file = byName.get(params.name);
    if (!file) throw new EspalierError("path_not_found");
    return send(reply, file, file.text);
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
