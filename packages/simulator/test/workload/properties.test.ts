/** Properties of reading and of the definitions, against the plainest code that does the same. */

import { createSeededRandom } from "@espalier/core";
import { randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  infiniteCacheBound,
  jitterArrivals,
  percentile,
  type RequestResult,
  readTrace,
  summarize,
  type TraceRequest,
} from "../../src/workload/index.ts";
import { gzipped, jsonLines, mooncakeRow, requestResult, temporaryFile, traceRequest } from "./helpers.ts";

describe("reading", () => {
  test("what was written is read back, gzipped or not, in any language", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.record({ prompt: fc.string({ unit: "grapheme", minLength: 1, maxLength: 40 }) }), { minLength: 1 }),
        fc.boolean(),
        async (rows, zipped) => {
          const content = jsonLines(rows);
          const requests = await readTrace(await temporaryFile(zipped ? gzipped(content) : content));
          expect(requests.map((request) => request.prompt)).toEqual(rows.map((row) => row.prompt));
          for (const { prompt, inputTokens } of requests) {
            expect(inputTokens).toBe(Math.ceil(Buffer.byteLength(prompt as string) / 4));
          }
        },
      ),
      { numRuns: randomRuns(30) },
    );
  });

  test("a character that the file's chunks cut in two is whole again", async () => {
    // Files come in chunks of 64 KiB; with one byte in front, every chunk ends inside a character of two bytes.
    const prompts = [`x${"é".repeat(100_000)}`, `xx${"語".repeat(70_000)}`, "😀".repeat(40_000)];
    const requests = await readTrace(await temporaryFile(jsonLines(prompts.map((prompt) => ({ prompt })))));
    expect(requests.map((request) => request.prompt)).toEqual(prompts);
  });

  test("turns count up within a session, whatever the order of times", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(
          fc.record({
            prompt: fc.constant("x"),
            session: fc.constantFrom("a", "b", "c"),
            timestamp: fc.integer({ min: 0, max: 5 }),
          }),
          { minLength: 1, maxLength: 20 },
        ),
        async (rows) => {
          const requests = await readTrace(await temporaryFile(jsonLines(rows)));
          const firstMs = Math.min(...rows.map((row) => row.timestamp));
          expect(requests.map((request) => request.arrivalMs + firstMs)).toEqual(
            rows.map((row) => row.timestamp).sort((a, b) => a - b),
          );
          expect(requests.map((request) => request.index)).toEqual(requests.map((_, i) => i));
          for (const session of ["a", "b", "c"]) {
            const turns = requests.filter((request) => request.session === session).map((request) => request.turn);
            expect(turns).toEqual(turns.map((_, i) => i));
          }
        },
      ),
      { numRuns: randomRuns(30) },
    );
  });
});

/** Chains over few ids, so that they share beginnings and repeat ids in other places. */
const chains = fc.array(
  fc.record({
    ids: fc.array(fc.integer({ min: 0, max: 2 }), { minLength: 1, maxLength: 5 }),
    lastTokens: fc.constantFrom(1, 300, 512),
  }),
  { minLength: 1, maxLength: 12 },
);
type Chain = { readonly ids: readonly number[]; readonly lastTokens: number };
const tokensOf = (chain: Chain): number => (chain.ids.length - 1) * 512 + chain.lastTokens;
const fullBlocks = (chain: Chain): readonly number[] => chain.ids.slice(0, Math.floor(tokensOf(chain) / 512));
const begins = (chain: readonly number[], beginning: readonly number[]): boolean =>
  beginning.length <= chain.length && beginning.every((id, place) => id === chain[place]);

describe("block chains", () => {
  test("a session is that of the longest earlier prompt that is repeated whole and is more than one block", async () => {
    await fc.assert(
      fc.asyncProperty(chains, async (list) => {
        const rows = list.map((chain) => mooncakeRow(chain.ids, tokensOf(chain)));
        const requests = await readTrace(await temporaryFile(jsonLines(rows)), { format: "mooncake" });
        const sessions: number[] = [];
        for (const [i, chain] of list.entries()) {
          const candidates = list
            .slice(0, i)
            .map((earlier, position) => ({ blocks: fullBlocks(earlier), session: sessions[position]! }))
            .filter(({ blocks }) => blocks.length > 1 && begins(fullBlocks(chain), blocks))
            .sort((a, b) => b.blocks.length - a.blocks.length);
          sessions.push(candidates[0]?.session ?? Math.max(-1, ...sessions) + 1);
        }
        expect(requests.map((request) => request.session)).toEqual(sessions.map((session) => `session-${session}`));
      }),
      { numRuns: randomRuns(60) },
    );
  });

  test("an infinite cache hits the longest beginning that any earlier prompt had in full blocks", () => {
    fc.assert(
      fc.property(chains, (list) => {
        let hit = 0;
        let total = 0;
        for (const [i, chain] of list.entries()) {
          const own = fullBlocks(chain);
          const shared = list.slice(0, i).map((earlier) => {
            const blocks = fullBlocks(earlier);
            let depth = 0;
            while (depth < own.length && depth < blocks.length && own[depth] === blocks[depth]) depth += 1;
            return depth;
          });
          hit += Math.min(Math.max(0, ...shared), Math.floor((tokensOf(chain) - 1) / 512)) * 512;
          total += tokensOf(chain);
        }
        const requests = list.map((chain) => traceRequest({ blockIds: chain.ids, inputTokens: tokensOf(chain) }));
        expect(infiniteCacheBound(requests)).toBeCloseTo(hit / total, 12);
      }),
    );
  });
});

