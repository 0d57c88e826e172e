import type { Meter } from "@espalier/core";
import type { EngineRecord } from "@espalier/engines";
import type { FastifyInstance } from "fastify";
import { createWhoMayRead } from "../admin/admin-access.ts";
import type { RolloutsConfig } from "../config/index.ts";
import { authenticate, type Front } from "../data-plane/data-plane-app.ts";
import { readTls } from "../lifecycle/certificates.ts";
import type { Readiness } from "../lifecycle/readiness.ts";
import type { RouterContext } from "../router-context.ts";
import { registerEnds } from "./end-routes.ts";
import { createEngineHosts } from "./engine-hosts.ts";
import { registerControl } from "./fan-out.ts";
import { registerWorkers } from "./worker-routes.ts";

export interface RolloutsOptions {
  readonly settings: RolloutsConfig;
  readonly context: RouterContext;
  readonly meter: Meter;
}

/** The data plane as RL frameworks reach it, with the control routes that they expect of their router. */
export function createRolloutsFront({ settings, context, meter }: RolloutsOptions): Front {
  const { fleet, mesh, operators, engineControl: control, controlHttp: http, scheduler, logger } = context;
  const { abortRequests: abort, sessions, programs } = context;
  const keys = settings.keySha256 ? [{ name: "rollouts", sha256: settings.keySha256 }] : undefined;
  const who = createWhoMayRead({ origins: () => [], isOpen: keys === undefined });
  const loadOf = ({ targets }: EngineRecord): number =>
    targets.reduce((sum, { load, index }) => sum + load.inFlight + (mesh?.load.inFlight[index] ?? 0), 0);
  return {
    tls: settings.tls && readTls(settings.tls),
    keys,
    isForRollouts: true,
    register(app: FastifyInstance) {
      app.addHook("onRequest", async ({ raw, headers }) => {
        const refusal = who.refusal(raw);
        if (refusal) throw refusal;
        authenticate(keys ?? [], headers);
      });
      const parts = { fleet, control, abort, http, settings, scheduler, logger, meter };
      registerWorkers(app, { ...parts, operators, loadOf, isAllowed: createEngineHosts(settings.allow) });
      registerControl(app, parts);
      registerEnds(app, { sessions, programs, fleet });
    },
  };
}

/** Frameworks wait for 200 before they add the first engine. */
export const whileServing = ({ drain }: Pick<RouterContext, "drain">): Readiness =>
  drain.started ? { ready: false, reasons: ["the router is draining"] } : { ready: true, reasons: [] };
