/** Whether one engine or two serve a request, and who computes its prompt. */
import { createSeededRandom } from "@espalier/core";
import { type CandidateSet, createCandidateSet } from "@espalier/policies";
import { describe, expect, test } from "vitest";
import { createPrefillPolicy, decideSplit, type SplitChoices } from "../../src/disaggregation/index.ts";

const cost = { setupMs: 20, msPerToken: 0.01 };
const bounds = { thresholdTokens: undefined, minTokens: 2_000, maxTokens: 16_000 };
const calm = { running: 0, backlogMs: 0, prefillMsPerToken: 0.1, prefillMsPerTokenPair: 0 };

interface Alone {
  readonly matchedTokens: number;
}
type Choices = SplitChoices<Alone, { readonly pair: string }, "no_prefill_engine">;

function choicesOf(changes: Partial<Choices> = {}): { readonly choices: Choices; readonly asked: string[] } {
  const asked: string[] = [];
  const { whole = () => ({ matchedTokens: 0 }), pair = () => ({ pair: "p d" }), ...rest } = changes;
  const choices: Choices = {
    ...{ promptTokens: 10_000, canServeAlone: true, seenAlone: { ...calm, running: 4 }, seenPrefill: calm },
    ...rest,
    whole() {
      asked.push("whole");
      return whole();
    },
    pair() {
      asked.push("pair");
      return pair();
    },
  };
  return { choices, asked };
}

const decide = (changes?: Partial<Choices>, options: Parameters<typeof decideSplit>[2] = bounds) => {
  const { choices, asked } = choicesOf(changes);
  return { ...decideSplit(choices, cost, options), asked };
};

describe("one engine or two", () => {
  test("two, when answers would stand still for longer than the transfer takes", () => {
    expect(decide()).toMatchObject({ pair: { pair: "p d" }, reason: "threshold", thresholdTokens: 2_000 });
  });

  test("one, when as many answers would stand still at the prefill engine", () => {
    const chosen = decide({ seenPrefill: { ...calm, running: 4 } });
    expect(chosen).toMatchObject({ pair: undefined, whole: { matchedTokens: 0 }, reason: "below_threshold" });
    expect(chosen.thresholdTokens).toBe(16_000);
  });

  test("one, while the prefill engine has more to do", () => {
    // 4 x 0.1 - 0.01 ms a token, against 20 + 4,000 ms: 10,308 tokens.
    const chosen = decide({ seenPrefill: { ...calm, backlogMs: 4_000 } });
    expect(chosen).toMatchObject({ pair: undefined, thresholdTokens: 10_308 });
  });

  test("nobody is asked about a prompt that is too short in any case", () => {
    expect(decide({ promptTokens: 1_999 })).toMatchObject({ pair: undefined, whole: undefined, asked: [] });
  });

  test("what is cached where it would be served alone does not count", () => {
    const cached = decide({ whole: () => ({ matchedTokens: 8_001 }) });
    expect(cached).toMatchObject({ pair: undefined, whole: { matchedTokens: 8_001 }, asked: ["whole"] });
    expect(decide({ whole: () => ({ matchedTokens: 8_000 }) })).toMatchObject({ reason: "threshold" });
  });

  test("without a second engine, the first; with the reason", () => {
    const chosen = decide({ pair: () => "no_prefill_engine" });
    expect(chosen).toMatchObject({ pair: undefined, whole: { matchedTokens: 0 }, reason: "no_prefill_engine" });
    expect(chosen.thresholdTokens).toBeUndefined();
  });

  test("where nobody can serve it alone, any prompt is split", () => {
    const chosen = decide({ canServeAlone: false, promptTokens: 5 });
    expect(chosen).toMatchObject({ reason: "required", asked: ["pair"] });
  });

  test("one that was set counts alone: from 0 on always, from infinity on never", () => {
    const busy = { seenPrefill: { ...calm, backlogMs: 60_000 } };
    expect(decide({ ...busy, promptTokens: 1 }, { ...bounds, thresholdTokens: 0 }).pair).toBeDefined();
    expect(decide(busy, { ...bounds, thresholdTokens: 10_000 }).pair).toBeDefined();
    expect(decide(busy, { ...bounds, thresholdTokens: 10_001 }).pair).toBeUndefined();
    expect(decide({}, { ...bounds, thresholdTokens: Number.POSITIVE_INFINITY }).pair).toBeUndefined();
  });
});

describe("who prefills for another engine", () => {
  const policy = createPrefillPolicy();
  const request = { promptTokens: 10_000, expectedOutputTokens: 100, sessionKey: undefined, prefixKey: undefined };
  type Column =
    | "inFlight"
    | "running"
    | "pendingPrefillTokens"
    | "prefillMsPerToken"
    | "prefillMsPerTokenPair"
    | "backlogMs"
    | "matchedTokens"
    | "weight";
  const candidatesOf = (...all: readonly Partial<Record<Column, number>>[]): CandidateSet => {
    const set = createCandidateSet();
    all.forEach((values, position) => {
      const at = set.add(`t${position}`, position);
      for (const [name, value] of Object.entries(values)) set[name as Column][at] = value;
    });
    return set;
  };
  const costs = (set: CandidateSet) => policy.explain(request, set).candidates.map(({ cost }) => cost);

  test("its costs, in milliseconds: what waits, the prompt, and a tenth of it for each answer that stands still", () => {
    const set = candidatesOf(
      {},
      { inFlight: 4 },
      { running: 5, inFlight: 4 },
      { backlogMs: 300, prefillMsPerToken: 0.05 },
      { pendingPrefillTokens: 1_000 },
      { matchedTokens: 9_000 },
      { prefillMsPerToken: 0.1, prefillMsPerTokenPair: 2e-5 },
      { weight: 2 },
    );
    const expected = [1_000, 1_400, 1_500, 800, 1_100, 100, 2_000, 500];
    expect(costs(set)).toEqual(expected.map((ms) => expect.closeTo(ms, 6)));
  });

  test("an engine that answers nobody is taken, unless too much waits there", () => {
    const choose = (backlogMs: number) =>
      policy.choose(request, candidatesOf({ inFlight: 10, backlogMs: 0 }, { backlogMs }), createSeededRandom(1)).target;
    expect([choose(0), choose(999), choose(1_001)]).toEqual([1, 1, 0]);
  });

  test("costs rise with answers and with what waits, fall with what is cached (seed 4)", () => {
    const random = createSeededRandom(4);
    for (let round = 0; round < 300; round++) {
      const one = {
        inFlight: random.integer(50),
        backlogMs: random.float() * 5_000,
        matchedTokens: random.integer(9_000),
        prefillMsPerToken: 0.01 + random.float(),
        prefillMsPerTokenPair: random.float() * 1e-5,
      };
      const [here, busier, later, colder] = costs(
        candidatesOf(
          one,
          { ...one, inFlight: one.inFlight + 1 },
          { ...one, backlogMs: one.backlogMs + 1 },
          { ...one, matchedTokens: one.matchedTokens / 2 },
        ),
      ) as [number, number, number, number];
      expect(busier).toBeGreaterThan(here);
      expect(later).toBeGreaterThan(here);
      expect(colder).toBeGreaterThanOrEqual(here);
    }
  });
});
