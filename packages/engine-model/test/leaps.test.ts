import { createSeededRandom, type Random } from "@espalier/core";
import { type BlockEngine, type BlockReport, createBlockEngine, type EngineParameters } from "@espalier/engine-model";
import { describe, expect, test } from "vitest";
import { smallEngine } from "./harness.ts";

interface Recording {
  readonly engine: BlockEngine;
  readonly reports: BlockReport[];
  /** Every call but those of progress, with its time. */
  readonly calls: string[];
  /** Tokens told of together, by request. */
  readonly progress: Map<number, number[]>;
  lastMs: number;
}

function createRecording(parameters: EngineParameters, progressTokens?: number): Recording {
  const reports: BlockReport[] = [];
  const calls: string[] = [];
  const progress = new Map<number, number[]>();
  const note = (call: string, timeMs: number): void => {
    recording.lastMs = timeMs;
    calls.push(`${call} ${timeMs}`);
  };
  const engine = createBlockEngine({
    parameters,
    observer: {
      firstToken: (id, timeMs) => note(`first ${id}`, timeMs),
      progress(id, tokens, timeMs) {
        recording.lastMs = timeMs;
        progress.set(id, [...(progress.get(id) ?? []), tokens]);
      },
      finished(report) {
        reports.push(report);
        note(`finished ${report.id}`, report.finishedMs);
      },
      blocks: ({ kinds, ends, words }, timeMs) => note(`blocks ${kinds} ${ends} ${words}`, timeMs),
    },
    ...(progressTokens === undefined ? {} : { progressTokens }),
  });
  const recording: Recording = { engine, reports, calls, progress, lastMs: Number.NaN };
  return recording;
}

/** Words that depend on everything before them; `kinds` different beginnings. */
function chainOf(blocks: number, kind: number, own: number): Uint32Array {
  const chain = new Uint32Array(2 * blocks);
  for (let block = 0; block < blocks; block++) {
    chain[2 * block] = 1 + block * 1_000 + (block < 3 ? kind : 100 + own);
    chain[2 * block + 1] = Math.imul(chain[2 * block]!, 0x9e37_79b1);
  }
  return chain;
}

interface Arrival {
  readonly atMs: number;
  readonly id: number;
  /** Undefined: the request is dropped. */
  readonly request: { promptTokens: number; outputTokens: number; chain: Uint32Array; priority: number } | undefined;
}

function arrivals(random: Random, count: number, blockSize: number, meanGapMs: number): Arrival[] {
  let atMs = 0;
  return Array.from({ length: count }, (_, at) => {
    atMs += -Math.log(1 - random.float()) * meanGapMs;
    if (at > 0 && random.float() < 0.2) return { atMs, id: random.integer(at), request: undefined };
    const promptTokens = 1 + random.integer(100);
    const outputTokens = 1 + random.integer(200);
    const chain = chainOf(Math.floor((promptTokens + outputTokens) / blockSize), random.integer(4), at);
    return { atMs, id: at, request: { promptTokens, outputTokens, chain, priority: random.integer(2) } };
  });
}

/** Hands everything in at its time. Returns how often the engine was woken. */
function drive(recording: Recording, script: readonly Arrival[]): number {
  const { engine } = recording;
  let wakes = 0;
  const runUntil = (endMs: number): void => {
    for (let at = engine.nextEventMs(); at !== undefined && at < endMs; at = engine.nextEventMs()) {
      engine.advanceTo(at);
      wakes++;
      // What is told, is told when the engine said that something would happen.
      if (!Number.isNaN(recording.lastMs) && recording.lastMs !== at)
        expect.fail(`told of ${recording.lastMs} at ${at}`);
      recording.lastMs = Number.NaN;
    }
  };
  for (const { atMs, id, request } of script) {
    runUntil(atMs);
    if (request) engine.submit({ id, ...request }, atMs);
    else engine.abort(id, atMs);
    // A waiting request is dropped at once.
    recording.lastMs = Number.NaN;
  }
  runUntil(Number.POSITIVE_INFINITY);
  return wakes;
}

const parameters: EngineParameters = {
  ...smallEngine,
  blockSize: 16,
  blockCount: 60,
  maxBatchedTokens: 64,
  maxModelLength: 400,
  // Sums of these round differently in another order.
  stepBaseMs: 1.1,
  decodeMsPerSequence: 0.13,
  decodeMsPerContextToken: 0.00137,
};

