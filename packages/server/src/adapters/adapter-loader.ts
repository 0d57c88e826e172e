import {
  asEspalierError,
  type Clock,
  counterBy,
  type HttpClient,
  type HttpResponse,
  type Logger,
  type Meter,
} from "@espalier/core";
import { type EngineRecord, engineKindOf, type Fleet } from "@espalier/engines";
import type { PlannedRequest } from "../request/planned-request.ts";
import type { AdapterUse } from "./adapter-use.ts";

/** An engine may read an adapter from a disk or over the network. */
const callTimeoutMs = 30_000;
/** Largest answer to a load or unload of an adapter. */
const maxAnswerBytes = 64 * 1024;
/** How long an engine is not asked again for an adapter that it failed to load or unload. */
const refusalMs = 5_000;
/** Most concurrent loads over all engines; further loads count as failed. */
export const maxLoadsUnderWay = 256;
/** Most adapters unloaded to make space for one load: an engine may have more than its limit. */
export const maxUnloadsPerLoad = 4;

interface AdapterLoaderOptions {
  /** Adapters by name. */
  readonly adapters: Readonly<Record<string, { readonly path: string }>>;
  /** Most configured adapters that an engine has loaded at once. */
  readonly maxLoadedAdapters: number;
  readonly use: AdapterUse;
  readonly fleet: Pick<Fleet, "onChange">;
  readonly http: HttpClient;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly meter: Meter;
}

/** The state of one engine. The first three are cleared when its list of models changes. */
interface EngineAdapters {
  readonly loaded: Set<string>;
  /** Adapters on the engine's list of models that were unloaded since. */
  readonly gone: Set<string>;
  /** When it last failed to load or unload an adapter. */
  readonly refusedMs: Map<string, number>;
  readonly loading: Map<string, Promise<boolean>>;
  readonly unloading: Map<string, Promise<boolean>>;
}

type Outcome = "loaded" | "refused" | "unreachable" | "full";

interface LoadJob {
  readonly engine: EngineRecord;
  readonly state: EngineAdapters;
  readonly calls: AdapterCalls;
  readonly headers: readonly string[];
}

/**
 * Loads the configured LoRA adapters in engines, and unloads others to make space.
 *
 * Concurrent requests share one load. A loaded adapter is remembered until the engine's list of models changes, since
 * the engine may then be a new process. When an engine is full, the least recently used idle adapter is unloaded. Only
 * configured adapters are unloaded, since those can be loaded again. Routers need no coordination: loading a loaded
 * adapter or unloading a missing one is no failure, and a request that finds its adapter gone has it loaded again.
 */
export class AdapterLoader {
  readonly #options: AdapterLoaderOptions;
  readonly #known = new WeakMap<EngineRecord, EngineAdapters>();
  readonly #loads: (outcome: Outcome) => void;
  readonly #unloads: (outcome: "unloaded" | "refused" | "unreachable") => void;
  #underWay = 0;

  constructor(options: AdapterLoaderOptions) {
    const { fleet, meter } = options;
    this.#options = options;
    const counter = <Value extends string>(what: string, help: string) =>
      counterBy<Value>(meter, "outcome", `espalier_adapter_${what}_total`, help);
    this.#loads = counter("loads", "LoRA adapter loads in engines, by outcome.");
    this.#unloads = counter("unloads", "LoRA adapter unloads in engines, by outcome.");
    fleet.onChange((change, engine) => {
      if (change !== "models" && change !== "restarted" && change !== "state") return;
      const { loaded, gone, refusedMs } = this.#stateOf(engine);
      for (const facts of [loaded, gone, refusedMs]) facts.clear();
    });
  }

