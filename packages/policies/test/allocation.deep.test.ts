/**
 * A choice allocates nothing in steady state: its arrays live as long as the policy. The heap may still grow by the
 * boxes of numbers that machine code returns, which is why the bound is not 0; one array of a decision is 20 times it.
 */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { createSeededRandom } from "@espalier/core";
import { createPolicy, policyNames } from "@espalier/policies";
import { expect, test } from "vitest";
import { candidatesOf } from "./helpers.ts";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

const candidateCount = 1_000;
const boundBytes = 400;

/** Some candidates of a request differ from those of the next in what they match and how loaded they are. */
const candidates = candidatesOf(
  Array.from({ length: candidateCount }, (_, i) => ({
    key: `e${i}`,
    weight: 1 + (i % 3),
    inFlight: i % 7,
    pendingPrefillTokens: (i * 131) % 4_000,
    decodeTokens: (i * 37) % 9_000,
    matchedTokens: i % 5 === 0 ? (i * 16) % 2_048 : 0,
    matchedCpuTokens: i % 9 === 0 ? 160 : 0,
    heldTokens: 40_000 + ((i * 977) % 9_000),
    ...(i % 4 === 0
      ? {}
      : { running: i % 11, waiting: i % 3, kvUse: (i % 10) / 10, signalAgeMs: 500, inFlightAtSignal: i % 7 }),
  })),
);

const options: Readonly<Record<string, Readonly<Record<string, number>>>> = {
  epp_weighted: { "active-request-weight": 1, "token-load-weight": 1, "no-hit-lru-weight": 1 },
};

function bytesInUse(): number {
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

/**
 * The median of several measurements, each short enough that no collection falls into it as a rule: one that does, or
 * what the rest of the process allocates meanwhile, is not the policy's.
 */
function bytesPerChoice(choose: (turn: number) => void): number {
  const choices = 20;
  const measured: number[] = [];
  for (let attempt = 0; attempt < 15; attempt++) {
    collectGarbage();
    const before = bytesInUse();
    for (let turn = 0; turn < choices; turn++) choose(turn);
    measured.push((bytesInUse() - before) / choices);
  }
  return measured.sort((a, b) => a - b)[7]!;
}

test.each(policyNames)("%s allocates nothing for a choice", (name) => {
  const policy = createPolicy(name, options[name]);
  const random = createSeededRandom(1);
  const session = { sessionKey: "a session", boundKey: "e77" };
  const warm = { promptTokens: 2_048, expectedOutputTokens: 200, prefixKey: 12_345, ...session };
  const cold = { ...warm, promptTokens: 0, sessionKey: undefined, prefixKey: undefined };
  const choose = (turn: number): void => {
    policy.choose(turn % 2 === 0 ? warm : cold, candidates, random);
  };
  for (let turn = 0; turn < 500; turn++) choose(turn);
  expect(bytesPerChoice(choose)).toBeLessThan(boundBytes);
});

test("the measure sees an array as long as the candidates", () => {
  const kept: Float64Array[] = [];
  const bytes = bytesPerChoice(() => {
    kept[0] = new Float64Array(candidateCount);
  });
  expect(bytes).toBeGreaterThan(4 * candidateCount);
});