describe("steps that are passed over", () => {
  test.each([
    ["vllm", 300],
    ["vllm", 60],
    ["sglang", 300],
    ["sglang", 60],
  ] as const)("%s, a request every %i ms: all is as when every step is told of", (flavour, meanGapMs) => {
    for (let seed = 0; seed < 4; seed++) {
      const script = arrivals(createSeededRandom(seed), 50, parameters.blockSize, meanGapMs);
      const passing = createRecording({ ...parameters, flavour });
      const stepping = createRecording({ ...parameters, flavour }, 1);
      const wakes = drive(passing, script);
      const steps = drive(stepping, script);

      expect(passing.calls).toEqual(stepping.calls);
      expect(passing.reports).toEqual(stepping.reports);
      expect(passing.engine.stats()).toEqual(stepping.engine.stats());
      expect(wakes).toBeLessThan(0.95 * steps);
    }
  });

  test("one request alone: the engine is woken for its tokens and blocks only", () => {
    const recording = createRecording(parameters);
    const request = { promptTokens: 31, outputTokens: 97, chain: chainOf(8, 0, 0), priority: 0 };
    const wakes = drive(recording, [{ atMs: 0, id: 0, request }]);
    const { steps } = recording.engine.stats();
    expect(steps).toBe(97);
    // Its beginning, its first token, six blocks that are full and told of, its end.
    expect(wakes).toBeLessThanOrEqual(9);
    expect(recording.progress.get(0)).toEqual([1, 16, 16, 16, 16, 16, 15]);
  });

  test.each(["vllm", "sglang"] as const)("%s: observers drop and send requests in the middle of a step", (flavour) => {
    for (let seed = 0; seed < 6; seed++) {
      const random = createSeededRandom(seed);
      const script = arrivals(random, 40, parameters.blockSize, 40).filter(({ request }) => request);
      const drops = script.map(({ id }) => [id + 1, id - 1, id + 2][random.integer(3)]!);
      const run = (progressTokens?: number): Recording => {
        const recording = createRecording({ ...parameters, flavour }, progressTokens);
        const { engine, reports } = recording;
        let known = 0;
        // Acts in the call that tells of an end, of those before and behind it in the batch alike.
        recording.reports.push = (report) => {
          const length = Array.prototype.push.call(reports, report);
          if (report.finishReason === "aborted") return length;
          engine.abort(drops[report.id % 1_000]!, report.finishedMs);
          if (report.id < 1_000 && report.id % 3 === 0) {
            const request = { promptTokens: 20, outputTokens: 30, chain: chainOf(3, 0, report.id) };
            engine.submit({ id: 1_000 + report.id, ...request }, report.finishedMs);
          }
          known++;
          return length;
        };
        drive(recording, script);
        expect(known).toBeGreaterThan(10);
        return recording;
      };
      const passing = run();
      const stepping = run(1);
      expect(passing.calls).toEqual(stepping.calls);
      expect([...passing.reports]).toEqual([...stepping.reports]);
      expect(passing.reports.some(({ finishReason }) => finishReason === "aborted")).toBe(true);
      expect(passing.engine.stats()).toEqual(stepping.engine.stats());
    }
  });

  test("more requests than a phase has room for at first decode together", () => {
    const wide = { ...parameters, blockCount: 400, maxRunning: 64, maxBatchedTokens: 2_048 };
    const [passing, stepping] = [createRecording(wide), createRecording(wide, 1)];
    for (const recording of [passing, stepping]) {
      const script = Array.from({ length: 40 }, (_, id) => {
        const request = { promptTokens: 1 + id, outputTokens: 60 + id, chain: chainOf(9, id % 4, id), priority: 0 };
        return { atMs: id, id, request };
      });
      drive(recording, script);
      expect(recording.reports).toHaveLength(40);
    }
    expect(passing.calls).toEqual(stepping.calls);
    expect(passing.engine.stats()).toEqual(stepping.engine.stats());
  });
});

describe("in between", () => {
  test("a request that arrives is admitted with the next step", () => {
    const recording = createRecording(parameters);
    const { engine } = recording;
    engine.submit({ id: 0, promptTokens: 1, outputTokens: 300, chain: chainOf(18, 0, 0) }, 0);
    engine.advanceTo(10);
    const wokenMs = engine.nextEventMs()!;
    engine.submit({ id: 1, promptTokens: 5, outputTokens: 1, chain: chainOf(0, 0, 1) }, 10.01);
    const stepEndMs = engine.nextEventMs()!;
    expect(stepEndMs).toBeLessThan(wokenMs);
    expect(stepEndMs - 10.01).toBeLessThan(2);
    engine.advanceTo(stepEndMs + 3);
    expect(recording.reports).toMatchObject([{ id: 1, arrivedMs: 10.01, scheduledMs: stepEndMs, outputTokens: 1 }]);
  });

  test("a request that is dropped ends with the running step, with all its tokens told", () => {
    const recording = createRecording(parameters);
    const { engine } = recording;
    engine.submit({ id: 0, promptTokens: 1, outputTokens: 300, chain: chainOf(18, 0, 0) }, 0);
    engine.advanceTo(12);
    const { generatedTokens } = engine.stats();
    expect(generatedTokens).toBeGreaterThan(5);
    engine.abort(0, 12);
    const stepEndMs = engine.nextEventMs()!;
    engine.advanceTo(stepEndMs);
    expect(recording.reports).toMatchObject([
      { finishReason: "aborted", outputTokens: generatedTokens, finishedMs: stepEndMs },
    ]);
    expect(1 + recording.progress.get(0)!.reduce((sum, tokens) => sum + tokens, 0)).toBe(generatedTokens);
  });

  test("counts are those of the time reached", () => {
    const passing = createRecording(parameters);
    const stepping = createRecording(parameters, 1);
    for (const { engine } of [passing, stepping]) {
      engine.submit({ id: 0, promptTokens: 40, outputTokens: 300, chain: chainOf(21, 0, 0) }, 0);
    }
    for (let atMs = 0; atMs < 300; atMs += 0.7) {
      passing.engine.advanceTo(atMs);
      stepping.engine.advanceTo(atMs);
      expect(passing.engine.stats()).toEqual(stepping.engine.stats());
    }
  });
});
