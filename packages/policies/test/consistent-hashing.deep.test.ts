import { createSeededRandom } from "@espalier/core";
import {
  type CandidateSet,
  createHashRing,
  createPolicy,
  maxIdlePoints,
  maxPointsPerCandidate,
  type Policy,
} from "@espalier/policies";
import { describe, expect, test } from "vitest";
import { anyRequest, byKey, type CandidateRow, candidatesOf, chiSquareExcess, idleRows, inSession } from "./helpers.ts";

const random = createSeededRandom(5);
const sessions = (count: number): string[] => Array.from({ length: count }, (_, i) => `session-${i}`);
const unbounded = () => createPolicy("consistent_hashing", { "load-factor": 0 });

function home(policy: Policy, candidates: CandidateSet, session: string): string {
  return candidates.key[policy.choose(inSession(session), candidates, random).index]!;
}

function homes(policy: Policy, rows: readonly CandidateRow[], count: number): string[] {
  const candidates = candidatesOf(rows);
  return sessions(count).map((session) => home(policy, candidates, session));
}

describe("the ring", () => {
  test("a session stays with its engine, in every router and in whatever order the candidates come", () => {
    const rows = idleRows(9);
    const first = homes(createPolicy("consistent_hashing"), rows, 300);
    expect(homes(createPolicy("consistent_hashing"), [...rows].reverse(), 300)).toEqual(first);
    expect(new Set(first).size).toBe(9);
  });

  test("homes are part of the contract between versions: these sessions live here", () => {
    const rows = [{ key: "http://10.0.0.1:8000" }, { key: "http://10.0.0.2:8000" }, { key: "http://10.0.0.3:8000" }];
    const places = homes(createPolicy("consistent_hashing"), rows, 8).map((key) => Number(key.slice(14, 15)));
    expect(places).toMatchInlineSnapshot(`
      [
        2,
        2,
        3,
        2,
        2,
        1,
        1,
        1,
      ]
    `);
  });

  test("removing one of the engines moves only its sessions", () => {
    const rows = idleRows(10);
    const before = homes(unbounded(), rows, 2_000);
    const after = homes(unbounded(), rows.slice(1), 2_000);
    for (const [i, key] of before.entries()) if (key !== "e0") expect(after[i]).toBe(key);
    const moved = after.filter((_, i) => before[i] === "e0");
    expect(new Set(moved).size).toBe(9);
  });

  test("adding an engine moves sessions only to it, about its share", () => {
    const rows = idleRows(9);
    const before = homes(unbounded(), rows, 3_000);
    const after = homes(unbounded(), [...rows, { key: "new" }], 3_000);
    const moved = after.filter((key, i) => key !== before[i]);
    expect(new Set(moved)).toEqual(new Set(["new"]));
    expect(Math.abs(moved.length / 3_000 - 0.1)).toBeLessThan(0.04);
  });

  test("a raised weight moves sessions only to that engine, a lowered one only away from it", () => {
    const policy = unbounded();
    const at = (weight: number) => homes(policy, [{ key: "a", weight }, ...idleRows(4)], 2_000);
    const one = at(1);
    const two = at(2);
    for (const [i, key] of two.entries()) if (key !== one[i]) expect(key).toBe("a");
    const share = two.filter((key) => key === "a").length / 2_000;
    expect(Math.abs(share - 2 / 6)).toBeLessThan(0.05);
    const half = at(0.5);
    for (const [i, key] of half.entries()) if (key !== one[i]) expect(one[i]).toBe("a");
    expect(at(1)).toEqual(one);
  });

  test("a policy that has seen engines come and go places sessions as a fresh one does", () => {
    const worn = unbounded();
    for (let step = 0; step < 30; step++) {
      const rows = Array.from({ length: 6 }, (_, i) => ({ key: `e${(step * 5 + i) % 40}`, weight: 1 + (step % 3) }));
      expect(homes(worn, rows, 60)).toEqual(homes(unbounded(), rows, 60));
    }
  });

  test("sessions spread over 16 engines within what 160 points allow", () => {
    const counts = new Map<string, number>();
    for (const key of homes(unbounded(), idleRows(16), 32_000)) counts.set(key, (counts.get(key) ?? 0) + 1);
    // The share of an engine with 160 points has a relative deviation of 1/sqrt(160) = 8 %.
    for (const count of counts.values()) expect(Math.abs(count / 2_000 - 1)).toBeLessThan(0.28);
  });

  test("with many points a share approaches its weight", () => {
    const policy = createPolicy("consistent_hashing", { "load-factor": 0, "points-per-weight": 4_096 });
    const counts = [0, 0, 0];
    const rows = [{ key: "a" }, { key: "b" }, { key: "c", weight: 2 }];
    for (const key of homes(policy, rows, 40_000)) counts["abc".indexOf(key)]! += 1;
    const expected = [10_000, 10_000, 20_000];
    for (const [i, count] of counts.entries()) expect(Math.abs(count / expected[i]! - 1)).toBeLessThan(0.06);
  });
});

