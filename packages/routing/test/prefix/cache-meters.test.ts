import { createSeriesMeter } from "@espalier/testing";
import { expect, test } from "vitest";
import { createCacheMeters } from "../../src/prefix/cache-meters.ts";

test("prompts are counted by what their blocks are made of", () => {
  const meter = createSeriesMeter();
  const meters = createCacheMeters(meter);
  for (const from of ["tokens", "bytes", "tokens", "partial", "tokens"] as const) meters.read(from);
  const counted = ["tokens", "partial", "bytes"].map((from) => meter.value("espalier_prompts_total", from));
  expect(counted).toEqual([3, 1, 1]);
});

test("what the chosen engines hold of the prompts sent is counted beside the most that any holds", () => {
  const meter = createSeriesMeter();
  const meters = createCacheMeters(meter);
  meters.sent(1_000, 0, 640);
  meters.sent(500, 320, 320);
  const counted = ["prompt", "chosen", "best"].map((kind) => meter.value("espalier_prefix_tokens_total", kind));
  expect(counted).toEqual([1_500, 320, 960]);
});

test("the size of the index is the latest that was told", () => {
  const meter = createSeriesMeter();
  const meters = createCacheMeters(meter);
  meters.size(10, 20, 3_000);
  meters.size(11, 19, 4_000);
  expect(["facts", "placements"].map((layer) => meter.value("espalier_prefix_index_blocks", layer))).toEqual([11, 19]);
  expect(meter.value("espalier_prefix_index_bytes")).toBe(4_000);
});
