import { createSeededRandom } from "@espalier/core";
import { createBlockEngine, enginePresets, slowedSteps } from "@espalier/engine-model";
import { expect, test } from "vitest";
import { createHarness, smallEngine } from "./harness.ts";

/** When each token of one request comes: 4 prompt tokens, so many out. */
const tokenTimes = (outputTokens: number, act: (harness: ReturnType<typeof createHarness>) => void = () => {}) => {
  const harness = createHarness();
  harness.submit("a", [1, 2, 3, 4], outputTokens);
  act(harness);
  harness.settle();
  return harness.tokens.map(({ timeMs }) => timeMs);
};

test("steps take so many times as long, whatever they compute, and 1 is as at first", () => {
  const once = tokenTimes(5);
  expect(once[0]).toBeCloseTo(1.04, 9);
  const thrice = tokenTimes(5, ({ engine }) => engine.setSlowdown(3, 0));
  for (const [at, timeMs] of thrice.entries()) expect(timeMs).toBeCloseTo(3 * once[at]!, 9);
  const mended = tokenTimes(5, ({ engine }) => {
    engine.setSlowdown(3, 0);
    engine.setSlowdown(1, 0);
  });
  expect(mended).toEqual(once);
});

test("the running step keeps its end", () => {
  const times = tokenTimes(4, ({ engine }) => {
    engine.advanceTo(0);
    engine.setSlowdown(10, 0.5);
  });
  expect(times[0]).toBeCloseTo(1.04, 9);
  for (const [at, timeMs] of times.slice(1).entries()) expect(timeMs - times[at]!).toBeCloseTo(11, 9);
});

test("an observer may slow its engine in the middle of a step", () => {
  const harness = createHarness({}, 1, {
    token: (_, index, __, timeMs) => {
      if (index === 1) harness.engine.setSlowdown(2, timeMs);
    },
  });
  harness.submit("a", [1, 2, 3, 4], 4);
  harness.settle();
  const times = harness.tokens.map(({ timeMs }) => timeMs);
  expect(times.slice(1).map((timeMs, at) => timeMs - times[at]!)).toEqual([
    ...[expect.closeTo(1.1, 9), expect.closeTo(2.2, 9), expect.closeTo(2.2, 9)],
  ]);
});

test.each([0, -1, Number.NaN, Number.POSITIVE_INFINITY])("a factor of %d is refused, and nothing changes", (factor) => {
  const times = tokenTimes(3, ({ engine }) => expect(() => engine.setSlowdown(factor, 0)).toThrow(RangeError));
  expect(times).toEqual(tokenTimes(3));
  expect(() => slowedSteps(smallEngine, factor)).toThrow(RangeError);
});

test("steps that are passed over are as long as those that are told of, however often the factor changes", () => {
  for (let seed = 0; seed < 8; seed++) {
    const run = (progressTokens: number) => {
      const random = createSeededRandom(seed);
      const ends: number[] = [];
      const engine = createBlockEngine({
        parameters: { ...smallEngine, maxModelLength: 400, blockCount: 400 },
        observer: { finished: ({ finishedMs }) => ends.push(finishedMs) },
        progressTokens,
      });
      let atMs = 0;
      for (let id = 0; id < 40; id++) {
        const outputTokens = 1 + random.integer(200);
        engine.submit({ id, promptTokens: 8, outputTokens, chain: new Uint32Array(2 * 52).fill(id + 1) }, atMs);
        atMs += 60 * random.float();
        engine.advanceTo(atMs);
        engine.setSlowdown(0.5 + 4 * random.float(), atMs);
        atMs += 60 * random.float();
      }
      for (let at = engine.nextEventMs(); at !== undefined; at = engine.nextEventMs()) engine.advanceTo(at);
      return { ends, stats: engine.stats() };
    };
    expect(run(16)).toEqual(run(1));
  }
});

test("the times of a slower engine, and of nothing else", () => {
  const { parameters } = enginePresets["h100-32b-tp2"];
  expect(slowedSteps(parameters, 2)).toEqual({
    ...{ stepBaseMs: 30, prefillMsPerToken: 0.1314, attentionMsPerTokenPair: 2.66e-6 },
    ...{ decodeMsPerSequence: 0.06, decodeMsPerContextToken: 1.04e-4 },
  });
  expect(slowedSteps({ ...parameters, adapterLoadMs: 7 }, 3).adapterLoadMs).toBe(21);
});
