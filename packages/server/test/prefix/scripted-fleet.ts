import {
  asEngineId,
  createSeededRandom,
  type EngineSpec,
  EspalierError,
  type HttpClient,
  type HttpResponse,
  silentLogger,
  silentMeter,
} from "@espalier/core";
import { createFleet, type EngineRecord, type Fleet, type FleetOptionsInput, type Target } from "@espalier/engines";
import { createVirtualTime, type VirtualTime } from "@espalier/testing";

/** What an engine answers: a body of status 200, a status, nothing in time, or what a promise brings. */
type Answer = string | number | "refused" | Promise<HttpResponse>;

/** An answer that comes when the test says so. */
export function lateAnswer(): { readonly answer: Promise<HttpResponse>; come(body: string): void } {
  let resolve: (response: HttpResponse) => void = () => {};
  const answer = new Promise<HttpResponse>((settle) => {
    resolve = settle;
  });
  return { answer, come: (body) => resolve({ status: 200, headers: {}, body }) };
}

/** Engines before which a fleet runs under virtual time; what they answer may be changed at any time. */
export interface ScriptedFleet {
  readonly fleet: Fleet;
  readonly http: HttpClient;
  readonly time: VirtualTime;
  /** Answers by engine and path; paths that are absent are 404. */
  readonly answers: Record<string, Record<string, Answer>>;
  /** `PATH at MILLISECONDS` of every request to an engine but those for health, models and metrics. */
  asked(id: string): readonly string[];
  /** Applies these engines, and lets what they answer at once arrive. */
  apply(...specs: readonly EngineSpec[]): Promise<void>;
  engine(id: string): EngineRecord;
  /** By key: the id, with `#RANK` for ranks other than 0. */
  target(key: string): Target;
}

const usual: Record<string, Answer> = {
  "/health": "",
  "/v1/models": JSON.stringify({ object: "list", data: [{ id: "m", object: "model" }] }),
  "/metrics": "vllm:num_requests_running 0\n",
};

export function specOf(id: string, changes: Partial<EngineSpec> = {}): EngineSpec {
  return { id: asEngineId(id), url: `http://${id}:8000`, models: [], role: "both", weight: 1, labels: {}, ...changes };
}

export async function startScriptedFleet(options: FleetOptionsInput = {}): Promise<ScriptedFleet> {
  const time = createVirtualTime();
  const { clock, scheduler } = time;
  const answers: Record<string, Record<string, Answer>> = {};
  const seen: { readonly id: string; readonly path: string; readonly atMs: number }[] = [];
  const http: HttpClient = async ({ url, timeoutMs, maxBytes }) => {
    const { hostname: id, pathname: path } = new URL(url);
    seen.push({ id, path, atMs: clock.nowMs() });
    const answer = answers[id]?.[path] ?? usual[path] ?? 404;
    if (answer === "refused") throw new EspalierError("upstream_connect_failed");
    if (typeof answer === "number") return { status: answer, headers: {}, body: "" };
    if (typeof answer !== "string") return answer;
    if (answer.length > maxBytes || timeoutMs <= 0) throw new EspalierError("upstream_protocol_error");
    return { status: 200, headers: {}, body: answer };
  };
  const random = createSeededRandom(1);
  const fleet = createFleet({ clock, scheduler, random, http, logger: silentLogger, meter: silentMeter, options });
  await fleet.start();
  return {
    fleet,
    http,
    time,
    answers,
    asked: (id) =>
      seen
        .filter((request) => request.id === id && usual[request.path] === undefined)
        .map(({ path, atMs }) => `${path} at ${Math.round(atMs)}`),
    async apply(...specs) {
      fleet.apply(specs);
      await time.advanceAsync(0);
    },
    engine: (id) => fleet.engine(asEngineId(id))!,
    target: (key) => fleet.engines.flatMap(({ targets }) => targets).find((target) => target.key === key)!,
  };
}

/** A vLLM page that tells the size of the KV cache and the prompt tokens so far. */
export const vllmPage = (sizes: { blockSize: number; blocks: number; promptTokens?: number }): string =>
  `vllm:num_requests_running 2
vllm:num_requests_waiting 3
vllm:kv_cache_usage_perc 0.25
vllm:prompt_tokens_total ${sizes.promptTokens ?? 0}
vllm:cache_config_info{block_size="${sizes.blockSize}",num_gpu_blocks="${sizes.blocks}"} 1
`;
