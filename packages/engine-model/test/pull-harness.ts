import {
  createEngine,
  createPullSource,
  type Engine,
  type EngineParameters,
  type EngineRequest,
  type KvEvent,
  type PullLimits,
  type PullSource,
  type RequestReport,
} from "@espalier/engine-model";
import { GENERATED, smallEngine } from "./harness.ts";

/** Blocks of 4 tokens, of 1 byte each: a block takes 4 ms on the whole link, and 8 ms on that of a pair. */
export const smallLink: PullLimits = {
  bytesPerSecond: 1_000,
  pairBytesPerSecond: 500,
  latencyMs: 3,
  bytesPerToken: 1,
};

/** Much KV memory, CPU memory that takes whatever is computed, and a load of 2 ms per block. */
export const pullingEngine: EngineParameters = {
  ...smallEngine,
  blockCount: 64,
  maxBatchedTokens: 64,
  maxModelLength: 200,
  cpuBlocks: 64,
  cpuLoadMsPerBlock: 2,
  cpuWrites: "all",
};

export interface FleetEngine {
  readonly engine: Engine;
  readonly source: PullSource<EngineRequest>;
  readonly reports: Map<string, RequestReport>;
  readonly events: KvEvent[];
}

/** Engines that pull from each other, in one virtual time. */
export interface Fleet {
  readonly engines: readonly FleetEngine[];
  nowMs(): number;
  submit(engine: number, id: string, prompt: readonly number[], more?: SubmitOptions): void;
  /** Runs until nothing is left to do. */
  settle(): void;
  runUntil(timeMs: number): void;
  /** Runs one request to its end, with whatever else there is to do. */
  run(engine: number, id: string, prompt: readonly number[], more?: SubmitOptions): RequestReport;
  /** The engine's process ends and starts again. */
  crash(engine: number): void;
}

interface SubmitOptions {
  readonly outputTokens?: number;
  /** The engine to pull from. */
  readonly from?: number;
  readonly adapter?: string;
  readonly cacheSalt?: string;
  readonly priority?: number;
}

/** @param count engines, each with hashes of its own */
export function createFleet(
  count: number,
  parameters: EngineParameters = pullingEngine,
  limits: PullLimits = smallLink,
): Fleet {
  let reachedMs = 0;
  const engines = Array.from({ length: count }, (_, index) => {
    const reports = new Map<string, RequestReport>();
    const events: KvEvent[] = [];
    const start = (): Engine =>
      createEngine({
        parameters,
        hashSeed: index + 1,
        describesCpuBlocks: true,
        observer: {
          finished: (report) => void reports.set(report.id, report),
          events: (batch) => void events.push(...batch),
        },
      });
    const part = { engine: start(), reports, events };
    return { part, start, source: createPullSource<EngineRequest>({ engine: () => part.engine, limits }) };
  });
  const runUntil = (timeMs: number): void => {
    for (;;) {
      let nextMs = Number.POSITIVE_INFINITY;
      let next: { advanceTo(ms: number): void } | undefined;
      for (const { part, source } of engines) {
        for (const driven of [source, part.engine]) {
          const atMs = driven.nextEventMs() ?? Number.POSITIVE_INFINITY;
          if (atMs >= nextMs || atMs > timeMs) continue;
          nextMs = atMs;
          next = driven;
        }
      }
      if (!next) break;
      reachedMs = nextMs;
      next.advanceTo(nextMs);
    }
    if (Number.isFinite(timeMs)) reachedMs = timeMs;
  };
  const fleet: Fleet = {
    engines: engines.map(({ part, source }) => ({
      get engine() {
        return part.engine;
      },
      source,
      reports: part.reports,
      events: part.events,
    })),
    nowMs: () => reachedMs,
    submit(index, id, prompt, { outputTokens = 1, from, ...more } = {}) {
      const outputToken = (at: number): number => GENERATED + at;
      const request = { id, promptTokens: Uint32Array.from(prompt), outputTokens, outputToken, ...more };
      const remote = from === undefined ? {} : { remote: engines[from]!.source.sourceFor(request, `engine-${index}`) };
      engines[index]!.part.engine.submit({ ...request, ...remote }, reachedMs);
    },
    settle: () => runUntil(Number.POSITIVE_INFINITY),
    runUntil,
    run(index, id, prompt, more) {
      fleet.submit(index, id, prompt, more);
      fleet.settle();
      const report = engines[index]!.part.reports.get(id);
      if (!report) throw new Error(`no report of ${id}`);
      return report;
    },
    crash(index) {
      const { part, source, start } = engines[index]!;
      part.engine = start();
      source.drop(reachedMs);
    },
  };
  return fleet;
}
