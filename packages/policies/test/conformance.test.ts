import {
  type CustomPolicy,
  composeCustomPolicy,
  createPolicy,
  type Policy,
  policyNames,
  type Scorer,
} from "@espalier/policies";
import { ConformanceError, checkPolicy } from "@espalier/policies/conformance";
import { randomRuns } from "@espalier/testing";
import { expect, test } from "vitest";

test.each(policyNames)("%s passes", (name) => {
  checkPolicy(() => createPolicy(name), { runs: randomRuns(400), maxChoiceMs: 20 });
});

const queue: Scorer = {
  name: "queue",
  score({ candidates, eligible, eligibleCount }, out) {
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      out[index] = candidates.waiting[index] || 0;
    }
  },
};
const shortQueue: CustomPolicy = {
  terms: [
    { scorer: queue, weight: 1 },
    { scorer: "requests", weight: 0.1 },
  ],
};
const compose = (custom: CustomPolicy) => (): Policy => composeCustomPolicy("mine", custom);
const chosen = (pick: (count: number) => number): CustomPolicy => ({
  terms: [],
  picker: {
    pick(decision, _, choice) {
      choice.index = pick(decision.eligibleCount);
      choice.reason = "random";
    },
    explain({ eligible, eligibleCount }, out) {
      for (const index of eligible.subarray(0, eligibleCount)) out[index] = 1 / eligibleCount;
      return { reason: "random" };
    },
  },
});

test.each(["least_cost", "better_of_two"] as const)("a custom policy with the picker %s passes", (picker) => {
  checkPolicy(compose({ ...shortQueue, picker }), { maxChoiceMs: 20 });
});

test("a custom policy with readsPrefixes reads what caches hold", () => {
  const terms = [{ scorer: "uncached_tokens", weight: 1 }] as const;
  checkPolicy(compose({ readsPrefixes: true, terms }), { maxChoiceMs: 20 });
});

let calls = 0;
test.each<readonly [string, CustomPolicy, RegExp]>([
  ["chooses nobody", chosen((count) => count), /chooses \d+ of \d+ candidates/],
  ["ignores weights", { ...chosen(() => 0) }, /which has weight 0/],
  ["has a memory of its own", chosen((count) => calls++ % count), /with the same random numbers|weight 0|no chance/],
  [
    "writes into the candidates",
    { terms: [{ scorer: { name: "w", score: ({ candidates }) => void candidates.waiting.fill(1) }, weight: 1 }] },
    /changes the candidates/,
  ],
  // Symptom: each engine counted as cold, and the choice was random. Mechanism: nobody looks prompts up for such a policy.
  [
    "names a scorer of cached tokens without readsPrefixes",
    { terms: [{ scorer: "uncached_tokens", weight: 1 }] },
    /reads candidates\.matchedTokens, .*; set its `readsPrefixes: true`/,
  ],
  [
    "reads cached tokens itself without readsPrefixes",
    {
      terms: [
        {
          scorer: {
            name: "warm",
            score: ({ candidates: { count, matchedTokens } }, out) => void out.set(matchedTokens.subarray(0, count)),
          },
          weight: -1,
        },
      ],
    },
    /reads candidates\.matchedTokens; set its/,
  ],
  [
    "reads the prompt's beginning without readsPrefixes",
    {
      terms: [
        { scorer: { name: "key", score: ({ request }, out) => void out.fill(request.prefixKey ?? 0) }, weight: 1 },
      ],
    },
    /reads request\.prefixKey; set its/,
  ],
  [
    "cannot do without signals",
    {
      terms: [
        {
          scorer: {
            name: "strict",
            score({ candidates, eligibleCount }) {
              if (eligibleCount > 1 && Number.isNaN(candidates.waiting[0])) throw new Error("waiting is unknown");
            },
          },
          weight: 1,
        },
      ],
    },
    /throws waiting is unknown \(run 0, seed 1\)/,
  ],
])("a policy that %s does not", (_, custom, message) => {
  expect(() => checkPolicy(compose(custom))).toThrow(ConformanceError);
  expect(() => checkPolicy(compose(custom))).toThrow(message);
});

test("a policy that is slow does not, and says by how much", () => {
  let nowMs = 0;
  const clock = { nowMs: () => (nowMs += 400), wallMs: () => nowMs };
  const check = (maxChoiceMs: number) => () => checkPolicy(compose(shortQueue), { runs: 1, clock, maxChoiceMs });
  expect(check(2)).not.toThrow();
  expect(check(1.9)).toThrow("a choice among 64 candidates takes 2.000 ms, more than 1.9");
});

test("the same seed draws the same sets", () => {
  const broken = chosen((count) => count - 1);
  const messageOf = (seed: number) => {
    try {
      checkPolicy(compose(broken), { seed });
    } catch (error) {
      return String(error);
    }
    return "passes";
  };
  expect(messageOf(3)).toBe(messageOf(3));
  expect(messageOf(3)).toContain("seed 3");
});
