import { createSeededRandom, type Random } from "@espalier/core";
import {
  createEngine,
  type Engine,
  type EngineObserver,
  type EngineParameters,
  type EngineRequest,
} from "@espalier/engine-model";
import { randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createMirror, GENERATED, type Mirror, smallEngine } from "./harness.ts";

/** Durations tell what a step computed: 1 ms, and 1 ms for every token. */
const counting = { stepBaseMs: 1, prefillMsPerToken: 1, decodeMsPerSequence: 1 } as const;

interface Asked {
  readonly prompt: number[];
  readonly outputTokens: number;
  readonly space: string;
}

interface History {
  engine: Engine;
  readonly mirror: Mirror;
  readonly asked: Map<string, Asked>;
  readonly tokensOf: Map<string, number>;
  readonly aborted: Set<string>;
  finished: number;
  readonly faults: string[];
}

/** Watches what an engine tells, and notes what cannot be. */
function observerOf(history: History, blockSize: number): EngineObserver {
  const { asked, tokensOf, aborted, faults, mirror } = history;
  return {
    token(id, index) {
      if ((tokensOf.get(id) ?? 0) !== index) faults.push(`${id}: token ${index} out of order`);
      tokensOf.set(id, index + 1);
    },
    finished({ id, outputTokens, cachedTokens, finishReason }) {
      history.finished++;
      const wanted = asked.get(id)!;
      const reported = tokensOf.get(id) ?? 0;
      if (outputTokens !== reported) faults.push(`${id}: reported ${outputTokens}, told ${reported}`);
      if (finishReason === "length" && reported !== wanted.outputTokens) faults.push(`${id}: ended after ${reported}`);
      if (finishReason === "aborted" && !aborted.has(id)) faults.push(`${id}: nobody dropped it`);
      if (cachedTokens >= wanted.prompt.length) faults.push(`${id}: every token cached`);
      if (cachedTokens % blockSize !== 0) faults.push(`${id}: part of a block cached`);
    },
    events(events) {
      mirror.apply(events);
      // The step is over and the next one not planned: cache and events must agree now, whatever went before.
      const { cachedBlocks } = history.engine.stats();
      if (cachedBlocks !== mirror.size()) faults.push(`${cachedBlocks} cached, ${mirror.size()} told`);
    },
  };
}

/** Notes which limits the engine passed since it was called last. */
function watcherOf({ engine, faults, asked }: History, parameters: EngineParameters): () => void {
  let before = engine.stats();
  return () => {
    const stats = engine.stats();
    const stepTokens = stats.busyMs - before.busyMs - 1;
    if (stats.running > parameters.maxRunning) faults.push(`${stats.running} run`);
    if (stats.freeBlocks < 0 || stats.freeBlocks > parameters.blockCount) faults.push(`${stats.freeBlocks} free`);
    if (stats.cachedBlocks > parameters.blockCount) faults.push(`${stats.cachedBlocks} cached`);
    if (stats.running + stats.waiting + stats.finished !== asked.size) faults.push("a request was lost");
    if (stats.steps - before.steps === 1 && stepTokens > parameters.maxBatchedTokens + 1e-6) {
      faults.push(`a step of ${stepTokens} tokens`);
    }
    before = stats;
  };
}

/** Lets random requests with shared beginnings come and go, and checks after every event of the engine. */
function play(parameters: EngineParameters, random: Random, moves: number): History {
  const history = {
    mirror: createMirror(parameters.blockSize),
    asked: new Map(),
    tokensOf: new Map(),
    aborted: new Set(),
    faults: [],
    finished: 0,
  } as unknown as History;
  const observer = observerOf(history, parameters.blockSize);
  const engine = createEngine({ parameters, hashSeed: random.integer(1_000), observer });
  history.engine = engine;
  const check = watcherOf(history, parameters);
  let nowMs = 0;
  for (let move = 0; move < moves; move++) {
    const kind = random.float();
    if (kind < 0.45) {
      askRandomly(history, parameters, random, nowMs);
    } else if (kind < 0.52 && history.asked.size > 0) {
      const id = `r${random.integer(history.asked.size)}`;
      history.aborted.add(id);
      engine.abort(id, nowMs);
    } else if (kind < 0.54) {
      engine.resetPrefixCache(nowMs);
    } else {
      nowMs = engine.nextEventMs() ?? nowMs;
      engine.advanceTo(nowMs);
    }
    check();
  }
  for (let at = engine.nextEventMs(); at !== undefined; at = engine.nextEventMs()) {
    engine.advanceTo(at);
    check();
  }
  return history;
}

function askRandomly({ engine, asked }: History, parameters: EngineParameters, random: Random, nowMs: number): void {
  const id = `r${asked.size}`;
  const { prompt, outputTokens, cacheSalt } = randomRequest(random, parameters);
  asked.set(id, { prompt, outputTokens, space: `|${cacheSalt ?? ""}` });
  const request: EngineRequest = {
    id,
    promptTokens: Uint32Array.from(prompt),
    outputTokens,
    outputToken: (index) => GENERATED + (index % 3),
    priority: random.integer(3),
  };
  engine.submit(cacheSalt === undefined ? request : { ...request, cacheSalt }, nowMs);
}

