import { describe, expect, test } from "vitest";
import { infiniteCacheBound } from "../../src/workload/index.ts";
import { traceRequest } from "./helpers.ts";

describe("infinite cache", () => {
  const bound = (...chains: readonly (readonly [readonly number[], number])[]) =>
    infiniteCacheBound(chains.map(([blockIds, inputTokens]) => traceRequest({ blockIds, inputTokens })));

  test("full blocks at the beginning that came before, over all input tokens", () => {
    expect(bound([[0, 1, 2], 1_300], [[0, 1, 3], 1_500])).toBeCloseTo(1_024 / 2_800);
  });

  test("the last token of a prompt is always computed: a prompt of whole blocks misses its last", () => {
    expect(bound([[0, 1], 1_024], [[0, 1], 1_024])).toBeCloseTo(512 / 2_048);
    expect(bound([[0, 1], 1_024], [[0, 1, 2], 1_025])).toBeCloseTo(1_024 / 2_049);
  });

  test("a partial block is not kept, even when the same prompt comes again", () => {
    expect(bound([[0, 1], 1_000], [[0, 1], 1_000])).toBeCloseTo(512 / 2_000);
  });

  test("a block counts only after the same beginning", () => {
    expect(bound([[0, 1, 2], 1_536], [[9, 1, 2], 1_536])).toBe(0);
    expect(bound([[0, 1, 2], 1_536], [[0, 9, 2], 1_537])).toBeCloseTo(512 / 3_073);
  });

  test("requests without blocks add input and no hits; without any block there is no bound", () => {
    const named = traceRequest({ blockIds: [0, 1], inputTokens: 1_000 });
    const unnamed = traceRequest({ inputTokens: 1_000 });
    expect(infiniteCacheBound([named, unnamed, named])).toBeCloseTo(512 / 3_000);
    expect(infiniteCacheBound([unnamed])).toBeUndefined();
    expect(infiniteCacheBound([])).toBeUndefined();
  });

  test("the block size is the trace's", () => {
    const small = traceRequest({ blockIds: [1, 2, 3], inputTokens: 40, blockTokens: 16 });
    expect(infiniteCacheBound([small, small])).toBeCloseTo(32 / 80);
  });
});