  /** Whether the adapter is configured. */
  isManaged(adapter: string): boolean {
    return Object.hasOwn(this.#options.adapters, adapter);
  }

  /**
   * Ensures that an engine serves an adapter. Call `begin` of the adapter's use first.
   *
   * @param headers flat name and value pairs to send: the engine's credentials
   * @returns undefined when the engine serves it already or it is not configured; else whether it serves it now
   */
  load(engine: EngineRecord, adapter: string, headers: readonly string[]): Promise<boolean> | undefined {
    if (!this.isManaged(adapter)) return undefined;
    const state = this.#stateOf(engine);
    const leaving = state.unloading.get(adapter);
    if (leaving) return leaving.then(() => this.load(engine, adapter, headers) ?? true);
    if (has(engine, state, adapter)) return undefined;
    const running = state.loading.get(adapter);
    if (running) return running;
    if (this.#hasRefused(state, adapter) || this.#underWay >= maxLoadsUnderWay) return Promise.resolve(false);
    const begun = this.#load({ engine, state, headers, calls: adapterCallsOf(engine) }, adapter);
    state.loading.set(adapter, begun);
    return begun;
  }

  /** An engine answered that it lacks an adapter: something other than this router unloaded it. */
  missing(engine: EngineRecord, adapter: string): void {
    this.#forget(engine, this.#stateOf(engine), adapter);
  }

  async #load(job: LoadJob, adapter: string): Promise<boolean> {
    const { state } = job;
    this.#underWay += 1;
    try {
      const outcome = await this.#loadAfterUnloading(job, adapter);
      this.#loads(outcome);
      if (outcome === "loaded") {
        state.loaded.add(adapter);
        state.gone.delete(adapter);
      } else if (outcome !== "full") state.refusedMs.set(adapter, this.#options.clock.nowMs());
      return outcome === "loaded";
    } finally {
      this.#underWay -= 1;
      state.loading.delete(adapter);
    }
  }

  async #loadAfterUnloading(job: LoadJob, adapter: string): Promise<Outcome> {
    const { engine, calls } = job;
    if (this.#isFull(job, adapter) && !(await this.#unloadForOne(job, adapter))) return "full";
    let answer = await this.#askToLoad(job, adapter);
    // The engine may have fewer slots than configured.
    if (answer && calls.isFull(answer)) {
      if (!(await this.#unloadOldest(job))) return "full";
      answer = await this.#askToLoad(job, adapter);
    }
    if (!answer) return "unreachable";
    if (calls.isThere(answer)) return "loaded";
    const { status } = answer;
    this.#options.logger.warn("an engine rejected the load of a LoRA adapter", { engine: engine.id, adapter, status });
    return "refused";
  }

  #askToLoad({ engine, calls, headers }: LoadJob, adapter: string): Promise<HttpResponse | undefined> {
    const body = { lora_name: adapter, lora_path: this.#options.adapters[adapter]?.path };
    return this.#ask(engine, { path: calls.loadPath, body, headers });
  }

  #isFull(job: LoadJob, adapter: string): boolean {
    return this.#present(job).filter((name) => name !== adapter).length >= this.#options.maxLoadedAdapters;
  }

  /** @returns false when no adapter could be unloaded */
  async #unloadForOne(job: LoadJob, adapter: string): Promise<boolean> {
    for (let unloaded = 0; unloaded < maxUnloadsPerLoad; unloaded++) {
      if (!(await this.#unloadOldest(job))) return unloaded > 0;
      if (!this.#isFull(job, adapter)) break;
    }
    return true;
  }

  /** Configured adapters that an engine has or is loading, and is not unloading. */
  #present({ engine, state }: Pick<LoadJob, "engine" | "state">): string[] {
    const { adapters, use } = this.#options;
    return Object.keys(adapters).filter(
      (name) =>
        !state.unloading.has(name) &&
        (state.loading.has(name) || has(engine, state, name) || use.isKnownInUse(engine, name)),
    );
  }

  /** @returns whether one was unloaded; false at once when all are in use */
  #unloadOldest(job: LoadJob): Promise<boolean> {
    const { engine, state } = job;
    const { use } = this.#options;
    let oldest: string | undefined;
    for (const name of this.#present(job)) {
      if (state.loading.has(name) || this.#hasRefused(state, name) || use.isInUse(engine, name)) continue;
      if (oldest === undefined || use.lastUsedMs(engine, name) < use.lastUsedMs(engine, oldest)) oldest = name;
    }
    if (oldest === undefined) return Promise.resolve(false);
    const begun = this.#unload(job, oldest);
    state.unloading.set(oldest, begun);
    return begun;
  }

  async #unload({ engine, state, calls, headers }: LoadJob, adapter: string): Promise<boolean> {
    const { logger, clock } = this.#options;
    const answer = await this.#ask(engine, { path: calls.unloadPath, body: { lora_name: adapter }, headers });
    state.unloading.delete(adapter);
    const isGone = answer !== undefined && calls.isGone(answer);
    this.#unloads(isGone ? "unloaded" : answer ? "refused" : "unreachable");
    if (isGone) {
      this.#forget(engine, state, adapter);
      logger.info("an engine unloaded a LoRA adapter", { engine: engine.id, adapter });
      return true;
    }
    state.refusedMs.set(adapter, clock.nowMs());
    if (answer) {
      const { status } = answer;
      logger.warn("an engine rejected the unload of a LoRA adapter", { engine: engine.id, adapter, status });
    }
    return false;
  }

  async #ask(
    engine: EngineRecord,
    { path, body, headers }: { readonly path: string; readonly body: object; readonly headers: readonly string[] },
  ): Promise<HttpResponse | undefined> {
    const { http, logger } = this.#options;
    try {
      return await http({
        url: engine.url + path,
        method: "POST",
        headers: { "content-type": "application/json", ...recordOf(headers) },
        body: JSON.stringify(body),
        timeoutMs: callTimeoutMs,
        maxBytes: maxAnswerBytes,
      });
    } catch (thrown) {
      const { code } = asEspalierError(thrown);
      logger.warn("loading or unloading a LoRA adapter failed: no answer from the engine", {
        engine: engine.id,
        path,
        code,
      });
      return undefined;
    }
  }

  #forget(engine: EngineRecord, state: EngineAdapters, adapter: string): void {
    state.loaded.delete(adapter);
    state.gone.add(adapter);
    this.#options.use.unloaded(engine, adapter);
    for (const { adapters } of engine.targets) adapters.unloaded(adapter);
  }

  #hasRefused({ refusedMs }: EngineAdapters, adapter: string): boolean {
    return this.#options.clock.nowMs() - (refusedMs.get(adapter) ?? Number.NEGATIVE_INFINITY) < refusalMs;
  }

