import type { Cancel, Clock, Scheduler } from "@espalier/core";
import {
  type AdapterUse,
  blockHashes,
  createEngine,
  type Engine,
  type EngineParameters,
  type EngineRequest,
  type EngineStats,
  type ImportedPrompt,
  type KvEvent,
  type KvHold,
  type MediaRange,
  type RemoteSource,
  type RequestReport,
  type TokenRange,
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
  readonly media?: readonly MediaRange[];
  readonly outputTokens: number;
  readonly finishReason: "length" | "stop";
  readonly text: GeneratedText;
  /** Only the prompt is computed: nothing is generated for the caller. */
  readonly pooling: boolean;
  readonly cacheSalt: string | undefined;
  /** Name of the LoRA adapter that computes it. */
  readonly adapter: string | undefined;
  readonly priority: number | undefined;
  /** The part of its prompt that is imported from another engine or a store. */
  readonly imported?: ImportedPrompt;
  /** The engine whose CPU memory it pulls from. */
  readonly remote?: RemoteSource;
  /** Whether its blocks stay pinned after it is complete, until `release`. */
  readonly pinned?: boolean;
}

/** Called while the engine advances. It must not call the engine, except for `flushLater`. */
export interface SequenceListener {
  /** This many imported tokens have arrived. */
  imported?(tokens: number): void;
  token(index: number): void;
  finished(report: RequestReport): void;
}

interface Flushable {
  flush(): void;
}

/** An engine of the model on real (scaled) time, across restarts. */
export type SimulatedEngine = ReturnType<typeof createSimulatedEngine>;

interface SimulatedEngineOptions {
  readonly parameters: EngineParameters;
  /** Epoch `k` hashes with `seed + k`. */
  readonly seed: number;
  readonly driver: TimeDriver;
  readonly clock: Pick<Clock, "wallMs">;
  /** Called with the KV events of each step. Without it none are made. */
  readonly onEvents: ((events: readonly KvEvent[]) => void) | undefined;
  /** Whether events of CPU memory describe blocks by their tokens. */
  readonly describesCpuBlocks: boolean;
}

interface Running {
  readonly request: SequenceRequest;
  readonly listener: SequenceListener;
  lastTokenMs: number;
}

/** How an engine sleeps, as vLLM does. */
export interface Sleep {
  /** 0: the scheduler is paused. 1: the weights are in CPU memory, the KV cache is gone. 2: all GPU memory is released. */
  readonly level: number;
  /** Memory pools that are not back yet. */
  readonly tags: Set<string>;
}

/** vLLM's memory pools. */
export const sleepTags: readonly string[] = ["weights", "kv_cache"];

/** The state that an engine process loses when it ends. */
interface EngineProcess {
  sleep: Sleep | undefined;
  /** Whether it computes nothing, and whether requests that come are refused meanwhile; undefined while it computes. */
  pause: { readonly refuses: boolean } | undefined;
  /** Of its weights; nothing but a name. */
  weightVersion: string;
  /** Its first rank in the group that sends it weights; undefined before it joined one. */
  rankOffset: number | undefined;
  /** By sequence, what to call when it has ended. */
  readonly ending: Map<string, () => void>;
  /** Unix seconds. */
  readonly startedS: number;
  readonly engine: Engine;
  readonly tallies: EngineTallies;
  readonly running: Map<string, Running>;
  readonly lora: LoraSeries;
  readonly leases: AdapterLeases;
  /** Whether any request was for an adapter. */
  knowsAdapters: boolean;
}

