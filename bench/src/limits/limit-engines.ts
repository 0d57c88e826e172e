import { once } from "node:events";
import { createServer as createHttpServer, type IncomingMessage, type ServerResponse } from "node:http";
import { type AddressInfo, createServer, type Server } from "node:net";
import { silentLogger, systemClock } from "@espalier/core";
import { createKvEventPublisher, type KvEventPublisher } from "@espalier/engine-model/kv-events";

/** What the engines of one process are. */
export interface LimitEnginesOptions {
  readonly engines: number;
  readonly ranks: number;
  /** Models by engine, taken in turn. */
  readonly models: readonly (readonly string[])[];
  /** Publishers of KV events: hosts of the loopback network, with as many ports in a row as an engine has ranks. */
  readonly publisherHosts?: number;
}

export interface LimitEnginesListening {
  readonly urls: readonly string[];
  /** The endpoint of the first rank at each host. */
  readonly endpoints: readonly string[];
}

/** What the bench tells the process: each publisher sends a block. */
export interface LimitEnginesCommand {
  readonly type: "publish";
}

export interface LimitEngines {
  readonly listening: LimitEnginesListening;
  publish(): void;
}

const firstPort = 15_000;
const lastPort = 32_000;
const firstPortStep = 64;
const blockTokens = 16;

/**
 * Engines that cost next to nothing: they answer at once, with metrics pages as long as vLLM's, have adapters, and number the
 * responses that they store. Each listens at a port of 127.0.0.1.
 */
export async function startLimitEngines(options: LimitEnginesOptions): Promise<LimitEngines> {
  let published = 0;
  const page = metricsPage(options.ranks);
  const states = new Map<number, EngineState>();
  const http = createHttpServer((request, response) => {
    void answer(request, response, states.get(request.socket.localPort ?? 0)!, page);
  });
  http.keepAliveTimeout = 0;
  const urls: string[] = [];
  for (let at = 0; at < options.engines; at++) {
    const server = createServer((socket) => http.emit("connection", socket));
    const port = await listen(server);
    states.set(port, { name: at, models: options.models[at % options.models.length]!, adapters: new Map(), stored: 0 });
    urls.push(`http://127.0.0.1:${port}`);
  }
  const hosts = await startPublishers(options.publisherHosts ?? 0, options.ranks);
  return {
    listening: { urls, endpoints: hosts.map(([first]) => first!.endpoint) },
    publish: () => {
      const tokens = Uint32Array.from({ length: blockTokens }, (_, at) => published * blockTokens + at);
      const event = {
        ...({ type: "stored", parentHash: undefined, adapter: undefined, cacheSalt: undefined } as const),
      };
      const stored = { ...event, hashes: [BigInt(++published)], tokens, blockSize: blockTokens };
      for (const publisher of hosts.flat()) publisher.publish([stored]);
    },
  };
}

interface EngineState {
  readonly name: number;
  readonly models: readonly string[];
  /** Loaded adapters and their base model. */
  readonly adapters: Map<string, string>;
  stored: number;
}

async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  state: EngineState,
  page: string,
): Promise<void> {
  const path = request.url ?? "";
  if (request.method === "GET") {
    request.resume();
    const known = knownPage(path, state, page);
    if (known === undefined) response.statusCode = 404;
    return void response.end(known ?? "{}");
  }
  let text = "";
  for await (const chunk of request.setEncoding("utf8")) text += chunk;
  const body = JSON.parse(text) as Record<string, string | undefined>;
  if (path === "/v1/load_lora_adapter") state.adapters.set(body.lora_name!, state.models[0]!);
  else if (path === "/v1/unload_lora_adapter") state.adapters.delete(body.lora_name!);
  response.setHeader("content-type", "application/json");
  response.end(answerTo(path, body, state));
}

function knownPage(path: string, state: EngineState, page: string): string | undefined {
  if (path === "/health") return "";
  if (path === "/metrics") return page;
  if (path === "/v1/models") return listOf(state);
  const [, engine, stored] = /^\/v1\/responses\/resp_(\d+)_(\d+)$/.exec(path) ?? [];
  return Number(engine) === state.name && Number(stored) <= state.stored ? "{}" : undefined;
}

function listOf({ models, adapters }: EngineState): string {
  const loaded = [...adapters].map(([id, parent]) => ({ id, object: "model", owned_by: "vllm", parent }));
  return JSON.stringify({ data: [...models.map((id) => ({ id, object: "model", owned_by: "vllm" })), ...loaded] });
}

function answerTo(path: string, { model }: Record<string, string | undefined>, state: EngineState): string {
  if (path === "/v1/responses") {
    const id = `resp_${state.name}_${++state.stored}`;
    return JSON.stringify({ id, object: "response", model, status: "completed", output: [] });
  }
  const message = { role: "assistant", content: "The answer." };
  const usage = { prompt_tokens: 64, completion_tokens: 3, total_tokens: 67 };
  const choices = [{ index: 0, message, finish_reason: "stop" }];
  return JSON.stringify({ id: "chatcmpl-1", object: "chat.completion", created: 1, model, choices, usage });
}

/** A page of vLLM 0.32, with every series of its histograms. */
function metricsPage(ranks: number): string {
  const lines: string[] = ["process_start_time_seconds 1.8e+09"];
  const add = (name: string, ofRank: (rank: number) => number, label = ""): void => {
    for (let rank = 0; rank < ranks; rank++) {
      lines.push(`vllm:${name}{engine="${rank}",${label}model_name="org/a-model-of-usual-name"} ${ofRank(rank)}.0`);
    }
  };
  for (const name of ["num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"]) add(name, () => 0);
  for (const name of ["prompt_tokens_total", "generation_tokens_total", "num_preemptions_total"])
    add(name, (rank) => rank);
  for (let histogram = 0; histogram < histograms; histogram++) {
    for (let at = 0; at < buckets; at++) add(`request_seconds_${histogram}_bucket`, () => at, `le="${at}.5",`);
  }
  return `${lines.join("\n")}\n`;
}
/** As many lines as a page has in 14 histograms and what is beside them. */
const [histograms, buckets] = [14, 18];

async function listen(server: Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
}

/** @throws Error when no ports in a row are free */
async function startPublishers(hosts: number, ranks: number): Promise<readonly (readonly KvEventPublisher[])[]> {
  for (let port = firstPort + (process.pid % 100) * firstPortStep; port < lastPort; port += ranks) {
    const started = Array.from({ length: hosts }, (_, host) =>
      Array.from({ length: ranks }, (__, rank) =>
        createKvEventPublisher({
          ...{ host: `127.1.0.${1 + host}`, port: port + rank, topic: "", dialect: "vllm-0.32" },
          ...{ clock: systemClock, logger: silentLogger },
        }),
      ),
    );
    try {
      for (const publisher of started.flat()) await publisher.start();
      return started;
    } catch {
      for (const publisher of started.flat()) await publisher.stop();
    }
  }
  throw new Error("no ports in a row are free");
}