describe("the load bound", () => {
  const policy = createPolicy("consistent_hashing");
  const rows = idleRows(4);
  const session = "some-session";
  const ordered = (() => {
    const explanation = policy.explain(inSession(session), candidatesOf(rows));
    return [...explanation.candidates].sort((a, b) => a.terms.walk_order! - b.terms.walk_order!).map((one) => one.key);
  })();
  const choose = (loads: readonly number[]) => {
    const candidates = candidatesOf(ordered.map((key, i) => ({ key, inFlight: loads[i]! })));
    const choice = policy.choose(inSession(session), candidates, random);
    return [ordered.indexOf(candidates.key[choice.index]!), choice.reason];
  };

  // The bound is ceil(1.25 x (total + 1) / 4): 20 in flight give 7, 24 give 8, 0 give 1.
  test.each([
    [[0, 0, 0, 0], 0, "hash"],
    [[6, 5, 5, 4], 0, "hash"],
    [[7, 6, 4, 3], 1, "hash_overflow"],
    [[7, 7, 4, 2], 2, "hash_overflow"],
    [[8, 8, 8, 0], 3, "hash_overflow"],
    [[1, 0, 0, 0], 1, "hash_overflow"],
  ] as const)("with %j in flight along the walk, number %i is taken by %s", (loads, place, reason) => {
    expect(choose(loads)).toEqual([place, reason]);
  });

  test("requests of other clients fill an engine too", () => {
    const candidates = candidatesOf(
      ordered.map((key, i) => ({ key, running: i === 0 ? 9 : 0, waiting: 0, inFlightAtSignal: 0, signalAgeMs: 10 })),
    );
    expect(policy.choose(inSession(session), candidates, random).reason).toBe("hash_overflow");
  });

  test("filling engines one request at a time never takes one above its bound", () => {
    const candidates = candidatesOf(idleRows(7));
    for (const [total, one] of sessions(400).entries()) {
      const { index } = policy.choose(inSession(one), candidates, random);
      candidates.inFlight[index]! += 1;
      expect(candidates.inFlight[index]!).toBeLessThanOrEqual(Math.ceil((1.25 * (total + 1)) / 7));
    }
  });

  test("an engine of weight 2 has twice the bound", () => {
    const weighted = candidatesOf([{ key: "a", weight: 2 }, { key: "b" }]);
    weighted.inFlight[0] = 5;
    const explanation = policy.explain(inSession(session), weighted);
    expect(explanation.candidates.map((one) => one.terms.load_bound)).toEqual([5, 3]);
  });

  test("a load factor of 0 removes the bound", () => {
    const overloaded = candidatesOf(ordered.map((key, i) => ({ key, inFlight: i === 0 ? 1_000 : 0 })));
    expect(home(unbounded(), overloaded, session)).toBe(ordered[0]);
  });
});