export function createSimulatedEngine(options: SimulatedEngineOptions) {
  const { parameters, seed, driver } = options;
  let touched: Flushable[] = [];
  let epoch = 0;
  let nextId = 0;
  let current = createProcess(options, seed);

  const flush = (): void => {
    const parts = touched;
    touched = [];
    for (const part of parts) part.flush();
  };
  const driven: Driven = {
    advanceTo: (ms) => current.engine.advanceTo(ms),
    nextEventMs: () => current.engine.nextEventMs(),
    flush,
  };
  /** Advances the engine to now, acts, and flushes. */
  const act = <T>(action: (engine: Engine, nowMs: number) => T): T => {
    const nowMs = driver.nowMs();
    current.engine.advanceTo(nowMs);
    try {
      return action(current.engine, nowMs);
    } finally {
      flush();
      driver.changed(driven);
    }
  };
  const begin = (): void => act(() => {});
  /** A sequence that runs ends with a step. An engine that computes nothing takes one more for it. */
  const abortAll = (ids: readonly string[]): void =>
    act((engine, nowMs) => {
      const isStill = current.pause !== undefined || current.sleep !== undefined;
      if (isStill) engine.pause(false, nowMs);
      if (isStill) engine.advanceTo(nowMs);
      for (const id of ids) engine.abort(id, nowMs);
      if (isStill) engine.pause(true, nowMs);
    });
  const endsOf = (process: EngineProcess): readonly Promise<void>[] =>
    [...process.running.keys()].map(
      (id) =>
        new Promise((resolve) => {
          const others = process.ending.get(id);
          process.ending.set(id, () => {
            others?.();
            resolve();
          });
        }),
    );
  const endAll = async (process: EngineProcess): Promise<void> => {
    const ids = [...process.running.keys()];
    const ends = endsOf(process);
    abortAll(ids);
    await Promise.all(ends);
  };
  driver.add(driven);

  return {
    parameters,
    /** Counts from 0; one more after each `restart`. */
    get epoch() {
      return epoch;
    },
    get tallies() {
      return current.tallies;
    },
    /** When its process started, in Unix seconds. */
    get startedS() {
      return current.startedS;
    },
    nowMs: driver.nowMs,
    /** Sequences that are queued or run. */
    activeCount: (): number => current.running.size,
    /**
     * Submits sequences that arrive together.
     *
     * @returns their ids, for `abort`
     * @throws RangeError when one of them can never fit; then none is submitted
     */
    submit: (
      requests: readonly SequenceRequest[],
      listenerOf: (sequence: number) => SequenceListener,
    ): readonly string[] =>
      act((engine, nowMs) => {
        const ids = requests.map(() => `${epoch}-${nextId++}`);
        submitAll(engine, ids, requests, nowMs);
        for (const [at, id] of ids.entries()) {
          const request = requests[at] as SequenceRequest;
          countAdapter(current, request);
          current.running.set(id, { request, listener: listenerOf(at), lastTokenMs: Number.NaN });
        }
        return ids;
      }),
    /** The listener gets the report at once, or at the end of the running step. Unknown ids are ignored. */
    abort: (sequenceId: string): void => abortAll([sequenceId]),
    /** Unpins the blocks of a sequence. Those of an earlier epoch are gone. */
    release: (sequenceId: string): void => act((engine, nowMs) => void engine.release(sequenceId, nowMs)),
    /** Tokens of a prompt that are cached. */
    cachedTokens: (request: SequenceRequest): number =>
      act((engine, nowMs) => engine.cachedTokens(modelRequest("", request), nowMs)),
    /** Keeps a part of a prompt in CPU memory for another engine; undefined when there is none of it. */
    hold: (request: EngineRequest, range: TokenRange): KvHold | undefined =>
      act((engine, nowMs) => engine.hold(request, range, nowMs)),
    /** Tells the engine something from outside, unless it was restarted since the epoch `from`. */
    notify(from: number, action: (nowMs: number) => void): void {
      if (from === epoch) act((_engine, nowMs) => action(nowMs));
    },
    /** Flushes `part` once, at the end of the current advance. */
    flushLater(part: Flushable): void {
      touched.push(part);
    },
    /** @returns false when running requests prevent it */
    resetPrefixCache: (): boolean => act((engine, nowMs) => engine.resetPrefixCache(nowMs)),
    /** How it sleeps; undefined while it is awake. */
    get sleep() {
      return current.sleep;
    },
    /**
     * Aborts what it computes, then sleeps: requests are accepted and wait. Levels 1 and 2 clear the cache, which is announced
     * with the first step after it is awake.
     */
    async fallAsleep(level: number, tags = sleepTags): Promise<void> {
      const process = current;
      act((engine, nowMs) => engine.pause(true, nowMs));
      await endAll(process);
      if (process !== current) return;
      if (level > 0) act((engine, nowMs) => engine.resetPrefixCache(nowMs));
      process.sleep = { level, tags: new Set(level > 0 ? tags : []) };
    },
    /** @param tags memory pools to bring back. @returns whether it is awake: all of them are back */
    wakeUp(tags: readonly string[]): boolean {
      const { sleep } = current;
      for (const tag of tags) sleep?.tags.delete(tag);
      if (sleep && sleep.tags.size > 0) return false;
      current.sleep = undefined;
      act((engine, nowMs) => engine.pause(current.pause !== undefined, nowMs));
      return true;
    },
    get isPaused(): boolean {
      return current.pause !== undefined;
    },
    get refusesRequests(): boolean {
      return current.pause?.refuses === true;
    },
    /** Computes nothing until `resume`. @param aborts whether what runs ends, or stays as it is */
    async pause({ aborts, refuses }: { readonly aborts: boolean; readonly refuses: boolean }): Promise<void> {
      const process = current;
      process.pause = { refuses };
      if (aborts) await endAll(process);
      if (process === current) act((engine, nowMs) => engine.pause(true, nowMs));
    },
    resume(): void {
      current.pause = undefined;
      act((engine, nowMs) => engine.pause(current.sleep !== undefined, nowMs));
    },
    /** Resolves when nothing runs or waits; what comes meanwhile is refused. */
    async untilIdle(): Promise<void> {
      const process = current;
      process.pause = { refuses: true };
      await Promise.all(endsOf(process));
    },
    get weightVersion(): string {
      return current.weightVersion;
    },
    set weightVersion(version: string) {
      current.weightVersion = version;
    },
    get rankOffset(): number | undefined {
      return current.rankOffset;
    },
    set rankOffset(offset: number | undefined) {
      current.rankOffset = offset;
    },
    /** Its hashes of the full blocks of a prompt, in this epoch. */
    hashesOf: ({ prompt, adapter, cacheSalt }: Pick<SequenceRequest, "prompt" | "adapter" | "cacheSalt">) =>
      blockHashes({
        promptTokens: prompt,
        adapter,
        cacheSalt,
        blockSize: parameters.blockSize,
        hashSeed: seed + epoch,
      }),
    stats: (): EngineStats => act((engine) => engine.stats()),
    /**
     * LoRA adapters in use, now and before in this epoch; empty before the first request for one.
     *
     * @param nowS Unix seconds
     */
    loraSamples: (nowS: number): readonly LoraSample[] =>
      act((engine) => samplesOf(current.lora, current.knowsAdapters && engine.adapterUse(), nowS)),
    /** Resolves when no sequence of this epoch uses the LoRA adapter. */
    untilFreeOf: (adapter: string): Promise<void> => current.leases.untilFree(adapter),
    /** Publishes the events of an engine that starts. */
    begin,
    /**
     * Restarts as a new process: drops all requests without a report, empties the cache, zeroes the counters, changes the
     * hashes.
     */
    restart(): void {
      epoch++;
      current.leases.clear();
      for (const end of current.ending.values()) end();
      current = createProcess(options, seed + epoch);
      begin();
    },
  };
}