  #stateOf(engine: EngineRecord): EngineAdapters {
    let state = this.#known.get(engine);
    if (!state) {
      state = { loaded: new Set(), gone: new Set(), refusedMs: new Map(), loading: new Map(), unloading: new Map() };
      this.#known.set(engine, state);
    }
    return state;
  }
}

function has({ models }: EngineRecord, { loaded, gone }: EngineAdapters, adapter: string): boolean {
  return loaded.has(adapter) || (!gone.has(adapter) && (models?.some(({ id }) => id === adapter) ?? false));
}

function recordOf(pairs: readonly string[]): Record<string, string> {
  const record: Record<string, string> = {};
  for (let at = 0; at + 1 < pairs.length; at += 2) record[pairs[at]!] = pairs[at + 1]!;
  return record;
}

type EndpointId = PlannedRequest["endpointId"];

type Answer = Pick<HttpResponse, "status" | "body">;

/** An API of the router, or a path of another one. */
type Api = EndpointId | "forwarded";

/** How a kind of engine loads, unloads and uses LoRA adapters. */
interface AdapterCalls {
  readonly loadPath: string;
  readonly unloadPath: string;
  /**
   * Body fields, as JSON text, that select an adapter in a body whose `model` is its name.
   *
   * @param base the engine's base model
   * @returns undefined where the engine would answer by its base model
   */
  fields(adapter: string, endpoint: Api, base: string): Readonly<Record<string, string>> | undefined;
  /** Whether the answer to a load says that the adapter is loaded: another router may have been first. */
  isThere(answer: Answer): boolean;
  /** Whether the answer says that the engine is full. */
  isFull(answer: Answer): boolean;
  /** Whether an answer to an unload says that the adapter is gone. */
  isGone(answer: Answer): boolean;
  /** Whether the beginning of an answer says that the request's adapter is not loaded. */
  isMissing(answer: Answer): boolean;
}

/**
 * vLLM 0.32: `model` selects an adapter on every endpoint (`_maybe_get_adapters` of `entrypoints/serve/engine/serving.py`).
 * Loads are those of `entrypoints/openai/models/serving.py` with `VLLM_ALLOW_RUNTIME_LORA_UPDATING`. It
 * reports no limit.
 */
