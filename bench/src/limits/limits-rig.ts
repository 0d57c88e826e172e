import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  createLoadClient,
  type LoadClient,
  type LoadRequest,
  percentile,
  runClosedLoop,
  runOpenLoop,
} from "@espalier/simulator";
import { type Child, type RouterListening, startChild, startLocalRouter } from "espalier-router";
import type { Figures } from "../support/median-spread.ts";
import { readTreeUsage } from "../support/process-tree.ts";
import { routerProgram } from "../support/router-program.ts";
import { pauseFor, untilNothingMissing, type WaitPorts } from "../support/until.ts";
import type { LimitEnginesCommand, LimitEnginesListening, LimitEnginesOptions } from "./limit-engines.ts";

/** Engines in one process and a router in another, for one part. */
export interface LimitsRig {
  readonly engines: LimitEnginesListening;
  readonly router: Child<RouterListening>;
  /** Lets each publisher of KV events send one message. */
  publish(): void;
  /** Asks the router's admin listener. */
  admin(path: string, init?: RequestInit): Promise<{ readonly status: number; readonly text: string }>;
  /** Waits until nothing is missing. @returns milliseconds since the router's start */
  untilReady(missing: () => Promise<string | undefined>): Promise<number>;
  /** Sends so many requests, some at a time. @returns those that failed, and the requests a second */
  sendAll(
    count: number,
    requestOf: RequestOf,
  ): Promise<{ readonly failed: readonly string[]; readonly perSecond: number }>;
  /** Idle for a time, then under a small load. @throws Error when a request fails */
  measure(requestOf: RequestOf): Promise<Figures>;
}

/** The request of a number: path, body and headers. */
export type RequestOf = (number: number) => Omit<LoadRequest, "url">;

export interface RigOptions {
  readonly engines: LimitEnginesOptions;
  /** The router's configuration, by the engines. */
  readonly config: (engines: LimitEnginesListening) => object;
  readonly ports: WaitPorts;
  readonly isQuick: boolean;
}

/** One process may take long to start beside 4,096 sockets. */
const startTimeoutMs = 60_000;
const readyTimeoutMs = 90_000;
const concurrency = 32;
const perSecond = 100;
const bytesPerMb = 1e6;
const enginesProgram = fileURLToPath(new URL("../programs/limit-engines.ts", import.meta.url));

export const chatOf = (model: string, number: number, headers: Readonly<Record<string, string>> = {}) => ({
  path: "/v1/chat/completions",
  body: JSON.stringify({ model, messages: [{ role: "user", content: `Question ${number} of many. `.repeat(16) }] }),
  headers,
});

/** Runs `use` with engines and a router, and ends them afterwards. */
export async function withLimitsRig<Result>(
  options: RigOptions,
  use: (rig: LimitsRig) => Promise<Result>,
): Promise<Result> {
  const { ports } = options;
  const children: Child<unknown>[] = [];
  const client = createLoadClient(ports.clock);
  try {
    const engines = await startChild<LimitEnginesListening>({
      ...{ name: "the engines", program: enginesProgram, arguments: [JSON.stringify(options.engines)], startTimeoutMs },
    });
    children.push(engines);
    const startMs = ports.clock.nowMs();
    const router = await startConfigured(options.config(engines.listening));
    children.unshift(router);
    return await use(new Rig(options, client, { engines, router, startMs }));
  } finally {
    client.close();
    await Promise.all(children.map((child) => child.stop()));
  }
}

/** A router with a configuration. @throws Error with what it said when it does not start */
export function startConfigured(config: object): Promise<Child<RouterListening>> {
  const file = join(tmpdir(), `espalier-limits-${process.pid}.json`);
  writeFileSync(file, JSON.stringify(config));
  return startLocalRouter({
    engineUrls: [],
    port: 0,
    adminPort: 0,
    startTimeoutMs,
    arguments: ["--config", file, "--log-level", "warn"],
    runBy: routerProgram,
  });
}

class Rig implements LimitsRig {
  readonly engines: LimitEnginesListening;
  readonly router: Child<RouterListening>;
  readonly #options: RigOptions;
  readonly #client: LoadClient;
  readonly #engineProcess: Child<unknown>;
  readonly #startMs: number;

  constructor(
    options: RigOptions,
    client: LoadClient,
    started: { engines: Child<LimitEnginesListening>; router: Child<RouterListening>; startMs: number },
  ) {
    this.#options = options;
    this.#client = client;
    this.#engineProcess = started.engines;
    this.engines = started.engines.listening;
    this.router = started.router;
    this.#startMs = started.startMs;
  }

