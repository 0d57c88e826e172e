import { Agent, createServer, request as httpRequest, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import {
  asEngineId,
  type Clock,
  type EngineSpec,
  type Random,
  type Scheduler,
  type Startable,
  silentLogger,
  startTogether,
  systemAfterPoll,
} from "@espalier/core";
import type { CompiledConfig } from "./config/index.ts";
import { createContext } from "./create-context.ts";
import { createDataPlaneApp, listenerSettings } from "./data-plane/data-plane-app.ts";
import type { LargeBodies } from "./large-bodies/large-bodies.ts";
import { createListener } from "./lifecycle/listener.ts";
import { createMetrics } from "./telemetry/index.ts";

interface WarmUpOptions {
  readonly config: CompiledConfig;
  /** Most milliseconds; 0 disables the warm-up. */
  readonly budgetMs: number;
  /** The router's own; the first body starts their thread, which keeps nothing of it. */
  readonly largeBodies: LargeBodies;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
}

/** Warms up a router's code before it serves clients. `start` begins it, `stop` aborts it. */
export interface WarmUp extends Startable {
  readonly isOver: boolean;
}

/** Several, so that there is a choice. */
const engineCount = 4;
/** V8 goes on compiling for some 10,000 requests, but most of it is done by then. */
const maxRequests = 3_000;
/** Concurrent requests. The event loop turns between any two chunks of one. */
const concurrency = 4;
/** Interval at which it checks whether the engines are usable. */
const lookEveryMs = 10;

/**
 * Sends requests of several kinds through a second router with the same code and settings, in front of engines that
 * answer at once. V8 compiles code that has run often, and the compiled code then serves the real router's clients. The
 * two share nothing else: no metrics, index, learned times, budgets, log or peers. Nothing that the configuration names
 * is dialled. Any failure ends the warm-up, and the router serves without it.
 */
export function createWarmUp(options: WarmUpOptions): WarmUp {
  const { budgetMs, scheduler } = options;
  const aborter = new AbortController();
  let running: Promise<void> | undefined;
  let isOver = budgetMs === 0;
  return {
    get isOver() {
      return isOver;
    },
    async start() {
      if (isOver) return;
      const cancel = scheduler.after(budgetMs, () => aborter.abort());
      running = exercise(options, aborter.signal)
        .catch(() => undefined)
        .finally(() => {
          cancel();
          isOver = true;
        });
    },
    async stop() {
      aborter.abort();
      await running;
    },
  };
}

async function exercise(options: WarmUpOptions, signal: AbortSignal): Promise<void> {
  const { clock, scheduler, random } = options;
  const engines = Array.from({ length: engineCount }, createWarmUpEngine);
  const started = startTogether(engines);
  await started.start();
  try {
    const config = privateConfig(
      options.config,
      engines.map(({ url }) => url),
    );
    const { meter } = createMetrics({ processMetrics: false, scheduler });
    const context = createContext({ config, logger: silentLogger, clock, scheduler, random }, meter, {
      servers: () => [],
    });
    const served = { ...context, largeBodies: options.largeBodies };
    const app = createDataPlaneApp(served, listenerSettings(config), () => ({ ready: true, reasons: [] }));
    const listener = createListener(app, { ...config.listen, isShared: false });
    const { proxy, mesh, prefix, fleet, sources } = context;
    const router = startTogether([proxy, ...(mesh ? [mesh] : []), prefix, fleet, sources, listener]);
    try {
      await router.start();
      while (!signal.aborted && fleet.usableCount() < engineCount) {
        await new Promise<void>((resolve) => scheduler.after(lookEveryMs, resolve));
      }
      await sendAll(listener.url, signal);
    } finally {
      await router.stop();
    }
  } finally {
    await started.stop();
  }
}

/** The same settings, except all that is shared, waited for, or dialled. */
function privateConfig(config: CompiledConfig, urls: readonly string[]): CompiledConfig {
  const { discovery, tracing } = config;
  return {
    ...config,
    processes: 1,
    listen: { host: "127.0.0.1", port: 0, tls: undefined },
    apiKeys: [],
    engines: urls.map(engineAt),
    enginesFile: undefined,
    discovery: { ...discovery, dns: [], services: [], pods: [], inferencePools: [] },
    pools: [],
    models: { aliases: {}, splits: {}, adapters: {}, maxLoaded: config.models.maxLoaded },
    tokenizers: [],
    kvEvents: { mode: "off", listen: undefined, maxReplays: 1 },
    kvPools: [],
    mesh: privateMesh(config),
    tracing: { ...tracing, endpoint: undefined },
  };
}

/** A mesh without other members, which still exercises the journal and the replica. */
function privateMesh({ mesh }: CompiledConfig): CompiledConfig["mesh"] {
  return {
    ...mesh,
    backend: mesh.backend === "off" ? "off" : "peers",
    ...{
      routerId: undefined,
      region: undefined,
      host: "127.0.0.1",
      port: 0,
      advertise: undefined,
      tls: undefined,
      redisUrl: undefined,
    },
    ...{ seeds: [], seedSources: { records: [], servers: [], file: undefined, services: [], pods: [] } },
  };
}

function engineAt(url: string): EngineSpec {
  return { id: asEngineId(url), url, models: [warmUpModel], role: "both", weight: 1, labels: {} };
}

/** Cycles through the kinds of requests. Most are streams, like most chats. */
async function sendAll(url: string, signal: AbortSignal): Promise<void> {
  const agent = new Agent({ keepAlive: true, maxSockets: concurrency });
  let next = 0;
  const sendMore = async (): Promise<void> => {
    while (!signal.aborted && next < maxRequests) await send(agent, url, next++, signal);
  };
  try {
    await Promise.all(Array.from({ length: concurrency }, sendMore));
  } finally {
    agent.destroy();
  }
}

const shortBytes = 4_096;
const longBytes = 49_152;
/** Size of one in `largeEvery` bodies, which the thread reads. */
const largestBytes = 1_048_576;
const largeEvery = 16;

function promptBytes(at: number): number {
  if (at % largeEvery === 1) return largestBytes;
  return at % 3 === 0 ? shortBytes : longBytes;
}

/** @param at number of the request, which determines its kind */
function send(agent: Agent, url: string, at: number, signal: AbortSignal): Promise<void> {
  const isStreamed = at % 4 !== 0;
  const isChat = at % 5 !== 0;
  // Half of them share their beginning with an earlier one, and every one ends differently.
  const text = `${at % 2 === 0 ? at : "shared"} ${"warm up ".repeat(promptBytes(at) / 8)}${at}`;
  const prompt = isChat ? { messages: [{ role: "user", content: text }] } : { prompt: text };
  const body = JSON.stringify({ model: warmUpModel, stream: isStreamed, max_tokens: 64, ...prompt });
  const path = isChat ? "/v1/chat/completions" : "/v1/completions";
  const headers = { "content-type": "application/json", "content-length": Buffer.byteLength(body) };
  return new Promise((resolve, reject) => {
    const sent = httpRequest(`${url}${path}`, { agent, method: "POST", headers, signal }, (response) => {
      response.once("end", resolve).once("error", reject).resume();
    });
    sent.once("error", reject).end(body);
  });
}

/** A minimal engine for the warm-up. */
interface WarmUpEngine extends Startable {
  /** Empty before the start. */
  readonly url: string;
}

const warmUpModel = "warm-up";
/** Chunks of a streamed answer. Each is sent in its own turn of the event loop, as an engine sends tokens. */
const chunks = 16;

const usage = { prompt_tokens: 64, completion_tokens: chunks, total_tokens: 64 + chunks };
const whole = JSON.stringify({
  id: "warm-up",
  object: "chat.completion",
  model: warmUpModel,
  choices: [{ index: 0, message: { role: "assistant", content: "warm" }, finish_reason: "stop" }],
  usage,
});
const piece = eventOf({ choices: [{ index: 0, delta: { content: "warm" }, finish_reason: null }] });
const last = `${eventOf({ choices: [], usage })}data: [DONE]\n\n`;

function eventOf(fields: object): string {
  return `data: ${JSON.stringify({ id: "warm-up", object: "chat.completion.chunk", model: warmUpModel, ...fields })}\n\n`;
}

/** Listens on a free port of a loopback address. */
function createWarmUpEngine(): WarmUpEngine {
  const server = createServer(serve);
  let url = "";
  return {
    get url() {
      return url;
    },
    start: () =>
      new Promise((resolve, reject) => {
        server.once("error", reject);
        server.listen({ host: "127.0.0.1", port: 0, exclusive: true }, () => {
          url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
          resolve();
        });
      }),
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function serve(request: IncomingMessage, response: ServerResponse): void {
  let isStreamed = false;
  request.on("data", (data: Buffer) => {
    isStreamed ||= data.includes('"stream":true');
  });
  request.once("end", () => {
    if (isStreamed) void stream(response);
    else response.writeHead(200, { "content-type": "application/json" }).end(whole);
  });
}

async function stream(response: ServerResponse): Promise<void> {
  response.writeHead(200, { "content-type": "text/event-stream" });
  for (let sent = 0; sent < chunks && !response.destroyed; sent++) {
    response.write(piece);
    await systemAfterPoll();
  }
  response.end(last);
}
