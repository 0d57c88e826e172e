import type { Clock, Random } from "@espalier/core";
import { type EngineSimOptions, startEngineSim } from "@espalier/engine-sim";
import { createRouter, type DashboardPage, loadConfig, type Router, type RouterDependencies } from "@espalier/server";
import { createRecordingLogger, type LogLine, waitFor } from "@espalier/testing";
import { type Answer, call, type Json } from "./client.ts";
import { type MetricsPage, parseMetrics } from "./prometheus.ts";

/** What a test starts, and its end. */
export interface Rig {
  /** Hands over something that must be stopped when the test is over; the last one goes first. */
  own(stop: () => Promise<unknown> | unknown): void;
  router(options?: RouterOptions): Promise<RunningRouter>;
  /** Starts simulated engines that serve `tiny`, a thousand times faster than life, unless told otherwise. */
  sims(count: number, options?: EngineSimOptions): Promise<readonly Sim[]>;
  /** Stops everything. Throws when a router logged a defect of its own. */
  close(): Promise<void>;
}

export interface RouterOptions {
  readonly engines?: readonly (string | Json)[];
  /** Sections of the configuration, as in the file. */
  readonly config?: Json;
  readonly random?: Random;
  readonly clock?: Clock;
  /** Longest time of its warm-up; none unless given. */
  readonly warmUpMs?: number;
  /** The dashboard's page; none unless given. */
  readonly page?: DashboardPage;
  /** Policies, hooks and authentication of the program. */
  readonly extensions?: Extensions;
  /** Engines that must be usable before the router counts as started; all of them by default. */
  readonly usable?: number;
}

/** What the program that runs a router adds to it. */
export type Extensions = Pick<RouterDependencies, "policies" | "hooks" | "auth">;

export interface RunningRouter {
  readonly router: Router;
  readonly url: string;
  readonly port: number;
  readonly adminUrl: string;
  readonly lines: readonly LogLine[];
  admin(method: string, path: string, body?: unknown): Promise<Answer>;
  metrics(): Promise<MetricsPage>;
  engines(): Promise<readonly Engine[]>;
  /** Waits until nothing is in flight and every load figure is back at zero. */
  untilIdle(): Promise<void>;
}

/** The part of `GET /admin/engines` that tests read. */
interface Engine {
  readonly id: string;
  readonly url: string;
  readonly state: string;
  readonly draining: boolean;
  readonly models: readonly string[] | null;
  readonly breaker: { readonly state: string; readonly reason: string };
  readonly targets: readonly { readonly usable: boolean; readonly load: Readonly<Record<string, number>> }[];
}

/** One simulated engine. */
export interface Sim {
  readonly url: string;
  /** As the router names it. */
  readonly id: string;
  fault(fault: Json): Promise<void>;
  clearFaults(): Promise<void>;
  state(): Promise<SimState>;
  stop(): Promise<void>;
}

interface SimState {
  readonly active: readonly Json[];
  readonly totals: Readonly<Record<string, number>>;
  readonly requests: readonly {
    readonly path: string;
    readonly outcome: string;
    readonly headers: Readonly<Record<string, string>>;
  }[];
}

export function createRig(): Rig {
  const stops: (() => Promise<unknown> | unknown)[] = [];
  const logs: (readonly LogLine[])[] = [];
  const own: Rig["own"] = (stop) => stops.push(stop);
  return {
    own,
    router: (options = {}) => startRouter(own, logs, options),
    sims: (count, options = {}) => startSims(own, count, options),
    async close() {
      for (const stop of stops.splice(0).reverse()) await stop();
      const defects = logs.splice(0).flatMap((lines) => lines.filter(({ level }) => level === "error"));
      if (defects.length > 0) throw new Error(`the router logged a defect: ${describe(defects)}`);
    },
  };
}

function describe(lines: readonly LogLine[]): string {
  return lines.map(({ message, fields }) => `${message} ${Object.values(fields).map(String).join(" ")}`).join("; ");
}

/** Tests need engines found down in fractions of a second, but a busy machine must not look like a dead engine. */
const quickHealth = { interval: "200ms", timeout: "2s" };

async function startRouter(
  own: Rig["own"],
  logs: (readonly LogLine[])[],
  {
    engines = [],
    config = {},
    extensions = {},
    random,
    clock,
    page,
    warmUpMs = 0,
    usable = engines.length,
  }: RouterOptions,
): Promise<RunningRouter> {
  const logger = createRecordingLogger();
  logs.push(logger.lines);
  const listen = { port: 0, ...(config.listen as Json | undefined) };
  const admin = { port: 0, ...(config.admin as Json | undefined) };
  // A clock that a test puts forward again and again is not a router that comes late to its work.
  const limits = clock && { "max-event-loop-delay": "1m", ...(config.limits as Json | undefined) };
  const text = JSON.stringify({ health: quickHealth, ...config, ...(limits && { limits }), listen, admin, engines });
  const policies = Object.keys(extensions.policies ?? {});
  const compiled = loadConfig({ file: { path: "router.yaml", text }, policies });
  const router = createRouter({
    ...{ config: compiled, logger, warmUpMs, ...extensions },
    ...(random ? { random } : {}),
    ...(clock ? { clock } : {}),
    ...(page ? { dashboard: page } : {}),
  });
  own(() => router.stop());
  await router.start();
  const key = (config.admin as { key?: string } | undefined)?.key;
  const headers = key === undefined ? {} : { authorization: `Bearer ${key}` };
  const ask: RunningRouter["admin"] = (method, path, body) =>
    call(router.adminUrl + path, {
      method,
      headers: body === undefined ? headers : { ...headers, "content-type": "application/json" },
      body: body === undefined || typeof body === "string" ? body : JSON.stringify(body),
    });
  const listed = async () => (await ask("GET", "/admin/engines")).json.engines as readonly Engine[];
  const countUsable = (all: readonly Engine[]) => all.filter(({ models, targets }) => models && targets[0]?.usable);
  if (usable > 0) {
    await waitFor(async () => countUsable(await listed()).length >= usable, { what: `${usable} usable engines` });
  }
  return {
    router,
    url: router.url,
    port: Number(new URL(router.url).port),
    adminUrl: router.adminUrl,
    lines: logger.lines,
    admin: ask,
    metrics: async () => parseMetrics((await ask("GET", "/metrics")).text),
    engines: listed,
    async untilIdle() {
      await waitFor(
        async () => {
          const loads = (await listed()).flatMap(({ targets }) => targets.flatMap(({ load }) => Object.values(load)));
          const { inFlight } = (await ask("GET", "/admin/status")).json;
          return inFlight === 0 && loads.every((load) => load === 0);
        },
        { what: "idle router" },
      );
    },
  };
}

async function startSims(own: Rig["own"], count: number, options: EngineSimOptions): Promise<readonly Sim[]> {
  const sims: Sim[] = [];
  for (let index = 0; index < count; index++) {
    const { engines, stop } = await startEngineSim({ speed: 1_000, models: ["tiny"], seed: index, ...options });
    own(stop);
    const url = engines[0]?.url ?? "";
    const setFault = (method: string, body?: string) =>
      call(`${url}/sim/faults`, { method, body, headers: { "content-type": "application/json" } });
    sims.push({
      url,
      id: new URL(url).host,
      async fault(fault) {
        const answer = await setFault("POST", JSON.stringify(fault));
        if (answer.status !== 200) throw new Error(answer.text);
      },
      async clearFaults() {
        await setFault("DELETE");
      },
      state: async () => (await call(`${url}/sim/state`)).json as unknown as SimState,
      stop,
    });
  }
  return sims;
}
