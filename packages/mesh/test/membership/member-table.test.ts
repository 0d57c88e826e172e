import { asRouterId } from "@espalier/core";
import { beforeEach, expect, test } from "vitest";
import type { Link } from "../../src/link/link.ts";
import {
  isLater,
  type MemberClaim,
  type MemberRecord,
  MemberTable,
  memberOf,
} from "../../src/membership/member-table.ts";
import { defaultMembershipLimits as limits } from "../../src/membership/membership.ts";

let table: MemberTable;
const link = {} as Link;
const peers = ["p", "q", "r"].map((name) => asRouterId(name));
const peer = peers[0]!;

beforeEach(() => {
  table = new MemberTable(limits);
});

function recordOf(name: string, incarnation: number, more: Partial<MemberRecord> & { epoch?: number } = {}) {
  const { epoch = 1, ...rest } = more;
  const origin = { router: asRouterId(name), epoch };
  return { origin, incarnation, hasLeft: false, isDraining: false, address: "", unreachable: [], links: [], ...rest };
}

const claimOf = (name: string, incarnation: number, state: MemberClaim["state"], epoch = 1): MemberClaim => ({
  origin: { router: asRouterId(name), epoch },
  incarnation,
  state,
});

/** A member that has been alive, with a link or by the word of others. */
function addAlive(name: string, record: Partial<MemberRecord> = {}) {
  table.merge(recordOf(name, 5, record), undefined, 0);
  const entry = table.entries.get(asRouterId(name))!;
  entry.state = table.evaluate(entry, true, 0, 1);
  return entry;
}

test("a later epoch is later whatever the incarnations; of one epoch the higher incarnation is", () => {
  const of = (epoch: number, incarnation: number) => recordOf("a", incarnation, { epoch });
  expect(isLater(of(2, 1), of(1, 9))).toBe(true);
  expect(isLater(of(1, 9), of(2, 1))).toBe(false);
  expect(isLater(of(1, 2), of(1, 1))).toBe(true);
  expect(isLater(of(1, 1), of(1, 1))).toBe(false);
});

test("records are taken when they are later, and never from an earlier epoch", () => {
  expect(table.merge(recordOf("a", 2), undefined, 0)).toBe("news");
  expect(table.merge(recordOf("a", 2), undefined, 0)).toBe("old");
  expect(table.merge(recordOf("a", 1), undefined, 0)).toBe("old");
  expect(table.merge(recordOf("a", 3, { isDraining: true }), undefined, 0)).toBe("news");
  expect(memberOf(table.entries.get(asRouterId("a"))!)).toMatchObject({ isDraining: true, isLinked: false });
  expect(table.merge(recordOf("a", 1, { epoch: 2 }), undefined, 0)).toBe("superseded");
  expect(table.merge(recordOf("a", 9, { epoch: 0 }), undefined, 0)).toBe("old");
  expect(table.of({ router: asRouterId("a"), epoch: 2 })).toBeUndefined();
});

test("the table holds as many members as its bound and no more", () => {
  for (let index = 0; index < limits.maxMembers; index++) {
    expect(table.merge(recordOf(`r${index}`, 1), undefined, 0)).toBe("news");
  }
  expect(table.merge(recordOf("one-more", 1), undefined, 0)).toBe("full");
  expect(table.merge(recordOf("r0", 2), undefined, 0)).toBe("news");
});

test("claims are kept when they are worse or later, not when they are refuted or of a stranger", () => {
  const entry = addAlive("a");
  expect(table.claim(claimOf("x", 5, "down"), peer, 0)).toBe(false);
  expect(table.claim(claimOf("a", 5, "down", 2), peer, 0)).toBe(false);
  expect(table.claim(claimOf("a", 4, "down"), peer, 0)).toBe(false);
  expect(table.claim(claimOf("a", 5, "suspect"), peer, 0)).toBe(true);
  expect(table.claim(claimOf("a", 5, "suspect"), peer, 0)).toBe(false);
  expect(table.claim(claimOf("a", 5, "down"), peer, 0)).toBe(true);
  expect(table.claim(claimOf("a", 5, "suspect"), peer, 0)).toBe(false);
  expect(table.claim(claimOf("a", 6, "suspect"), peer, 0)).toBe(true);
  expect(table.claim(claimOf("a", 5, "down"), peer, 0)).toBe(false);
  table.merge(recordOf("a", 7), undefined, 0);
  expect(entry.claim).toBeUndefined();
});

test("paths lead over links by the word of the nearer router, over answers to probes, and not over who has left", () => {
  addAlive("near", { links: ["middle"] }).link = link;
  addAlive("middle", { links: ["far", "nobody"] });
  addAlive("far");
  addAlive("gone", { hasLeft: true, links: ["behind"] }).link = link;
  addAlive("behind", { links: ["near"] });
  addAlive("vouched", { links: ["beyond"] }).vouchedUntilMs = 100;
  addAlive("beyond");
  expect([...table.reachable(50)].sort()).toEqual(["beyond", "far", "middle", "near", "vouched"]);
  expect([...table.reachable(100)].sort()).toEqual(["far", "middle", "near"]);
});