/** Prompts begin alike: a tree of few tokens, so that they share blocks and part inside them. */
function randomRequest(random: Random, { maxModelLength, blockCount, blockSize }: EngineParameters) {
  const most = Math.min(maxModelLength, blockCount * blockSize);
  const length = 1 + random.integer(Math.min(40, most - 12));
  const prompt = Array.from({ length }, (_, at) => (random.float() < 0.04 ? 500 + at : at));
  const outputTokens = 1 + random.integer(12);
  return { prompt, outputTokens, cacheSalt: random.float() < 0.2 ? "salt" : undefined };
}

/** Asks for a prompt with nothing else going on. Returns how many of its tokens were cached. */
function createProbe({ engine, asked }: History): (prompt: number[], space: string) => number {
  let probes = 0;
  let nowMs = 1e9;
  let hits = engine.stats().prefixHits;
  return (prompt, space) => {
    const id = `probe ${probes++}`;
    asked.set(id, { prompt, outputTokens: 1, space });
    const cacheSalt = space.slice(1);
    const request = { id, promptTokens: Uint32Array.from(prompt), outputTokens: 1, outputToken: () => 0 };
    engine.submit(cacheSalt === "" ? request : { ...request, cacheSalt }, nowMs);
    nowMs += 1_000;
    engine.advanceTo(nowMs);
    const before = hits;
    hits = engine.stats().prefixHits;
    return hits - before;
  };
}

const engines = fc.record({
  flavour: fc.constantFrom("vllm" as const, "sglang" as const),
  freeOrder: fc.constantFrom("uncached-first" as const, "by-age" as const),
  blockSize: fc.constantFrom(1, 2, 4, 8),
  blockCount: fc.integer({ min: 14, max: 60 }),
  maxBatchedTokens: fc.integer({ min: 1, max: 40 }),
  maxRunning: fc.integer({ min: 1, max: 8 }),
  prefixCaching: fc.constantFrom(true, true, true, false),
});

describe("random histories", () => {
  test("no token, no request and no block is lost, and no limit passed", () => {
    fc.assert(
      fc.property(engines, fc.integer(), (engine, seed) => {
        const parameters = { ...smallEngine, ...counting, ...engine };
        const history = play(parameters, createSeededRandom(seed), 120);
        expect(history.faults).toEqual([]);
        expect(history.finished).toBe(history.asked.size);
        const stats = history.engine.stats();
        expect(stats).toMatchObject({ running: 0, waiting: 0, kvUse: 0, freeBlocks: parameters.blockCount });
        const reported = [...history.tokensOf.values()].reduce((sum, count) => sum + count, 0);
        expect(stats.generatedTokens).toBe(reported);
        expect(stats.finished).toBe(history.asked.size);
        expect(stats.prefixHits).toBeLessThanOrEqual(stats.prefixQueries);
      }),
      { numRuns: randomRuns(300) },
    );
  });

  test("an index built from the events equals the cache", () => {
    fc.assert(
      fc.property(engines, fc.integer(), (engine, seed) => {
        const parameters = { ...smallEngine, ...counting, ...engine };
        const random = createSeededRandom(seed);
        const history = play(parameters, random, 120);
        const { engine: played, mirror, asked } = history;
        const ask = createProbe(history);
        const earlier = [...asked.values()].slice(-12);
        // A clear that no step has announced yet leaves the mirror behind: one request brings it up to date.
        ask([9_999], "|");
        expect(mirror.faults).toEqual([]);
        expect(played.stats().cachedBlocks).toBe(mirror.size());
        for (const { prompt, space } of earlier) {
          const expected = parameters.prefixCaching ? mirror.match(prompt, prompt.length - 1, space) : 0;
          expect(ask(prompt, space)).toBe(expected);
          expect(mirror.faults).toEqual([]);
          expect(played.stats().cachedBlocks).toBe(mirror.size());
        }
      }),
      { numRuns: randomRuns(200) },
    );
  });

  test("the same seed gives the same history, however time is cut up", () => {
    const run = (slices: number): unknown => {
      const parameters = { ...smallEngine, maxRunning: 3, blockCount: 20 };
      const random = createSeededRandom(11);
      const log: unknown[] = [];
      const engine = createEngine({
        parameters,
        hashSeed: 5,
        observer: {
          token: (...call) => void log.push(call),
          finished: (report) => void log.push(report),
          events: (...call) => void log.push(call),
        },
      });
      for (let at = 0; at < 40; at++) {
        const { prompt, outputTokens } = randomRequest(random, parameters);
        for (let slice = 0; slice < slices; slice++) engine.advanceTo(at * 0.7 - 0.7 + (0.69 * (slice + 1)) / slices);
        engine.submit(
          { id: `r${at}`, promptTokens: Uint32Array.from(prompt), outputTokens, outputToken: () => at },
          at * 0.7,
        );
      }
      engine.advanceTo(1e6);
      return log;
    };
    expect(run(7)).toEqual(run(1));
  });
});
