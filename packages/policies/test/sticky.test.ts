import { createSeededRandom } from "@espalier/core";
import { createPolicy, type RequestFeatures } from "@espalier/policies";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { anyRequest, boundTo, byKey, type CandidateRow, candidatesOf, idleRows, inSession } from "./helpers.ts";

const random = createSeededRandom(9);

function decide(
  rows: readonly CandidateRow[],
  request: RequestFeatures,
  options: Readonly<Record<string, number>> = {},
): readonly [string, string] {
  const candidates = candidatesOf(rows);
  const { index, reason } = createPolicy("sticky", options).choose(request, candidates, random);
  return [candidates.key[index]!, reason];
}

/** The work of e0 is the least. */
const rows: readonly CandidateRow[] = [
  { key: "e0", pendingPrefillTokens: 100 },
  { key: "e1", pendingPrefillTokens: 5_000, inFlight: 3 },
  { key: "e2", pendingPrefillTokens: 900, inFlight: 1 },
];

describe("where a session goes", () => {
  test.each<readonly [string, RequestFeatures, string, string]>([
    ["bound to none: to the least work", inSession("s"), "e0", "session_new"],
    ["bound: there, whatever the work", boundTo("e1"), "e1", "session_bound"],
    ["bound to one that is no candidate: to the least work", boundTo("gone"), "e0", "session_moved"],
    ["without a key: to the least work, bound or not", { ...anyRequest, boundKey: "e1" }, "e0", "no_session_key"],
    ["with an empty key: likewise", { ...boundTo("e1"), sessionKey: "" }, "e0", "no_session_key"],
  ])("%s", (_, request, key, reason) => {
    expect(decide(rows, request)).toEqual([key, reason]);
  });

  test("a match elsewhere does not move it, and decides where it begins or has to move", () => {
    const cached = rows.map((row) =>
      row.key === "e2" ? { ...row, pendingPrefillTokens: 0, matchedTokens: 480 } : row,
    );
    expect(decide(cached, boundTo("e1"))).toEqual(["e1", "session_bound"]);
    expect(decide(cached, inSession("s"))).toEqual(["e2", "session_new"]);
    expect(decide(cached, boundTo("gone"))).toEqual(["e2", "session_moved"]);
  });

  test("an engine without weight keeps no sessions while another has one", () => {
    const drained = rows.map((row) => (row.key === "e1" ? { ...row, weight: 0 } : row));
    expect(decide(drained, boundTo("e1"))).toEqual(["e0", "session_moved"]);
  });

  test("where nothing is bound, everything is as with least_work, explanations included", () => {
    const signal = fc.integer({ min: 0, max: 5 });
    const row = fc.record({
      inFlight: signal,
      pendingPrefillTokens: signal.map((n) => n * 200),
      matchedTokens: signal,
    });
    fc.assert(
      fc.property(
        fc.array(row, { minLength: 2, maxLength: 6 }),
        fc.constantFrom(0, 900),
        (some, estimatedPeerTokens) => {
          const candidates = candidatesOf(some.map((one, at) => ({ key: `e${at}`, ...one })));
          const request = { ...inSession("s"), estimatedPeerTokens };
          const own = createPolicy("sticky").explain(request, candidates);
          const { candidates: judged, weights } = createPolicy("least_work").explain(request, candidates);
          expect(own).toEqual({ policy: "sticky", reason: "session_new", candidates: judged, weights });
        },
      ),
    );
  });
});

describe("with fewest-sessions", () => {
  const options = { "fewest-sessions": 1 };
  const sessions = (...counts: readonly number[]): CandidateRow[] =>
    counts.map((count, at) => ({ key: `e${at}`, sessions: count, pendingPrefillTokens: 1_000 * at }));

  test.each<readonly [string, RequestFeatures, string, string]>([
    ["bound to none: to the fewest sessions, whatever the work", inSession("s"), "e2", "session_new"],
    ["bound: there", boundTo("e0"), "e0", "session_bound"],
    ["bound to one that is no candidate: to the fewest", boundTo("gone"), "e2", "session_moved"],
    ["without a key: to the least work", anyRequest, "e0", "no_session_key"],
  ])("%s", (_, request, key, reason) => {
    expect(decide(sessions(4, 3, 2), request, options)).toEqual([key, reason]);
    expect(createPolicy("sticky", options).explain(request, candidatesOf(sessions(4, 3, 2))).reason).toBe(reason);
  });

  test("of as few, the least work decides", () => {
    expect(decide(sessions(3, 2, 2), inSession("s"), options)).toEqual(["e1", "session_new"]);
    expect(byKey(createPolicy("sticky", options).explain(inSession("s"), candidatesOf(sessions(3, 2, 2))))).toEqual({
      ...{ e0: 0, e1: 1, e2: 0 },
    });
  });

  test("an engine of twice the weight has twice the sessions", () => {
    const weighted = (first: number, second: number) =>
      sessions(first, second).map((row, at) => ({ ...row, weight: 2 - at }));
    expect(decide(weighted(4, 2), inSession("s"), options)[0]).toBe("e0");
    expect(decide(weighted(6, 2), inSession("s"), options)[0]).toBe("e1");
  });

  test("a session that leaves an overloaded engine goes to the fewest of those that are not", () => {
    const loaded = sessions(9, 1, 5, 3, 4, 4).map((row, at) => ({ ...row, inFlight: at < 2 ? 30 : 1 }));
    expect(decide(loaded, boundTo("e0"), options)).toEqual(["e3", "session_overflow"]);
  });

  test("only then are sessions counted", () => {
    expect(createPolicy("sticky", options).readsSessions).toBe(true);
    expect(createPolicy("sticky").readsSessions).toBe(false);
  });
});

