import { describe, expect, test } from "vitest";
import { HotPrefixes } from "../../src/rivals/dualmap.ts";
import { requestOf } from "../fleet/requests.ts";
import { createRivalRig } from "./rival-rig.ts";

/** Eight tokens a millisecond, so that 40,000 tokens take the five seconds of the objective. */
const rig = (engines: number, routers = 1) => createRivalRig({ name: "dualmap", perRegion: [engines], routers });

const enginesOf = (outcomes: readonly { readonly engine: number }[]): readonly number[] =>
  outcomes.map(({ engine }) => engine);

test("prompts with the same first 512 tokens go to one of two engines, whichever scheduler has them", () => {
  const { send, ask, time, outcomes } = rig(8, 4);
  for (let session = 0; session < 30; session++) send({ session, promptTokens: 8_000, sharedTokens: 512 });
  time.advance(60_000);
  expect(outcomes).toHaveLength(30);
  expect(new Set(enginesOf(outcomes)).size).toBe(2);
  const own = Array.from({ length: 30 }, (_, at) => ask({ session: 100 + at, promptTokens: 640, sharedTokens: 480 }));
  expect(new Set(own).size).toBeGreaterThan(4);
});

test("an engine that has the prompt keeps it while its first token keeps the objective, and then the other takes it", () => {
  const { send, time, outcomes } = rig(8);
  for (let session = 0; session < 6; session++) send({ session, promptTokens: 8_000, sharedTokens: 512 });
  time.advance(60_000);
  const engines = enginesOf(outcomes);
  const counts = [...new Set(engines)].map((engine) => engines.filter((one) => one === engine).length);
  expect(counts.sort()).toEqual([1, 5]);
});

test("engines with as much of the prompt: the one with less to compute", () => {
  const { send, time, outcomes } = rig(2);
  for (let session = 0; session < 6; session++) send({ session, promptTokens: 8_000 });
  time.advance(60_000);
  expect(enginesOf(outcomes).filter((engine) => engine === 0)).toHaveLength(3);
});

test("where neither keeps the objective, what waits moves to its other engine if it is in time there", () => {
  const run = (last: number): readonly number[] => {
    const { send, time, outcomes } = rig(2);
    // One engine computes 30,000 tokens for 3.8 s, the other 8,000 at a time; the last of these waits for 5.8 s at the first.
    send({ session: 0, promptTokens: 30_000 });
    for (let session = 1; session <= 7; session++) send({ session, promptTokens: 8_000 });
    time.advance(2_200);
    send({ session: 8, promptTokens: last });
    time.advance(120_000);
    expect(outcomes.map(({ error }) => error)).toEqual(Array(9).fill(undefined));
    const engines = enginesOf(outcomes);
    return [0, 1].map((engine) => engines.filter((one) => one === engine).length).sort();
  };
  // A short prompt finds an engine that keeps the objective: it goes there, and nothing moves.
  expect(run(160)).toEqual([3, 6]);
  // A long one finds none. It goes where least waits as well, and so does what waited longest.
  expect(run(17_000)).toEqual([2, 7]);
});

test("a scheduler remembers as much of an engine as fits in its memory, the latest", () => {
  const { ask, outcomes } = rig(2);
  const predicted = (session: number): number => {
    ask({ session, promptTokens: 8_000 });
    return outcomes.at(-1)!.predictedTokens;
  };
  expect([predicted(0), predicted(0)]).toEqual([0, 8_000]);
  // Both engines have room for 32,000 tokens.
  for (let session = 1; session <= 12; session++) expect(predicted(session)).toBe(0);
  expect([predicted(12), predicted(0), predicted(0)]).toEqual([8_000, 0, 8_000]);
});

test("an engine that is down fails the request", () => {
  const { send, kill, time, outcomes } = rig(2);
  kill(0);
  kill(1);
  send({ promptTokens: 640 });
  time.advance(1_000);
  expect(outcomes[0]).toMatchObject({ engine: -1, error: "no engine is available" });
});

describe("beginnings that many prompts share", () => {
  const prompt = (index: number, shape: { readonly sharedTokens: number; readonly promptTokens?: number }) =>
    requestOf({ index, promptTokens: 1_600, ...shape });

  test("a hash covers 512 tokens, and more once more than two requests for each engine share them", () => {
    const prefixes = new HotPrefixes(8);
    const names = Array.from({ length: 200 }, (_, index) =>
      prefixes.add(prompt(index, { sharedTokens: index % 3 === 0 ? 528 : 0 })),
    );
    const hot = names.filter((_, index) => index % 3 === 0);
    expect(new Set(hot.slice(0, 34)).size).toBe(1);
    expect(new Set(hot.slice(-20)).size).toBe(20);
    const fewer = new HotPrefixes(4);
    const same = Array.from({ length: 200 }, (_, index) =>
      fewer.add(prompt(index, { sharedTokens: index % 3 === 0 ? 528 : 0 })),
    );
    expect(new Set(same.filter((_, index) => index % 3 === 0)).size).toBe(1);
  });

  test("the latest thousand requests count: a beginning that nobody shares any more gets its short hash again", () => {
    const prefixes = new HotPrefixes(8);
    const shared = (index: number) => prefixes.add(prompt(index, { sharedTokens: 528 }));
    for (let index = 0; index < 150; index++) shared(index);
    expect(shared(150)).not.toBe(shared(151));
    for (let index = 152; index < 1_200; index++) prefixes.add(prompt(index, { sharedTokens: 0 }));
    const short = shared(1_200);
    expect(shared(1_201)).toBe(short);
  });

  test("a short prompt is named by its last full block, one without any by itself", () => {
    const prefixes = new HotPrefixes(8);
    const named = (index: number, promptTokens: number) =>
      prefixes.add(prompt(index, { sharedTokens: promptTokens, promptTokens }));
    expect(named(0, 160)).toBe(named(1, 160));
    expect(named(2, 10)).not.toBe(named(3, 10));
  });
});
