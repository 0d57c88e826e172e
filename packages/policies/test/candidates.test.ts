import { createCandidateSet, maxCandidates } from "@espalier/policies";
import { expect, test } from "vitest";

test("a candidate starts idle, of weight 1 and without engine signals", () => {
  const set = createCandidateSet(4);
  expect(set.add("e1", 7)).toBe(0);
  expect([set.key[0], set.target[0], set.weight[0], set.inFlight[0], set.decodeTokens[0]]).toEqual(["e1", 7, 1, 0, 0]);
  expect([set.running[0], set.waiting[0], set.kvUse[0], set.signalAgeMs[0]]).toEqual([NaN, NaN, NaN, NaN]);
});

test("a candidate starts without matches, and what its cache holds is unknown", () => {
  const set = createCandidateSet(4);
  set.add("e1", 7);
  const matched = [set.matchedTokens, set.matchedCpuTokens, set.matchedDiskTokens, set.matchedExternalTokens];
  expect(matched.map((column) => column[0])).toEqual([0, 0, 0, 0]);
  expect([set.matchAgeMs[0], set.heldTokens[0]]).toEqual([NaN, NaN]);
});

test("growing doubles the arrays and keeps every entry", () => {
  const set = createCandidateSet(2);
  for (let i = 0; i < 5; i++) {
    const index = set.add(`e${i}`, i * 10);
    set.inFlight[index] = i;
    set.kvUse[index] = i / 10;
    set.matchedDiskTokens[index] = i * 16;
    set.heldTokens[index] = i * 1_000;
  }
  expect(set.capacity).toBe(8);
  expect(set.count).toBe(5);
  expect(set.key.slice(0, 5)).toEqual(["e0", "e1", "e2", "e3", "e4"]);
  expect([...set.target.subarray(0, 5)]).toEqual([0, 10, 20, 30, 40]);
  expect([...set.inFlight.subarray(0, 5)]).toEqual([0, 1, 2, 3, 4]);
  expect([...set.kvUse.subarray(0, 5)]).toEqual([0, 0.1, 0.2, 0.3, 0.4]);
  expect([...set.matchedDiskTokens.subarray(0, 5)]).toEqual([0, 16, 32, 48, 64]);
  expect([...set.heldTokens.subarray(0, 5)]).toEqual([0, 1_000, 2_000, 3_000, 4_000]);
});

test("after a reset nothing of the last request shows, and the memory is kept", () => {
  const set = createCandidateSet(2);
  const index = set.add("old", 1);
  set.inFlight[index] = 9;
  set.running[index] = 9;
  set.weight[index] = 0.5;
  for (const name of [
    "matchedTokens",
    "matchedCpuTokens",
    "matchedExternalTokens",
    "matchAgeMs",
    "heldTokens",
  ] as const) {
    set[name][index] = 512;
  }
  const column = set.inFlight;
  set.reset();
  expect(set.count).toBe(0);
  set.add("new", 2);
  expect([set.key[0], set.inFlight[0], set.running[0], set.weight[0]]).toEqual(["new", 0, NaN, 1]);
  const matched = [set.matchedTokens, set.matchedCpuTokens, set.matchedExternalTokens, set.matchAgeMs, set.heldTokens];
  expect(matched.map((values) => values[0])).toEqual([0, 0, 0, NaN, NaN]);
  expect(set.inFlight).toBe(column);
});

test("one candidate past the bound is refused", () => {
  const set = createCandidateSet(maxCandidates / 2);
  for (let i = 0; i < maxCandidates; i++) set.add("e", i);
  expect(set.count).toBe(maxCandidates);
  expect(() => set.add("e", 0)).toThrow(expect.objectContaining({ code: "internal_error" }));
});
