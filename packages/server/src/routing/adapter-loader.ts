import { asEspalierError, type Clock, type HttpClient, type Logger, type Meter } from "@espalier/common";
import type { EngineRecord, Fleet } from "@espalier/workers";

/** From the question to the answer: an engine reads an adapter from a disk, or from far away. */
const loadTimeoutMs = 30_000;
const maxAnswerBytes = 64 * 1024;
/** How long an engine that could not load an adapter is not asked for it again. */
const refusalMs = 5_000;
/** Loads under way in all engines together; with more, an engine counts as one that cannot. */
export const maxLoadsUnderWay = 256;

/** Has engines load the LoRA adapters of the configuration. */
export interface AdapterLoader {
  /**
   * Sees to it that an engine serves an adapter.
   *
   * @param headers flat name and value pairs to send: the engine's credentials
   * @returns undefined when it does already, or when the adapter is none of the router's; else whether it does now
   */
  load(engine: EngineRecord, adapter: string, headers: readonly string[]): Promise<boolean> | undefined;
}

export interface AdapterLoaderOptions {
  /** By name. */
  readonly adapters: Readonly<Record<string, { readonly path: string }>>;
  readonly fleet: Pick<Fleet, "onChange">;
  readonly http: HttpClient;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly meter: Meter;
}

/** What is known of one engine since its list of models was last read. */
interface EngineAdapters {
  readonly loaded: Set<string>;
  readonly loading: Map<string, Promise<boolean>>;
  /** When it last refused. */
  readonly refusedMs: Map<string, number>;
}

type Outcome = "loaded" | "refused" | "unreachable";

/**
 * Loads by vLLM's `POST /v1/load_lora_adapter`, once however many requests wait for it. What an engine has loaded is
 * remembered until its own list of models says so, or it may be another process.
 */
export function createAdapterLoader(options: AdapterLoaderOptions): AdapterLoader {
  const { adapters, fleet, http, clock, logger, meter } = options;
  const known = new WeakMap<EngineRecord, EngineAdapters>();
  const loads = meter.counter({
    name: "espalier_adapter_loads_total",
    help: "LoRA adapters that engines were told to load, by outcome.",
    labels: ["outcome"],
  });
  let underWay = 0;
  fleet.onChange((change, engine) => {
    if (change === "models" || change === "restarted" || change === "state") known.delete(engine);
  });

  const ask = async (engine: EngineRecord, name: string, headers: readonly string[]): Promise<Outcome> => {
    try {
      const { status, body } = await http({
        url: `${engine.url}/v1/load_lora_adapter`,
        method: "POST",
        headers: { "content-type": "application/json", ...recordOf(headers) },
        body: JSON.stringify({ lora_name: name, lora_path: adapters[name]?.path }),
        timeoutMs: loadTimeoutMs,
        maxBytes: maxAnswerBytes,
      });
      // Another router may have been first.
      if (status === 200 || (status === 400 && body.includes("already been loaded"))) return "loaded";
      logger.warn("an engine refused to load a LoRA adapter", { engine: engine.id, adapter: name, status });
      return "refused";
    } catch (thrown) {
      const { code } = asEspalierError(thrown);
      logger.warn("an engine could not be told to load a LoRA adapter", { engine: engine.id, adapter: name, code });
      return "unreachable";
    }
  };
  const start = async (engine: EngineRecord, name: string, headers: readonly string[]): Promise<boolean> => {
    const state = stateOf(known, engine);
    underWay += 1;
    const outcome = await ask(engine, name, headers);
    underWay -= 1;
    loads.series(outcome).add();
    state.loading.delete(name);
    if (outcome === "loaded") state.loaded.add(name);
    else state.refusedMs.set(name, clock.nowMs());
    return outcome === "loaded";
  };

  return {
    load(engine, name, headers) {
      if (!Object.hasOwn(adapters, name) || engine.models?.some(({ id }) => id === name)) return undefined;
      const { loaded, loading, refusedMs } = stateOf(known, engine);
      if (loaded.has(name)) return undefined;
      const sinceMs = clock.nowMs() - (refusedMs.get(name) ?? Number.NEGATIVE_INFINITY);
      const running = loading.get(name);
      if (running) return running;
      if (sinceMs < refusalMs || underWay >= maxLoadsUnderWay) return Promise.resolve(false);
      const begun = start(engine, name, headers);
      loading.set(name, begun);
      return begun;
    },
  };
}

function stateOf(known: WeakMap<EngineRecord, EngineAdapters>, engine: EngineRecord): EngineAdapters {
  let state = known.get(engine);
  if (!state) {
    state = { loaded: new Set(), loading: new Map(), refusedMs: new Map() };
    known.set(engine, state);
  }
  return state;
}

function recordOf(pairs: readonly string[]): Record<string, string> {
  const record: Record<string, string> = {};
  for (let at = 0; at + 1 < pairs.length; at += 2) record[pairs[at]!] = pairs[at + 1]!;
  return record;
}