test("jitter keeps the order, the number and the step of every request, whatever the times", () => {
  const times = fc
    .array(fc.integer({ min: 0, max: 60_000 }), { maxLength: 40 })
    .map((list) => list.sort((a, b) => a - b));
  fc.assert(
    fc.property(times, fc.integer(), fc.constantFrom(1, 1_000, 3_000), (arrivals, seed, stepMs) => {
      const requests = arrivals.map((arrivalMs, index) => traceRequest({ index, arrivalMs }));
      const spread = jitterArrivals(requests, { stepMs, random: createSeededRandom(seed) });
      expect(spread.map((request) => request.index)).toEqual(requests.map((request) => request.index));
      const isLater = (request: TraceRequest, i: number): boolean =>
        i === 0 || request.arrivalMs >= spread[i - 1]!.arrivalMs;
      expect(spread.every(isLater)).toBe(true);
      for (const [i, request] of spread.entries()) {
        expect(Math.floor(request.arrivalMs / stepMs)).toBe(Math.round(arrivals[i]! / stepMs));
      }
    }),
  );
});

describe("summaries", () => {
  const results: fc.Arbitrary<RequestResult[]> = fc
    .array(
      fc.record({
        startMs: fc.integer({ min: 0, max: 10_000 }),
        waitMs: fc.integer({ min: 1, max: 3_000 }),
        restMs: fc.integer({ min: 0, max: 9_000 }),
        inputTokens: fc.integer({ min: 1, max: 1_000 }),
        outputTokens: fc.integer({ min: 1, max: 100 }),
        cached: fc.constantFrom(0, 0.5, 1, Number.NaN),
        turn: fc.integer({ min: 0, max: 2 }),
        engine: fc.constantFrom("a", "b", undefined),
        error: fc.constantFrom(undefined, undefined, "upstream_reset"),
      }),
      { minLength: 1, maxLength: 20 },
    )
    .map((list) =>
      list.map(({ waitMs, restMs, cached, ...rest }, index) =>
        requestResult({
          ...rest,
          index,
          firstTokenMs: rest.startMs + waitMs,
          endMs: rest.startMs + waitMs + restMs,
          cachedTokens: rest.inputTokens * cached,
        }),
      ),
    );

  test("percentiles rise with the percent and stay between the extremes; shares stay within 0 and 1", () => {
    fc.assert(
      fc.property(results, (list) => {
        const row = summarize(list, { speed: 1, engines: 2 });
        expect(row.requests).toBe(list.length);
        expect(row.errors).toBe(list.filter((result) => result.error !== undefined).length);
        if (row.errors === row.requests) return;
        const ttft = [row.ttft_p50_s!, row.ttft_p90_s!, row.ttft_p95_s!, row.ttft_p99_s!];
        expect([...ttft].sort((a, b) => a - b)).toEqual(ttft);
        expect(row.ttft_mean_s!).toBeLessThanOrEqual(row.e2e_mean_s! + 1e-9);
        for (const share of [row.cached_share ?? 0, row.followup_cached_share ?? 1]) {
          expect(share).toBeGreaterThanOrEqual(0);
          expect(share).toBeLessThanOrEqual(1);
        }
      }),
    );
  });

  test("the order of the results changes nothing, and JSON keeps every value", () => {
    fc.assert(
      fc.property(results, (list) => {
        const row = summarize(list, { speed: 2 });
        const turned = summarize([...list].reverse(), { speed: 2 });
        for (const [key, value] of Object.entries(row)) {
          expect(turned[key as keyof typeof turned]).toBeCloseTo(value as number, 9);
        }
        expect(JSON.parse(JSON.stringify(row))).toEqual(row);
      }),
    );
  });

  test("speed multiplies every time and divides every rate, and leaves counts and shares alone", () => {
    fc.assert(
      fc.property(results, fc.constantFrom(2, 10, 50), (list, speed) => {
        const slow = summarize(list, { speed: 1, loadSamples: [[1, 2]] });
        // Objectives are of the engines' time, in which everything takes so much longer.
        const objectives = { ttftMs: 2_000 * speed, tpotMs: 50 * speed };
        const fast = summarize(list, { speed, loadSamples: [[1, 2]], objectives });
        expect(Object.keys(fast)).toEqual(Object.keys(slow));
        for (const [key, value] of Object.entries(slow) as [keyof typeof slow, number][]) {
          const factor = key.endsWith("_per_s") ? 1 / speed : key.endsWith("_s") ? speed : 1;
          expect(fast[key]).toBeCloseTo(value * factor, 6);
        }
      }),
    );
  });

  test("a percentile has at least its share of the values at or below it", () => {
    const values = fc.array(fc.integer({ min: -50, max: 50 }), { minLength: 1, maxLength: 30 });
    fc.assert(
      fc.property(values, fc.integer({ min: 0, max: 100 }), (list, percent) => {
        const ascending = Float64Array.from(list).sort();
        const found = percentile(ascending, percent);
        const atOrBelow = ascending.filter((value) => value <= found + 1e-9).length;
        expect(atOrBelow).toBeGreaterThanOrEqual(Math.floor(((list.length - 1) * percent) / 100) + 1);
        expect(found).toBeGreaterThanOrEqual(ascending[0]!);
        expect(found).toBeLessThanOrEqual(ascending.at(-1)!);
      }),
    );
  });
});
