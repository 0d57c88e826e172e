import { createSeededRandom } from "@espalier/core";
import { createPolicy, maxRotationSlots, type Policy } from "@espalier/policies";
import { expect, test } from "vitest";
import { anyRequest, byKey, type CandidateRow, candidatesOf, idleRows } from "./helpers.ts";

const random = createSeededRandom(3);

function take(policy: Policy, rows: readonly CandidateRow[], times: number): string[] {
  const candidates = candidatesOf(rows);
  return Array.from({ length: times }, () => candidates.key[policy.choose(anyRequest, candidates, random).index]!);
}

const count = (taken: readonly string[], key: string): number => taken.filter((one) => one === key).length;

test("weights 5, 1, 1 give the smooth sequence, not five in a row", () => {
  const rows = [
    { key: "a", weight: 5 },
    { key: "b", weight: 1 },
    { key: "c", weight: 1 },
  ];
  const policy = createPolicy("round_robin");
  const round = take(policy, rows, 7);
  expect(round.map((key) => (key === "a" ? "a" : "-")).join("")).toBe("aa-a-aa");
  expect([count(round, "b"), count(round, "c")]).toEqual([1, 1]);
  expect(take(policy, rows, 7)).toEqual(round);
});

test("equal weights repeat one order for ever", () => {
  const policy = createPolicy("round_robin");
  const round = take(policy, idleRows(7), 7);
  expect(new Set(round).size).toBe(7);
  expect(take(policy, idleRows(7), 21)).toEqual([...round, ...round, ...round]);
});

test("routers that start together do not all start with the same engine", () => {
  const firsts = new Set(Array.from({ length: 20 }, () => take(createPolicy("round_robin"), idleRows(8), 1)[0]));
  expect(firsts.size).toBeGreaterThan(3);
});

test("moving candidates in the list changes nobody's turn", () => {
  const policy = createPolicy("round_robin");
  const rows = idleRows(5);
  const round = take(policy, rows, 5);
  const again = round.map((_, turn) => take(policy, [...rows.slice(turn), ...rows.slice(0, turn)], 1)[0]);
  expect(again).toEqual(round);
});

test("one that leaves for some turns and one that comes leave the rest even", () => {
  const policy = createPolicy("round_robin");
  const rows = idleRows(4);
  const taken = [
    ...take(policy, rows, 6),
    ...take(policy, rows.slice(1), 30),
    ...take(policy, [...rows, { key: "new" }], 50),
  ];
  // 6/4 + 30/3 + 50/5 turns for each of the three that stayed, within one turn of smoothness per change.
  for (const { key } of rows.slice(1)) expect(Math.abs(count(taken, key) - 21.5)).toBeLessThanOrEqual(2);
  expect(Math.abs(count(taken.slice(36), "new") - 10)).toBeLessThanOrEqual(1);
});

test("disjoint pools keep their own order under one policy", () => {
  const policy = createPolicy("round_robin");
  const large = Array.from({ length: 6 }, (_, i) => ({ key: `large-${i}` }));
  const taken: string[] = [];
  for (let turn = 0; turn < 12; turn++) taken.push(...take(policy, idleRows(2), 1), ...take(policy, large, 1));
  for (const { key } of large) expect(count(taken, key)).toBe(2);
  expect([count(taken, "e0"), count(taken, "e1")]).toEqual([6, 6]);
});

test("explain names the next turn and does not take it", () => {
  const policy = createPolicy("round_robin");
  const rows = idleRows(3);
  const candidates = candidatesOf(rows);
  expect(byKey(policy.explain(anyRequest, candidates))).toEqual({ e0: 1 / 3, e1: 1 / 3, e2: 1 / 3 });
  for (let turn = 0; turn < 9; turn++) {
    policy.explain(anyRequest, candidates);
    const explanation = policy.explain(anyRequest, candidates);
    const [key] = take(policy, rows, 1);
    expect(explanation.reason).toBe("rotation");
    expect(byKey(explanation)[key!]).toBeGreaterThan(0.3);
    if (turn > 2) expect(byKey(explanation)[key!]).toBe(1);
  }
});

test("one key past the bound makes it forget the absent ones and nobody else", () => {
  const policy = createPolicy("round_robin");
  const pair = [{ key: "x" }, { key: "y" }];
  const [firstOfPair] = take(policy, pair, 1);
  const many = Array.from({ length: maxRotationSlots - 2 }, (_, i) => ({ key: `k${i}` }));
  const [firstOfMany] = take(policy, many, 1);
  // Exactly at the bound everybody is remembered: the other one of the pair is next for certain.
  const other = firstOfPair === "x" ? "y" : "x";
  expect(byKey(policy.explain(anyRequest, candidatesOf(pair)))[other]).toBe(1);
  take(policy, [...many, { key: "one-more" }], 1);
  expect(byKey(policy.explain(anyRequest, candidatesOf(pair)))).toEqual({ x: 0.5, y: 0.5 });
  expect(byKey(policy.explain(anyRequest, candidatesOf(many)))[firstOfMany!]).toBe(0);
});
