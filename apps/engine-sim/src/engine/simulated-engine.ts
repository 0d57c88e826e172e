import {
  createEngine,
  type Engine,
  type EngineParameters,
  type EngineStats,
  type RequestReport,
} from "@espalier/engine-model";
import type { GeneratedText } from "../text/generated-text.ts";
import type { Driven, TimeDriver } from "../time-driver.ts";
import { createEngineTallies, type EngineTallies } from "./engine-tallies.ts";

/** One answer to one prompt. */
export interface SequenceRequest {
  readonly prompt: Uint32Array;
  readonly outputTokens: number;
  readonly finishReason: "length" | "stop";
  readonly text: GeneratedText;
  /** Only the prompt is computed: nothing is generated for the caller. */
  readonly pooling: boolean;
  readonly cacheSalt: string | undefined;
  readonly priority: number | undefined;
}

/** Told while the engine advances; must not call the engine, but may ask to be flushed. */
interface SequenceListener {
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
  /** The listener hears the report before this returns. Unknown ids are ignored. */
  abort(sequenceId: string): void;
  /** Has `part` flushed once, after the engine has gone as far as it can. */
  flushLater(part: Flushable): void;
  /** @returns false when running requests prevent it */
  resetPrefixCache(): boolean;
  stats(): EngineStats;
  /** Drops all requests and starts over as a new process would: empty cache, counters at zero, other engine hashes. */
  restart(): void;
  stop(): void;
}

interface SimulatedEngineOptions {
  readonly parameters: EngineParameters;
  /** Life number `k` hashes with `seed + k`. */
  readonly seed: number;
  readonly driver: TimeDriver;
}

interface Running {
  readonly request: SequenceRequest;
  readonly listener: SequenceListener;
  lastTokenMs: number;
}

export function createSimulatedEngine({ parameters, seed, driver }: SimulatedEngineOptions): SimulatedEngine {
  const running = new Map<string, Running>();
  let touched: Flushable[] = [];
  let life = 0;
  let nextId = 0;
  let tallies = createEngineTallies(parameters.flavour);
  let engine = createLife();

  function createLife(): Engine {
    const observer = {
      token(id: string, index: number, _token: number, timeMs: number): void {
        const sequence = running.get(id);
        if (!sequence) return;
        tallies.token(timeMs, sequence.lastTokenMs, sequence.request.pooling);
        sequence.lastTokenMs = timeMs;
        sequence.listener.token(index);
      },
      finished(report: RequestReport): void {
        const sequence = running.get(report.id);
        if (!sequence) return;
        running.delete(report.id);
        tallies.finished(report, report.finishReason === "aborted" ? "abort" : sequence.request.finishReason);
        sequence.listener.finished(report);
      },
    };
    return createEngine({ parameters, hashSeed: seed + life, observer });
  }
  const flush = (): void => {
    const parts = touched;
    touched = [];
    for (const part of parts) part.flush();
  };
  const driven: Driven = { advanceTo: (ms) => engine.advanceTo(ms), nextEventMs: () => engine.nextEventMs(), flush };
  /** Brings the engine to the present, acts, and sends what either brought forth. */
  const act = <T>(action: (nowMs: number) => T): T => {
    const nowMs = driver.nowMs();
    engine.advanceTo(nowMs);
    try {
      return action(nowMs);
    } finally {
      flush();
      driver.changed(driven);
    }
  };
  const remove = driver.add(driven);

  return {
    parameters,
    get life() {
      return life;
    },
    get tallies() {
      return tallies;
    },
    nowMs: driver.nowMs,
    activeCount: () => running.size,
    submit: (requests, listenerOf) =>
      act((nowMs) => {
        const ids: string[] = [];
        try {
          for (const [at, request] of requests.entries()) {
            const id = `${life}-${nextId++}`;
            engine.submit(modelRequest(id, request), nowMs);
            running.set(id, { request, listener: listenerOf(at), lastTokenMs: Number.NaN });
            ids.push(id);
          }
        } catch (error) {
          for (const id of ids) {
            running.delete(id);
            engine.abort(id, nowMs);
          }
          throw error;
        }
        return ids;
      }),
    abort: (sequenceId) => act((nowMs) => engine.abort(sequenceId, nowMs)),
    flushLater: (part) => touched.push(part),
    resetPrefixCache: () => act((nowMs) => engine.resetPrefixCache(nowMs)),
    stats: () => act(() => engine.stats()),
    restart() {
      for (const id of [...running.keys()]) act((nowMs) => engine.abort(id, nowMs));
      life++;
      tallies = createEngineTallies(parameters.flavour);
      engine = createLife();
    },
    stop: remove,
  };
}

function modelRequest(id: string, { prompt, outputTokens, text, cacheSalt, priority }: SequenceRequest) {
  return {
    id,
    promptTokens: prompt,
    outputTokens,
    outputToken: text.token,
    ...(cacheSalt === undefined ? {} : { cacheSalt }),
    ...(priority === undefined ? {} : { priority }),
  };
}