function createProcess(options: SimulatedEngineOptions, hashSeed: number): EngineProcess {
  const { parameters, clock, onEvents, describesCpuBlocks } = options;
  const running = new Map<string, Running>();
  const ending = new Map<string, () => void>();
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
      ending.get(report.id)?.();
      ending.delete(report.id);
      tallies.finished(report, report.finishReason === "aborted" ? "abort" : sequence.request.finishReason);
      sequence.listener.finished(report);
      if (sequence.request.adapter !== undefined) leases.release(sequence.request.adapter);
    },
    ...(onEvents && { events: onEvents }),
  };
  const engine = createEngine({ parameters, hashSeed, observer, describesCpuBlocks });
  const startedS = clock.wallMs() / 1_000;
  return {
    ...{ startedS, engine, tallies, running, ending, leases },
    ...{
      sleep: undefined,
      pause: undefined,
      weightVersion: "default",
      rankOffset: undefined,
      lora: createLoraSeries(),
      knowsAdapters: false,
    },
  };
}

function countAdapter(current: EngineProcess, { adapter }: SequenceRequest): void {
  if (adapter === undefined) return;
  current.knowsAdapters = true;
  current.leases.acquire(adapter);
}

/** Adds the adapters in use now, if there ever were any. */
function samplesOf(lora: LoraSeries, use: AdapterUse | false, nowS: number): readonly LoraSample[] {
  if (use) lora.add({ running: use.running.join(","), waiting: use.waiting.join(","), seenS: nowS });
  return lora.samples();
}