const vllmCalls: AdapterCalls = {
  loadPath: "/v1/load_lora_adapter",
  unloadPath: "/v1/unload_lora_adapter",
  fields: () => ({}),
  isThere: ({ status, body }) => status === 200 || (status === 400 && body.includes("already been loaded")),
  isFull: () => false,
  isGone: ({ status, body }) => status === 200 || (status === 404 && body.includes("cannot be found")),
  isMissing: ({ status, body }) => status === 404 && body.includes("does not exist"),
};

const byPath = (adapter: string) => ({ lora_path: JSON.stringify(adapter) });
const byModel = (adapter: string, base: string) => ({ model: JSON.stringify(`${base}:${adapter}`) });

/**
 * How SGLang 0.5.23 takes an adapter (`srt/entrypoints`). No adapter reaches the engine from `openai/serving_responses.py`,
 * `serving_rerank.py` and `serving_score.py`; those are answered by the base model.
 */
const sglangFields: Partial<Record<Api, (adapter: string, base: string) => Readonly<Record<string, string>>>> = {
  // `_resolve_lora_path` of `openai/serving_base.py`.
  ...{ chat: byPath, completions: byPath, embeddings: byPath },
  // `anthropic/serving.py` builds a chat request from `model`, without `lora_path`.
  messages: byModel,
  // `GenerateReqInput` of `managers/io_struct.py`.
  generate: byPath,
  // An adapter has its model's tokenizer.
  ...{ count_tokens: () => ({}), tokenize: () => ({}), detokenize: () => ({}) },
};

/**
 * SGLang 0.5 with `--enable-lora`: `managers/tokenizer_control_mixin.py`, `lora/lora_manager.py`,
 * `lora/lora_registry.py`. An unknown model name selects the base model.
 * Releases up to 0.5.1 refuse an adapter beyond `--max-loaded-loras`; later ones unload another one themselves.
 */
const sglangCalls: AdapterCalls = {
  loadPath: "/load_lora_adapter",
  unloadPath: "/unload_lora_adapter",
  fields: (adapter, endpoint, base) => sglangFields[endpoint]?.(adapter, base),
  isThere: ({ status, body }) => status === 200 || (status === 400 && /already (loaded|exists)/.test(body)),
  isFull: ({ status, body }) => status === 400 && body.includes("Maximum number of loaded LoRA adapters"),
  isGone: ({ status, body }) => status === 200 || (status === 400 && body.includes("does not exist")),
  // A stream may have begun with 200 before the adapter is looked up.
  isMissing: ({ status, body }) =>
    (status === 400 || body.startsWith('data: {"error"')) && body.includes("LoRA adapters are not loaded"),
};

/**
 * The calls for an engine: SGLang's if its list of models or its metrics are SGLang's; else vLLM's, which others
 * imitate.
 */
export function adapterCallsOf(engine: Pick<EngineRecord, "models" | "targets">): AdapterCalls {
  return engineKindOf(engine) === "sglang" ? sglangCalls : vllmCalls;
}

/** Where a request for an adapter goes. */
export interface AdapterApi {
  readonly endpoint: Api;
  readonly path: string;
  /** The model as the client wrote it, in a request that passes as it is; absent where the router edits the body. */
  readonly written?: string | undefined;
}

/** Where SGLang 0.5.23 takes `base:adapter` from `model`: `_resolve_lora_path`, and a chat at SageMaker's path. */
const sglangModelPaths: ReadonlySet<string> = new Set([
  ...["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/messages", "/invocations"],
]);

/** Whether an engine applies a LoRA adapter to a request, rather than answer by its base model. */
export function servesAdapter(
  engine: Pick<EngineRecord, "models" | "targets">,
  adapter: string,
  { endpoint, path, written }: AdapterApi,
): boolean {
  const fields = adapterFields(engine, adapter, endpoint);
  const needsNone = fields !== undefined && Object.keys(fields).length === 0;
  if (written === undefined || needsNone) return fields !== undefined;
  return sglangModelPaths.has(path) && written.endsWith(`:${adapter}`);
}

/** Body fields, as JSON text, that select an adapter at an engine; undefined where it does not apply adapters. */
export function adapterFields(
  engine: Pick<EngineRecord, "models" | "targets">,
  adapter: string,
  endpoint: Api,
): Readonly<Record<string, string>> | undefined {
  const base = engine.models?.find(({ parent }) => parent === undefined)?.id ?? "";
  return adapterCallsOf(engine).fields(adapter, endpoint, base);
}