  publish(): void {
    this.#engineProcess.process.send({ type: "publish" } satisfies LimitEnginesCommand);
  }

  async admin(path: string, init: RequestInit = {}) {
    const response = await fetch(this.router.listening.adminUrl + path, init);
    return { status: response.status, text: await response.text() };
  }

  async untilReady(missing: () => Promise<string | undefined>): Promise<number> {
    await untilNothingMissing(missing, readyTimeoutMs, this.#options.ports);
    return this.#options.ports.clock.nowMs() - this.#startMs;
  }

  async sendAll(count: number, requestOf: RequestOf) {
    const { clock } = this.#options.ports;
    const startMs = clock.nowMs();
    const failed: string[] = [];
    let next = 0;
    const job = () => {
      if (next >= count) return undefined;
      const number = next++;
      return async () => {
        const { error } = await this.#client.send({ url: this.router.listening.url, ...requestOf(number) });
        if (error !== undefined) failed.push(error);
      };
    };
    await runClosedLoop(job, concurrency);
    return { failed, perSecond: (count * 1_000) / (clock.nowMs() - startMs) };
  }

  async measure(requestOf: RequestOf): Promise<Figures> {
    const { isQuick, ports } = this.#options;
    const seconds = isQuick ? 1 : 8;
    const pid = this.router.process.pid!;
    await this.#stall();
    const idle = await cpuOver(pid, ports, () => pauseFor(seconds * 1_000, ports.scheduler));
    const idleStallMs = await this.#stall();
    // The first ones are of cold code and new connections.
    await this.#times(seconds / 2, this.router.listening.url, requestOf);
    await this.#stall();
    const direct = await this.#times(seconds / 2, this.engines.urls[0]!, requestOf);
    let through = direct;
    const loaded = await cpuOver(pid, ports, async () => {
      through = await this.#times(seconds, this.router.listening.url, requestOf);
    });
    const loadedStallMs = await this.#stall();
    return {
      idle_cpu_percent: idle * 100,
      request_cpu_us: ((loaded - idle) * 1e6) / perSecond,
      added_p50_ms: percentile(through, 50) - percentile(direct, 50),
      added_p99_ms: percentile(through, 99) - percentile(direct, 99),
      rss_mb: readTreeUsage(pid).residentBytes / bytesPerMb,
      descriptors: openFiles(pid),
      ...{ idle_stall_ms: idleStallMs, loaded_stall_ms: loadedStallMs },
    };
  }

  /** The longest delay of the router's event loop since it was asked last. */
  async #stall(): Promise<number> {
    const { text } = await this.admin("/metrics");
    return Number(/^nodejs_eventloop_lag_max_seconds (\S+)/m.exec(text)?.[1]) * 1_000;
  }

  /** @returns ascending milliseconds of requests at a steady rate */
  async #times(seconds: number, url: string, requestOf: RequestOf): Promise<Float64Array> {
    const times: number[] = [];
    const jobs = Array.from({ length: Math.round(seconds * perSecond) }, (_, number) => ({
      dueMs: (number * 1_000) / perSecond,
      run: async () => {
        const { startMs, endMs, error } = await this.#client.send({ url, ...requestOf(number) });
        if (error !== undefined) throw new Error(`a request at the limit failed: ${error}`);
        times.push(endMs - startMs);
      },
    }));
    await runOpenLoop(jobs, this.#options.ports);
    return Float64Array.from(times).sort();
  }
}

/** @returns the share of a core that a process takes while `happen` runs */
async function cpuOver(pid: number, { clock }: WaitPorts, happen: () => Promise<void>): Promise<number> {
  const [startMs, before] = [clock.nowMs(), readTreeUsage(pid).cpuSeconds];
  await happen();
  return ((readTreeUsage(pid).cpuSeconds - before) * 1_000) / (clock.nowMs() - startMs);
}

/** @param pid "self" for this process */
export function openFiles(pid: number | "self"): number {
  return readdirSync(`/proc/${pid}/fd`).length;
}

/** Files that a process started from here may have open: Node raises its own bound as far as it may. */
export function openFileBound(): number {
  return Number(/^Max open files\s+\d+\s+(\d+)/m.exec(readFileSync("/proc/self/limits", "utf8"))?.[1]);
}
