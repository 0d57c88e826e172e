import type { Cancel, Clock, Scheduler } from "@espalier/common";
import {
  type AdapterUse,
  createEngine,
  type Engine,
  type EngineParameters,
  type EngineStats,
  type ImportedPrompt,
  type KvEvent,
  type RequestReport,
} from "@espalier/engine-model";
import type { GeneratedText } from "../text/generated-text.ts";
import {
  type AdapterLeases,
  createAdapterLeases,
  createLoraSeries,
  type LoraSample,
  type LoraSeries,
} from "./adapters.ts";
import { createEngineTallies, type EngineTallies } from "./tallies.ts";

/** One answer to one prompt. */
export interface SequenceRequest {
  readonly prompt: Uint32Array;
  readonly outputTokens: number;
  readonly finishReason: "length" | "stop";
  readonly text: GeneratedText;
  /** Only the prompt is computed: nothing is generated for the caller. */
  readonly pooling: boolean;
  readonly cacheSalt: string | undefined;
  /** Name of the LoRA adapter that computes it. */
  readonly adapter: string | undefined;
  readonly priority: number | undefined;
  /** What comes of its prompt from another engine or a store. */
  readonly imported?: ImportedPrompt;
  /** Whether its blocks stay held, when it is complete, until `release`. */
  readonly pinned?: boolean;
}

/** Told while the engine advances; must not call the engine, but may ask to be flushed. */
export interface SequenceListener {
  /** What it wanted from outside is here: so many tokens. */
  imported?(tokens: number): void;
  token(index: number): void;
  finished(report: RequestReport): void;
}

interface Flushable {
  flush(): void;
}

/** An engine of the model on real (scaled) time, over many lives. */
export interface SimulatedEngine {
  readonly parameters: EngineParameters;
  /** Counts from 0; one more after each `restart`. */
  readonly life: number;
  readonly tallies: EngineTallies;
  nowMs(): number;
  /** Sequences that are queued or run. */
  activeCount(): number;
  /**
   * Hands in sequences that arrive together.
   *
   * @returns their ids, for `abort`
   * @throws RangeError when the engine can never hold one of them; it has none of them then
   */
  submit(requests: readonly SequenceRequest[], listenerOf: (sequence: number) => SequenceListener): string[];
  /** The listener hears the report at once or, while a step runs, at its end. Unknown ids are ignored. */
  abort(sequenceId: string): void;
  /** Gives back the blocks of a sequence that was to be pinned. Those of an earlier life are gone. */
  release(sequenceId: string): void;
  /** Tokens of a prompt that are cached. */
  cachedTokens(request: SequenceRequest): number;
  /** Has `part` flushed once, after the engine has gone as far as it can. */
  flushLater(part: Flushable): void;
  /** @returns false when running requests prevent it */
  resetPrefixCache(): boolean;
  stats(): EngineStats;
  /**
   * What was seen of LoRA adapters in this life, now included; nothing before the first request for one.
   *
   * @param nowS Unix seconds
   */
  loraSamples(nowS: number): readonly LoraSample[];
  /** Settled when no sequence of this life is for the LoRA adapter. */
  untilFreeOf(adapter: string): Promise<void>;
  /** Says what an engine says when it starts. */
  begin(): void;
  /** Drops all requests without a report and starts over as a new process would: empty cache, counters at zero, other engine hashes. */
  restart(): void;
}

interface SimulatedEngineOptions {
  readonly parameters: EngineParameters;
  /** Life number `k` hashes with `seed + k`. */
  readonly seed: number;
  readonly driver: TimeDriver;
  /** Told the KV events of each step. Without it none are made. */
  readonly onEvents: ((events: readonly KvEvent[]) => void) | undefined;
}

interface Running {
  readonly request: SequenceRequest;
  readonly listener: SequenceListener;
  lastTokenMs: number;
}

/** What one process of an engine would hold. */
interface Life {
  readonly engine: Engine;
  readonly tallies: EngineTallies;
  readonly running: Map<string, Running>;
  readonly lora: LoraSeries;
  readonly leases: AdapterLeases;
  /** Whether a request for an adapter was handed in. */
  knowsAdapters: boolean;
}

export function createSimulatedEngine(options: SimulatedEngineOptions): SimulatedEngine {
  const { parameters, seed, driver } = options;
  let touched: Flushable[] = [];
  let lives = 0;
  let nextId = 0;
  let life = createLife(options, seed);

  const flush = (): void => {
    const parts = touched;
    touched = [];
    for (const part of parts) part.flush();
  };
  const driven: Driven = {
    advanceTo: (ms) => life.engine.advanceTo(ms),
    nextEventMs: () => life.engine.nextEventMs(),
    flush,
  };
  /** Brings the engine to the present, acts, and sends what either brought forth. */
  const act = <T>(action: (engine: Engine, nowMs: number) => T): T => {
    const nowMs = driver.nowMs();
    life.engine.advanceTo(nowMs);
    try {
      return action(life.engine, nowMs);
    } finally {
      flush();
      driver.changed(driven);
    }
  };
  const begin = (): void => act(() => {});
  driver.add(driven);

  return {
    parameters,
    get life() {
      return lives;
    },
    get tallies() {
      return life.tallies;
    },
    nowMs: driver.nowMs,
    activeCount: () => life.running.size,
    submit: (requests, listenerOf) =>
      act((engine, nowMs) => {
        const ids = requests.map(() => `${lives}-${nextId++}`);
        submitAll(engine, ids, requests, nowMs);
        for (const [at, id] of ids.entries()) {
          const request = requests[at] as SequenceRequest;
          noteAdapter(life, request);
          life.running.set(id, { request, listener: listenerOf(at), lastTokenMs: Number.NaN });
        }
        return ids;
      }),
    abort: (sequenceId) => act((engine, nowMs) => engine.abort(sequenceId, nowMs)),
    release: (sequenceId) => act((engine, nowMs) => void engine.release(sequenceId, nowMs)),
    cachedTokens: (request) => act((engine, nowMs) => engine.cachedTokens(modelRequest("", request), nowMs)),
    flushLater: (part) => touched.push(part),
    resetPrefixCache: () => act((engine, nowMs) => engine.resetPrefixCache(nowMs)),
    stats: () => act((engine) => engine.stats()),
    loraSamples: (nowS) => act((engine) => samplesOf(life.lora, life.knowsAdapters && engine.adapterUse(), nowS)),
    untilFreeOf: (adapter) => life.leases.untilFree(adapter),
    begin,
    restart() {
      lives++;
      life.leases.clear();
      life = createLife(options, seed + lives);
      begin();
    },
  };
}