/** Submits all requests or, when one is refused, none. */
function submitAll(engine: Engine, ids: readonly string[], requests: readonly SequenceRequest[], nowMs: number): void {
  try {
    for (const [at, request] of requests.entries()) engine.submit(modelRequest(ids[at] as string, request), nowMs);
  } catch (error) {
    // The engine ignores ids that were not submitted.
    for (const id of ids) engine.abort(id, nowMs);
    throw error;
  }
}

function modelRequest(id: string, request: SequenceRequest) {
  const { prompt, media, outputTokens, text, cacheSalt, adapter, priority, imported, remote, pinned } = request;
  return {
    id,
    promptTokens: prompt,
    ...(media && { media }),
    outputTokens,
    outputToken: text.token,
    ...(cacheSalt === undefined ? {} : { cacheSalt }),
    ...(adapter === undefined ? {} : { adapter }),
    ...(priority === undefined ? {} : { priority }),
    ...(imported && { imported }),
    ...(remote && { remote }),
    ...(pinned && { pinned }),
  };
}

/** Something that runs on engine time. */
export interface Driven {
  /** Runs everything up to `engineMs`. */
  advanceTo(engineMs: number): void;
  /** The next event, in engine milliseconds; undefined when idle. */
  nextEventMs(): number | undefined;
  /** Sends the output of the advance. */
  flush(): void;
}

/** Maps real time to engine time and advances the engines of this process, with one timer for all. */
export type TimeDriver = ReturnType<typeof createTimeDriver>;

interface TimeDriverOptions {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** Engine milliseconds per real millisecond. */
  readonly speed: number;
}

/** Engines compute on exact engine times; their output is sent when the real timer fires, all due parts together. */
export function createTimeDriver({ clock, scheduler, speed }: TimeDriverOptions) {
  const parts: Driven[] = [];
  const startMs = clock.nowMs();
  let cancel: Cancel | undefined;
  let armedMs = Number.POSITIVE_INFINITY;

  const nowMs = (): number => (clock.nowMs() - startMs) * speed;
  const arm = (dueMs: number | undefined): void => {
    if (dueMs === undefined || dueMs >= armedMs) return;
    cancel?.();
    armedMs = dueMs;
    // Rounded up: a timer that fires a fraction early finds nothing to do.
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
    /** Engine time: real milliseconds since the driver was made, times the speed. */
    nowMs,
    add(part: Driven): void {
      parts.push(part);
    },
    /** Must be called when a part got work. */
    changed: (part: Driven): void => arm(part.nextEventMs()),
    stop(): void {
      cancel?.();
      parts.length = 0;
    },
  };
}