describe("the load bound", () => {
  const loads = (...inFlight: readonly number[]): CandidateRow[] =>
    inFlight.map((count, at) => ({ key: `e${at}`, inFlight: count, pendingPrefillTokens: count * 100 }));

  // ceil(2 x (requests in flight + 1) / 4), and 8 at least: 15 in flight give 8, 30 give 16, 33 give 17.
  test.each([
    [[7, 0, 0, 8], "session_bound"],
    [[8, 0, 0, 7], "session_overflow"],
    [[15, 5, 5, 5], "session_bound"],
    [[16, 5, 5, 4], "session_overflow"],
    [[16, 6, 6, 5], "session_bound"],
    [[40, 40, 40, 40], "session_bound"],
  ] as const)("with %j in flight the first is left or not: %s", (inFlight, reason) => {
    expect(decide(loads(...inFlight), boundTo("e0"))[1]).toBe(reason);
  });

  test("a session that has to leave goes to the least work among those below their bounds", () => {
    const overloaded = [
      { key: "e0", inFlight: 20 },
      { key: "e1", inFlight: 20, matchedTokens: 496 },
      { key: "e2", inFlight: 1, pendingPrefillTokens: 700 },
      { key: "e3", inFlight: 1, pendingPrefillTokens: 300 },
      ...idleRows(8).map(({ key }) => ({ key: `idle-${key}`, pendingPrefillTokens: 4_000 })),
    ];
    // 42 in flight at 12 engines: 8 each.
    expect(decide(overloaded, inSession("s"))).toEqual(["e1", "session_new"]);
    expect(decide(overloaded, boundTo("e0"))).toEqual(["e3", "session_overflow"]);
  });

  test("where only one is below its bound, it is that one", () => {
    const options = { "session-load-factor": 1, "session-free-requests": 0 };
    expect(decide(loads(3, 2), boundTo("e0"), options)).toEqual(["e1", "session_overflow"]);
    expect(decide(loads(2, 2), boundTo("e0"), options)).toEqual(["e0", "session_bound"]);
  });

  test("an engine of twice the weight has twice the bound, and requests of other clients count", () => {
    const weighted = loads(15, 0, 0).map((row, at) => ({ ...row, weight: at === 0 ? 2 : 1 }));
    expect(decide(weighted, boundTo("e0"))[1]).toBe("session_bound");
    const more = weighted.map((row) => ({ ...row, running: 0, waiting: 0, signalAgeMs: 1, inFlightAtSignal: 0 }));
    more[0]!.running = 16;
    expect(decide(more, boundTo("e0"), { "session-load-factor": 1 })[1]).toBe("session_overflow");
  });

  test("a factor of 0 removes it", () => {
    expect(decide(loads(10_000, 0, 0), boundTo("e0"), { "session-load-factor": 0 })).toEqual(["e0", "session_bound"]);
  });

  test("in any state somebody is below the bound, so that a session never stays where it is not and never is without a place", () => {
    const row = fc.record({ inFlight: fc.integer({ min: 0, max: 60 }), weight: fc.constantFrom(0.5, 1, 2) });
    fc.assert(
      fc.property(fc.array(row, { minLength: 2, maxLength: 9 }), fc.constantFrom(1, 1.25, 2), (some, factor) => {
        const options = { "session-load-factor": factor, "session-free-requests": 0 };
        const state = some.map((one, at) => ({ key: `e${at}`, ...one }));
        const total = some.reduce((sum, { inFlight }) => sum + inFlight, 0);
        const weights = some.reduce((sum, { weight }) => sum + weight, 0);
        const [key, reason] = decide(state, boundTo("e0"), options);
        const { inFlight, weight } = state.find((one) => one.key === key)!;
        expect(inFlight).toBeLessThan(Math.ceil(((factor * (total + 1)) / weights) * weight));
        expect(reason).toBe(key === "e0" ? "session_bound" : "session_overflow");
      }),
    );
  });
});

describe("an explanation", () => {
  const policy = createPolicy("sticky");

  test("says who is bound, and how far everybody is from the bound", () => {
    const explained = policy.explain(boundTo("e1"), candidatesOf(rows));
    expect(explained.reason).toBe("session_bound");
    expect(byKey(explained)).toEqual({ e0: 0, e1: 1, e2: 0 });
    const { bound, load, load_bound, pending_prefill_tokens } = explained.candidates[1]!.terms;
    expect({ bound, load, load_bound, pending_prefill_tokens }).toEqual({
      ...{ bound: 1, load: 3, load_bound: 8 },
      pending_prefill_tokens: 5_000,
    });
    expect(explained.candidates.map(({ terms }) => terms.bound)).toEqual([0, 1, 0]);
  });

  test("of a session that has to leave gives those past their bounds no chance", () => {
    const overloaded = [
      { key: "e0", inFlight: 30 },
      { key: "e1", inFlight: 30 },
      { key: "e2", inFlight: 2 },
      ...idleRows(4).map(({ key }) => ({ key: `idle-${key}`, pendingPrefillTokens: 2_000 })),
    ];
    const explained = policy.explain(boundTo("e0"), candidatesOf(overloaded));
    expect(explained.reason).toBe("session_overflow");
    expect(byKey(explained)).toMatchObject({ e0: 0, e1: 0, e2: 1 });
  });
});