test.each([undefined, ""])("a request with session key %j goes to the least loaded", (sessionKey) => {
  const policy = createPolicy("consistent_hashing");
  const candidates = candidatesOf([
    { key: "a", inFlight: 2 },
    { key: "b", inFlight: 1 },
    { key: "c", inFlight: 1 },
  ]);
  const request = { ...anyRequest, sessionKey };
  const { index, reason } = policy.choose(request, candidates, random);
  expect([1, 2]).toContain(index);
  expect(reason).toBe("no_session_key");
  expect(byKey(policy.explain(request, candidates))).toEqual({ a: 0, b: 0.5, c: 0.5 });
});

describe("bounds", () => {
  test("a weight past the most points counts like the weight that reaches them", () => {
    const policy = unbounded();
    const limit = maxPointsPerCandidate / 160;
    const at = (weight: number) =>
      homes(
        policy,
        [
          { key: "a", weight },
          { key: "b", weight: 30 },
        ],
        500,
      );
    expect(at(limit * 2)).toEqual(at(limit));
    expect(at(limit * 2)).not.toEqual(at(limit / 8));
  });

  test("engines that never come back leave the ring once it is past its bound, and only then", () => {
    const ring = createHashRing(160);
    const generation = (number: number) => {
      const candidates = candidatesOf(Array.from({ length: 64 }, (_, i) => ({ key: `pod-${number}-${i}` })));
      const eligible = Int32Array.from({ length: 64 }, (_, i) => i);
      const costs = new Float64Array(64);
      const filteredBy = new Uint8Array(64);
      ring.enter({ request: inSession("x"), candidates, eligible, eligibleCount: 64, filteredBy, costs, scores: [] });
      return ring.size;
    };
    const points = 64 * 160;
    const kept = Math.floor(maxIdlePoints / points) + 1;
    for (let number = 0; number < kept; number++) expect(generation(number)).toBe((number + 1) * points);
    expect(generation(kept - 1)).toBe(kept * points);
    expect(generation(kept)).toBe(points);
    for (let number = 0; number < 100; number++) expect(generation(number)).toBeLessThanOrEqual(kept * points);
  });

  test("after that, sessions live where a fresh policy places them", () => {
    const worn = unbounded();
    for (let number = 0; number < 9; number++) {
      const rows = Array.from({ length: 64 }, (_, i) => ({ key: `pod-${number}-${i}` }));
      expect(homes(worn, rows, 40)).toEqual(homes(unbounded(), rows, 40));
    }
  });
});

test("a ring too large to sort in one go is the same as one that grew", () => {
  const heaviest = maxPointsPerCandidate / 160;
  const rows = Array.from({ length: 2 ** 21 / maxPointsPerCandidate + 1 }, (_, i) => ({
    key: `e${i}`,
    weight: heaviest,
  }));
  const grown = unbounded();
  homes(grown, rows.slice(60), 1);
  expect(homes(grown, rows, 300)).toEqual(homes(unbounded(), rows, 300));
});

test("session keys spread over the ring evenly whatever they look like", () => {
  const counts = new Map<string, number>();
  const policy = createPolicy("consistent_hashing", { "load-factor": 0, "points-per-weight": 4_096 });
  const candidates = candidatesOf(idleRows(4));
  for (let i = 0; i < 8_000; i++) {
    const key = home(policy, candidates, `user@example.org/${i}`);
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  // Against the shares the ring really has, taken from other keys, so that only the keys are tested.
  const shares = new Map<string, number>();
  for (let i = 0; i < 80_000; i++) {
    const key = home(policy, candidates, `${i * 7919}-conversation`);
    shares.set(key, (shares.get(key) ?? 0) + 0.1);
  }
  const keys = [...shares.keys()];
  expect(
    chiSquareExcess(
      keys.map((key) => counts.get(key)!),
      keys.map((key) => shares.get(key)!),
    ),
  ).toBeLessThan(1.2);
});