function createLife({ parameters, onEvents }: SimulatedEngineOptions, hashSeed: number): Life {
  const running = new Map<string, Running>();
  const tallies = createEngineTallies(parameters.flavour);
  const leases = createAdapterLeases();
  const observer = {
    token(id: string, index: number, _token: number, timeMs: number): void {
      const sequence = running.get(id);
      if (!sequence) return;
      tallies.token(timeMs, sequence.lastTokenMs, sequence.request.pooling);
      sequence.lastTokenMs = timeMs;
      sequence.listener.token(index);
    },
    imported: (id: string, tokens: number): void => running.get(id)?.listener.imported?.(tokens),
    finished(report: RequestReport): void {
      const sequence = running.get(report.id);
      if (!sequence) return;
      running.delete(report.id);
      tallies.finished(report, report.finishReason === "aborted" ? "abort" : sequence.request.finishReason);
      sequence.listener.finished(report);
      if (sequence.request.adapter !== undefined) leases.released(sequence.request.adapter);
    },
    ...(onEvents && { events: onEvents }),
  };
  const engine = createEngine({ parameters, hashSeed, observer });
  return { engine, tallies, running, lora: createLoraSeries(), leases, knowsAdapters: false };
}

function noteAdapter(life: Life, { adapter }: SequenceRequest): void {
  if (adapter === undefined) return;
  life.knowsAdapters = true;
  life.leases.taken(adapter);
}

/** Notes the adapters in use, if there ever were any. */
function samplesOf(lora: LoraSeries, use: AdapterUse | false, nowS: number): readonly LoraSample[] {
  if (use) lora.note({ running: use.running.join(","), waiting: use.waiting.join(","), seenS: nowS });
  return lora.samples();
}

/** Hands in all requests or, when one of them is refused, none. */
function submitAll(engine: Engine, ids: readonly string[], requests: readonly SequenceRequest[], nowMs: number): void {
  try {
    for (const [at, request] of requests.entries()) engine.submit(modelRequest(ids[at] as string, request), nowMs);
  } catch (error) {
    // Those that were not handed in are unknown to the engine, which ignores them.
    for (const id of ids) engine.abort(id, nowMs);
    throw error;
  }
}

function modelRequest(id: string, request: SequenceRequest) {
  const { prompt, outputTokens, text, cacheSalt, adapter, priority, imported, pinned } = request;
  return {
    id,
    promptTokens: prompt,
    outputTokens,
    outputToken: text.token,
    ...(cacheSalt === undefined ? {} : { cacheSalt }),
    ...(adapter === undefined ? {} : { adapter }),
    ...(priority === undefined ? {} : { priority }),
    ...(imported && { imported }),
    ...(pinned && { pinned }),
  };
}

/** Something that lives on engine time. */
interface Driven {
  /** Runs everything up to `engineMs`. */
  advanceTo(engineMs: number): void;
  /** When there is something to do next, in engine milliseconds; undefined when idle. */
  nextEventMs(): number | undefined;
  /** Sends what the advance brought forth. */
  flush(): void;
}

/** Maps real time to engine time and moves the engines of this process along it, with one timer for all. */
export interface TimeDriver {
  /** Engine time: real milliseconds since the driver was made, times the speed. */
  nowMs(): number;
  add(part: Driven): void;
  /** To be called when a part got work. */
  changed(part: Driven): void;
  stop(): void;
}

interface TimeDriverOptions {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** Engine milliseconds per real millisecond. */
  readonly speed: number;
}

/**
 * Engines compute on exact engine times; what they bring forth is handed on as late as the real timer fires. What came
 * due together is flushed together.
 */
export function createTimeDriver({ clock, scheduler, speed }: TimeDriverOptions): TimeDriver {
  const parts: Driven[] = [];
  const startMs = clock.nowMs();
  let cancel: Cancel | undefined;
  let armedMs = Number.POSITIVE_INFINITY;

  const nowMs = (): number => (clock.nowMs() - startMs) * speed;
  const arm = (dueMs: number | undefined): void => {
    if (dueMs === undefined || dueMs >= armedMs) return;
    cancel?.();
    armedMs = dueMs;
    // Rounded up, because a timer that fires a fraction early would find nothing to do.
    cancel = scheduler.after(Math.max(0, Math.ceil((dueMs - nowMs()) / speed)), tick);
  };
  function tick(): void {
    armedMs = Number.POSITIVE_INFINITY;
    const untilMs = nowMs();
    for (const part of parts) {
      const dueMs = part.nextEventMs();
      if (dueMs !== undefined && dueMs <= untilMs) part.advanceTo(untilMs);
    }
    for (const part of parts) part.flush();
    for (const part of parts) arm(part.nextEventMs());
  }
  return {
    nowMs,
    add: (part) => parts.push(part),
    changed: (part) => arm(part.nextEventMs()),
    stop() {
      cancel?.();
      parts.length = 0;
    },
  };
}
