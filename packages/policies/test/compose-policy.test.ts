import { createSeededRandom } from "@espalier/core";
import {
  betterOfTwo,
  composePolicy,
  createLeastCostPicker,
  createPolicy,
  type Filter,
  hashString,
  type Picker,
  policyNames,
  requestLoad,
  type Scorer,
  weightedOnly,
} from "@espalier/policies";
import { describe, expect, test } from "vitest";
import { anyRequest, byKey, candidatesOf, idleRows, inSession } from "./helpers.ts";

const random = createSeededRandom(9);

/** A scorer over a feature that the candidate set does not carry, looked up by key. */
const lookup = (name: string, values: Readonly<Record<string, number>>): Scorer => ({
  name,
  score({ candidates, eligible, eligibleCount }, out) {
    for (const index of eligible.subarray(0, eligibleCount)) out[index] = values[candidates.key[index]!]!;
  },
});
const keepKeys = (name: string, keys: readonly string[]): Filter => ({
  name,
  keep({ candidates, eligible, eligibleCount }) {
    let kept = 0;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      if (keys.includes(candidates.key[index]!)) eligible[kept++] = index;
    }
    return kept;
  },
});

describe("terms", () => {
  const matched = lookup("matched", { e0: 0.9, e1: 0.1, e2: 0.9 });

  test("a picker sees what each scorer wrote, and an explanation what a scorer's numbers are made of", () => {
    const seen: number[][] = [];
    const looking: Picker = {
      pick({ scores }, _, choice) {
        seen.push(scores.map((values) => values[1]!));
        choice.index = 1;
        choice.reason = "random";
      },
      explain: () => ({ reason: "random" }),
    };
    const half = lookup("half", { e0: 1, e1: 2 });
    const doubled: Scorer = { ...lookup("doubled", { e0: 2, e1: 4 }), parts: [half] };
    const policy = composePolicy({
      name: "random",
      filters: [],
      terms: [
        { scorer: doubled, weight: 10 },
        { scorer: matched, weight: -3 },
      ],
      picker: looking,
    });
    policy.choose(anyRequest, candidatesOf(idleRows(2)), random);
    expect(seen).toEqual([[4, 0.1]]);
    const [first, second] = policy.explain(anyRequest, candidatesOf(idleRows(2))).candidates;
    expect(first!.terms).toEqual({ doubled: 20, half: 1, matched: expect.closeTo(-2.7, 9) });
    expect(second!.terms).toEqual({ doubled: 40, half: 2, matched: expect.closeTo(-0.3, 9) });
    expect(second!.cost).toBeCloseTo(39.7, 9);
  });

  test("a weighted sum with a merit: a long match outweighs one request, not four", () => {
    const policy = composePolicy({
      name: "least_connections",
      filters: [],
      terms: [
        { scorer: requestLoad, weight: 1 },
        { scorer: matched, weight: -3 },
      ],
      picker: createLeastCostPicker(),
    });
    const at = (e0: number, e2: number) =>
      candidatesOf([{ key: "e0", inFlight: e0 }, { key: "e1" }, { key: "e2", inFlight: e2 }]);
    expect(policy.choose(anyRequest, at(1, 4), random).index).toBe(0);
    expect(policy.choose(anyRequest, at(4, 5), random).index).toBe(1);
    const { candidates, weights } = policy.explain(anyRequest, at(1, 4));
    const [first] = candidates;
    expect(weights).toEqual({ requests: 1, matched: -3 });
    expect(first!.scores).toEqual({ requests: 2, matched: 0.9 });
    expect(first!.terms.requests).toBe(2);
    expect(first!.terms.matched).toBeCloseTo(-2.7);
    expect(first!.cost).toBeCloseTo(-0.7);
  });

  test("what cannot be judged is the last resort, and is explained as such", () => {
    const policy = composePolicy({
      name: "least_tokens",
      filters: [],
      terms: [{ scorer: lookup("rate", { e0: Number.NaN, e1: 8, e2: 9 }), weight: 1 }],
      picker: createLeastCostPicker(),
    });
    const three = candidatesOf(idleRows(3));
    expect(policy.choose(anyRequest, three, random).index).toBe(1);
    expect(policy.explain(anyRequest, three).candidates[0]).toMatchObject({ cost: null, terms: { rate: null } });
    const unknown = composePolicy({
      name: "least_tokens",
      filters: [],
      terms: [{ scorer: lookup("rate", { e0: Number.NaN, e1: Number.NaN }), weight: 1 }],
      picker: betterOfTwo,
    });
    expect(byKey(unknown.explain(anyRequest, candidatesOf(idleRows(2))))).toEqual({ e0: 0.5, e1: 0.5 });
  });
});