test("a member without a path is suspect, then down, and stays down until a path leads to it", () => {
  const entry = addAlive("a");
  const evaluate = (isReached: boolean, nowMs: number, scale = 1) => {
    entry.state = table.evaluate(entry, isReached, nowMs, scale);
    return entry.state;
  };
  expect(evaluate(false, 1_000)).toBe("suspect");
  expect(evaluate(false, 1_000 + limits.suspectMs - 1)).toBe("suspect");
  expect(evaluate(true, 3_000)).toBe("alive");
  expect(evaluate(false, 4_000)).toBe("suspect");
  expect(evaluate(false, 4_000 + limits.suspectMs, 1.5)).toBe("suspect");
  expect(evaluate(false, 4_000 + limits.suspectMs)).toBe("down");
  expect(evaluate(false, 4_000 + limits.suspectMs, 4)).toBe("down");
  expect(evaluate(true, 9_000)).toBe("alive");
});

test("signs of death shorten suspicion when they are of the same time, not when they are old", () => {
  for (const [signAtMs, expected] of [
    [10_100, "down"],
    [9_000, "down"],
    [8_999, "suspect"],
  ] as const) {
    for (const sign of ["refused", "claims"] as const) {
      const entry = addAlive(`${sign}-${signAtMs}`);
      if (sign === "refused") entry.refusedAtMs = signAtMs;
      else {
        for (const by of peers) table.claim(claimOf(`${sign}-${signAtMs}`, 5, "down"), by, signAtMs);
      }
      entry.state = table.evaluate(entry, false, 10_000, 1);
      expect(entry.state).toBe("suspect");
      expect(table.evaluate(entry, false, 10_000 + limits.goneMs, 1)).toBe(expected);
    }
  }
});

// Symptom: one router that said of another one that it was down had it taken for dead within 250 ms by whoever had just lost its
// link. Mechanism: one such claim counted as a refused connection does.
test.each([
  [0, limits.suspectMs],
  [1, limits.suspectMs],
  [2, 785],
  [3, limits.goneMs],
  [4, limits.goneMs],
])("found dead by %d others, a member without a path is down after %d ms", (count, limitMs) => {
  const entry = addAlive("a");
  for (let at = 0; at < count; at++) {
    // Who says it again is no further one.
    for (const atMs of [0, 5]) table.claim(claimOf("a", 5, "down"), asRouterId(`p${at}`), atMs);
    table.claim(claimOf("a", 5, "suspect"), asRouterId("q"), 0);
    table.claim(claimOf("a", 5, "down"), undefined, 0);
    table.claim(claimOf("a", 4, "down"), asRouterId("late"), 0);
  }
  expect(table.evaluate(entry, true, 0, 1)).toBe("alive");
  entry.state = table.evaluate(entry, false, 0, 1);
  expect(table.evaluate(entry, false, limitMs - 1, 1)).toBe("suspect");
  expect(table.evaluate(entry, false, limitMs + 1, 1)).toBe("down");
});

test("a refutation gives a member that is down its time again", () => {
  const entry = addAlive("a");
  entry.state = table.evaluate(entry, false, 0, 1);
  for (const by of peers) table.claim(claimOf("a", 5, "down"), by, 0);
  entry.state = table.evaluate(entry, false, 1_000, 1);
  expect(entry.state).toBe("down");
  for (const by of peers) table.claim(claimOf("a", 5, "down"), by, 1_900);
  table.merge(recordOf("a", 6), undefined, 2_000);
  expect(entry.state).toBe("suspect");
  expect(table.evaluate(entry, false, 2_000 + limits.suspectMs - 1, 1)).toBe("suspect");
  expect(table.evaluate(entry, false, 2_000 + limits.suspectMs, 1)).toBe("down");
});

test("members that are down or have left are forgotten in time, and so are records that never had a path", () => {
  const down = addAlive("down");
  down.state = "down";
  const left = addAlive("left");
  left.state = "left";
  const alive = addAlive("alive");
  table.merge(recordOf("stale", 1), undefined, 0);
  const stale = table.entries.get(asRouterId("stale"))!;
  expect(table.evaluate(stale, false, 0, 1)).toBeUndefined();
  for (const entry of [down, left]) {
    expect(table.isForgettable(entry, limits.forgetMs - 1)).toBe(false);
    expect(table.isForgettable(entry, limits.forgetMs)).toBe(true);
  }
  expect(table.isForgettable(alive, 1e9)).toBe(false);
  expect(table.isForgettable(stale, limits.forgetMs)).toBe(false);
  expect(table.isForgettable(stale, limits.forgetMs + limits.suspectMs)).toBe(true);
  left.link = link;
  expect(table.isForgettable(left, 1e9)).toBe(false);
});

test("a goodbye of a router that nobody heard of makes no member, and keeps a stale record from making one", () => {
  table.merge(recordOf("a", 9, { hasLeft: true }), undefined, 0);
  const entry = table.entries.get(asRouterId("a"))!;
  expect(table.evaluate(entry, true, 0, 1)).toBeUndefined();
  expect(table.merge(recordOf("a", 8), undefined, 0)).toBe("old");
});
