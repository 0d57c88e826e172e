import { createEventFold } from "@espalier/bench";
import { createSeededRandom, type Random } from "@espalier/core";
import { createEngine, type EngineParameters, enginePresets } from "@espalier/engine-model";
import { encodeEventMessage } from "@espalier/engine-model/kv-events";
import { expect, test } from "vitest";

const parameters: EngineParameters = {
  ...enginePresets["a10g-7b"].parameters,
  ...{ blockSize: 16, blockCount: 150, maxModelLength: 600, maxBatchedTokens: 128, cpuBlocks: 0 },
};

test.each([
  ["a window", { windowTokens: 50 }],
  ["a window, kept densely", { windowTokens: 50, retention: "dense" as const }],
  ["two groups of states", { stateGroups: 2 }],
  ["a window and states", { windowTokens: 20, stateGroups: 1 }],
])("%s: what a modelled engine announces predicts its hits, also after evictions", (_name, hybrid) => {
  const random = createSeededRandom(7);
  const fold = createEventFold(parameters.blockSize);
  const reported: number[] = [];
  const engine = createEngine({
    parameters: { ...parameters, ...hybrid },
    hashSeed: 3,
    observer: {
      finished: ({ cachedTokens }) => reported.push(cachedTokens),
      events: (events) => fold.apply(encodeEventMessage(events, "vllm-0.32", { timestampS: 1, rank: 0 })),
    },
  });
  const predicted: number[] = [];
  let held = 0;
  let nowMs = 0;
  const earlier: Uint32Array[] = [];
  for (let request = 0; request < 300; request++) {
    const promptTokens = nextPrompt(random, earlier);
    const found = fold.match(promptTokens, { adapter: undefined, cacheSalt: undefined });
    predicted.push(found.usable);
    if (found.held > found.usable) held++;
    engine.submit({ id: `r${request}`, promptTokens, outputTokens: 5, outputToken: (at) => 5_000 + at }, nowMs);
    for (let next = engine.nextEventMs(); next !== undefined; next = engine.nextEventMs()) {
      nowMs = next;
      engine.advanceTo(nowMs);
    }
  }
  expect(fold.undecoded).toBe(0);
  expect(reported).toEqual(predicted);
  expect(held).toBeGreaterThan(30);
});

/** Often goes on from an earlier prompt, or from its beginning. */
function nextPrompt(random: Random, earlier: Uint32Array[]): Uint32Array {
  const base = earlier[random.integer(earlier.length + 1)] ?? new Uint32Array();
  const kept = base.subarray(0, random.integer(3) === 0 ? random.integer(base.length + 1) : base.length);
  const more = Uint32Array.from({ length: 1 + random.integer(120) }, () => random.integer(4_000));
  const prompt = new Uint32Array(Math.min(500, kept.length + more.length));
  prompt.set(kept.subarray(0, prompt.length));
  if (kept.length < prompt.length) prompt.set(more.subarray(0, prompt.length - kept.length), kept.length);
  earlier.push(prompt);
  if (earlier.length > 12) earlier.shift();
  return prompt;
}