describe("filters", () => {
  const policyWith = (...filters: Filter[]) =>
    composePolicy({
      name: "least_connections",
      filters,
      terms: [{ scorer: requestLoad, weight: 1 }],
      picker: createLeastCostPicker(),
    });

  test("they narrow one after the other, and scorers and pickers see only what is left", () => {
    const policy = policyWith(keepKeys("match", ["e1", "e2", "e3"]), keepKeys("near", ["e2", "e3", "e0"]));
    const candidates = candidatesOf([
      { key: "e0" },
      { key: "e1" },
      { key: "e2", inFlight: 9 },
      { key: "e3", inFlight: 8 },
    ]);
    expect(policy.choose(anyRequest, candidates, random)).toMatchObject({ index: 3, reason: "least_load" });
    const explanation = policy.explain(anyRequest, candidates);
    expect(explanation.candidates.map((one) => one.eligible)).toEqual([false, false, true, true]);
    expect(explanation.candidates[0]).toMatchObject({ probability: 0, cost: null, terms: {} });
  });

  test("one that would leave nobody is passed over", () => {
    const policy = policyWith(keepKeys("nobody", []), keepKeys("match", ["e1"]));
    const candidates = candidatesOf(idleRows(3));
    expect(policy.choose(anyRequest, candidates, random)).toMatchObject({ index: 1, reason: "only_candidate" });
    expect(policy.explain(anyRequest, candidates).reason).toBe("only_candidate");
  });

  test("candidates of weight 0 are taken when there are no others, and count alike", () => {
    const policy = policyWith(weightedOnly);
    const rows = [
      { key: "a", weight: 0, inFlight: 1 },
      { key: "b", weight: 0, inFlight: 0 },
    ];
    expect(policy.choose(anyRequest, candidatesOf(rows), random).index).toBe(1);
    expect(
      policy.choose(anyRequest, candidatesOf([...rows, { key: "c", weight: 0.1, inFlight: 50 }]), random).index,
    ).toBe(2);
  });
});

describe("pickers made elsewhere", () => {
  test("softmax over the cost: explained and drawn with the same probabilities", () => {
    const softmax = (temperature: number): Picker => {
      const write: Picker["explain"] = ({ eligible, eligibleCount, costs }, out) => {
        const places = eligible.subarray(0, eligibleCount);
        const least = Math.min(...places.map((index) => costs[index]!));
        let total = 0;
        for (const index of places) total += out[index] = Math.exp((least - costs[index]!) / temperature);
        for (const index of places) out[index] = out[index]! / total;
        return { reason: "random" };
      };
      return {
        explain: write,
        pick(decision, from, choice) {
          const shares = new Float64Array(decision.costs.length);
          write(decision, shares);
          let left = from.float();
          for (const index of decision.eligible.subarray(0, decision.eligibleCount)) {
            choice.index = index;
            left -= shares[index]!;
            if (left < 0) break;
          }
          choice.reason = "random";
        },
      };
    };
    const policy = composePolicy({
      name: "least_connections",
      filters: [],
      terms: [{ scorer: requestLoad, weight: 1 }],
      picker: softmax(1 / Math.log(2)),
    });
    const candidates = candidatesOf([{ key: "a" }, { key: "b", inFlight: 1 }, { key: "c", inFlight: 2 }]);
    expect(byKey(policy.explain(anyRequest, candidates)).a).toBeCloseTo(4 / 7);
    let first = 0;
    for (let draw = 0; draw < 7_000; draw++) if (policy.choose(anyRequest, candidates, random).index === 0) first += 1;
    expect(Math.abs(first - 4_000)).toBeLessThan(140);
  });

  test("ties by a second measure, then by rendezvous: routers with the same view agree", () => {
    const bias: Scorer = {
      name: "rendezvous",
      score({ request, candidates, eligible, eligibleCount }, out) {
        for (const index of eligible.subarray(0, eligibleCount)) {
          out[index] = hashString(`${request.sessionKey}/${candidates.key[index]}`, 0) / 2 ** 32;
        }
      },
    };
    const make = () =>
      composePolicy({
        name: "least_connections",
        filters: [],
        terms: [
          { scorer: requestLoad, weight: 1_000 },
          { scorer: bias, weight: 1 },
        ],
        picker: createLeastCostPicker(),
      });
    const candidates = candidatesOf([...idleRows(6), { key: "busy", inFlight: 1 }]);
    const chosen = new Set<number>();
    for (let i = 0; i < 60; i++) {
      const { index } = make().choose(inSession(`s${i}`), candidates, random);
      expect(make().choose(inSession(`s${i}`), candidates, createSeededRandom(i)).index).toBe(index);
      chosen.add(index);
    }
    expect([...chosen].sort()).toEqual([0, 1, 2, 3, 4, 5]);
  });
});

test.each(policyNames)("%s decides between sets of different sizes in turn", (name) => {
  const policy = createPolicy(name);
  for (const size of [3, 40, 2, 700, 5]) {
    const candidates = candidatesOf(idleRows(size));
    for (let i = 0; i < 20; i++) {
      const { index, target } = policy.choose(inSession(`s${i}`), candidates, random);
      expect(index).toBeLessThan(size);
      expect(target).toBe(100 + index);
    }
  }
});
