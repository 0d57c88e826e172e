import type { IncomingMessage } from "node:http";
import { isIP } from "node:net";
import { isLoopback, type Meter } from "@espalier/core";
import type { EngineRecord } from "@espalier/engines";
import type { FastifyInstance } from "fastify";
import { createWhoMayRead, hostOf } from "../admin/admin-access.ts";
import type { RolloutsConfig } from "../config/index.ts";
import { type ApiKey, authenticate, type Front } from "../data-plane/data-plane-app.ts";
import { readTls } from "../lifecycle/certificates.ts";
import type { Readiness } from "../lifecycle/readiness.ts";
import type { RouterContext } from "../router-context.ts";
import { registerEnds } from "./end-routes.ts";
import { createEngineHosts, createNetworks } from "./engine-hosts.ts";
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
  const keys = keysOf(settings);
  const isTrusted = createTrust(settings.trusted);
  const keysFor = (request: IncomingMessage) => (isTrusted(request) ? [] : keys);
  const who = createWhoMayRead({ origins: () => [], isOpen: keys === undefined });
  const loadOf = ({ targets }: EngineRecord): number =>
    targets.reduce((sum, { load, index }) => sum + load.inFlight + (mesh?.load.inFlight[index] ?? 0), 0);
  return {
    tls: settings.tls && readTls(settings.tls),
    keysFor,
    isForRollouts: true,
    register(app: FastifyInstance) {
      app.addHook("onRequest", async ({ raw, headers }) => {
        const refusal = who.refusal(raw);
        if (refusal) throw refusal;
        authenticate(keysFor(raw) ?? [], headers);
      });
      const parts = { fleet, control, abort, http, settings, scheduler, logger, meter };
      registerWorkers(app, { ...parts, operators, loadOf, isAllowed: createEngineHosts(settings.allow) });
      registerControl(app, parts);
      registerEnds(app, { sessions, programs, fleet });
    },
  };
}

/** The keys of which a client must have one; undefined where it needs none. */
function keysOf({ keySha256, trusted }: RolloutsConfig): readonly ApiKey[] | undefined {
  if (keySha256) return [{ name: "rollouts", sha256: keySha256 }];
  return trusted.length === 0 ? undefined : [{ name: "rollouts", sha256: noDigest }];
}

/** Of no text that is known: with trusted networks and no key, a client elsewhere has none that fits. */
const noDigest = Buffer.alloc(32);

/**
 * Whether a client needs no key: its address is in a trusted network, and the Host header names an address. A browser there
 * that a page's own name has led to the listener sends that name.
 */
function createTrust(trusted: readonly string[]): (request: IncomingMessage) => boolean {
  const isWithin = createNetworks(trusted);
  return ({ socket, headers }) => {
    const host = hostOf(headers.host ?? "") ?? "";
    return isWithin(socket.remoteAddress ?? "") && (isIP(host) > 0 || isLoopback(host));
  };
}

/** Frameworks wait for 200 before they add the first engine. */
export const whileServing = ({ drain }: Pick<RouterContext, "drain">): Readiness =>
  drain.started ? { ready: false, reasons: ["the router is draining"] } : { ready: true, reasons: [] };
