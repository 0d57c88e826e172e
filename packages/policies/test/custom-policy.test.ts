import { createSeededRandom } from "@espalier/core";
import { type CustomPolicy, createCandidateSet, createPolicy } from "@espalier/policies";
import { expect, test } from "vitest";
import { anyRequest, byKey, candidatesOf, ofTokens } from "./helpers.ts";

const custom: Readonly<Record<string, CustomPolicy>> = {
  warm_first: {
    readsPrefixes: true,
    terms: [
      { scorer: "cached_share", weight: -1 },
      { scorer: "requests", weight: 0.05 },
    ],
  },
};

test("named scorers add up to the cost by their weights", () => {
  const policy = createPolicy("warm_first", {}, { custom });
  expect(policy).toMatchObject({ name: "warm_first", readsPrefixes: true });
  const choose = (inFlight: number) =>
    byKey(
      policy.explain(ofTokens(1_000), candidatesOf([{ key: "warm", matchedTokens: 500, inFlight }, { key: "cold" }])),
    );
  expect(choose(9)).toEqual({ warm: 1, cold: 0 });
  expect(choose(11)).toEqual({ warm: 0, cold: 1 });
});

test.each<readonly [string, unknown, string]>([
  [
    "a scorer of no name",
    { terms: [{ scorer: "speed", weight: 1 }] },
    "terms[0].scorer must be { name, score } or one of requests",
  ],
  [
    "a scorer that is no function",
    { terms: [{ scorer: { name: "a" }, weight: 1 }] },
    "terms[0].scorer must be { name, score }",
  ],
  ["a weight that is text", { terms: [{ scorer: "requests", weight: "1" }] }, "terms[0].weight must be a number"],
  ["no terms", {}, "terms must be a list of { scorer, weight }"],
  [
    "a picker of no name",
    { terms: [], picker: "best" },
    "picker must be { pick, explain } or one of least_cost, better_of_two",
  ],
  ["a filter that is none", { terms: [], filters: ["all"] }, "filters must be a list of { name, keep }"],
])("%s is refused with what it should be", (_, mine, message) => {
  const make = () => createPolicy("mine", {}, { custom: { mine: mine as CustomPolicy } });
  expect(make).toThrow(`policy mine: ${message}`);
});

test("it takes no options, and an unknown name lists it among the others", () => {
  expect(() => createPolicy("warm_first", { "load-factor": 2 }, { custom })).toThrow("has no such option");
  expect(() => createPolicy("warm_fist", {}, { custom })).toThrow(/"warm_fist" is not one of random, .*, warm_first$/);
});

test.each<readonly [string, CustomPolicy]>([
  [
    "throws",
    {
      terms: [
        {
          scorer: {
            name: "broken",
            score() {
              throw new Error("no");
            },
          },
          weight: 1,
        },
      ],
    },
  ],
  [
    "names nobody",
    {
      terms: [],
      picker: {
        pick: (_, __, choice) => {
          choice.index = Number.NaN;
        },
        explain: () => {
          throw new Error("no");
        },
      },
    },
  ],
])("where a policy %s, the least loaded is taken, each time, and the failure is failures", (_, mine) => {
  const failures: string[] = [];
  const policy = createPolicy("mine", {}, { custom: { mine }, onFailure: (name) => failures.push(name) });
  const candidates = candidatesOf([{ key: "busy", inFlight: 3 }, { key: "idle" }]);
  for (let turn = 0; turn < 2; turn++) {
    const choice = policy.choose(anyRequest, candidates, createSeededRandom(1));
    expect(choice).toMatchObject({ index: 1, target: 101, reason: "policy_failed" });
  }
  expect(policy.explain(anyRequest, candidates)).toMatchObject({ policy: "mine", reason: "policy_failed" });
  expect(failures).toEqual(["mine", "mine", "mine"]);
  expect(() => policy.choose(anyRequest, createCandidateSet(), createSeededRandom(1))).toThrow(
    expect.objectContaining({ code: "no_engine_available" }),
  );
});
