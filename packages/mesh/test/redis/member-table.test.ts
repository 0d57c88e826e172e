import { asRouterId } from "@espalier/core";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { originKey } from "../../src/origin.ts";
import { MemberTable } from "../../src/redis/directory.ts";
import type { Lease } from "../../src/redis/lease.ts";
import { defaultRedisLimits } from "../../src/redis/redis-keys.ts";

function makeTable(limits = defaultRedisLimits) {
  const time = createVirtualTime();
  const gone: string[] = [];
  let changes = 0;
  const table = new MemberTable({
    clock: time.clock,
    limits,
    onChange: () => changes++,
    onGone: (origin) => gone.push(originKey(origin)),
  });
  const states = (): Record<string, string> =>
    Object.fromEntries(table.list(true).map(({ origin, state }) => [originKey(origin), state]));
  return { time, table, gone, states, changes: () => changes };
}

function lease(router: string, epoch = 1, said: Partial<Lease> = {}): Lease {
  const origin = { router: asRouterId(router), epoch };
  return { origin, beat: 1, isReady: true, isDraining: false, unreachable: [], ...said };
}

test("a lease that lapses makes a router suspect, then down, then forgotten", () => {
  const { time, table, gone, states } = makeTable();
  table.observe([lease("a"), lease("b")], false);
  table.observe([lease("b")], false);
  expect(states()).toEqual({ "a@1": "suspect", "b@1": "alive" });
  time.advance(defaultRedisLimits.downAfterLapseMs - 1);
  table.observe([lease("b")], false);
  expect(states()["a@1"]).toBe("suspect");
  time.advance(1);
  table.observe([lease("b")], false);
  expect(states()["a@1"]).toBe("down");
  expect(gone).toEqual(["a@1"]);
  time.advance(defaultRedisLimits.forgetAfterLapseMs);
  table.observe([lease("b")], false);
  expect(states()).toEqual({ "b@1": "alive" });
  expect(table.takeForgotten()).toEqual(["a"]);
  expect(table.takeForgotten()).toEqual([]);
});

test("a router's region is that of its lease, and not known while it has only greeted", () => {
  const { table, changes } = makeTable();
  table.greeted({ router: asRouterId("a"), epoch: 1 });
  const regionOf = () => table.list(true)[0]!.region;
  expect(regionOf()).toBe("");
  table.observe([lease("a")], false);
  expect(regionOf()).toBeUndefined();
  const before = changes();
  table.observe([lease("a", 1, { region: "eu" })], false);
  expect([regionOf(), changes()]).toEqual(["eu", before + 1]);
});

test("with the lease and the time between two looks, a dead router is down within 4 s", () => {
  const { leaseMs, renewMs, downAfterLapseMs } = defaultRedisLimits;
  expect(leaseMs + renewMs + downAfterLapseMs).toBeLessThanOrEqual(4_000);
});

test("missing leases mean nothing in a time of grace, not even those that were missing before", () => {
  const { time, table, states } = makeTable();
  table.observe([lease("a"), lease("b")], false);
  table.observe([lease("b")], false);
  time.advance(10_000);
  table.observe([], true);
  expect(states()).toEqual({ "a@1": "suspect", "b@1": "alive" });
  table.observe([], false);
  expect(states()).toEqual({ "a@1": "suspect", "b@1": "suspect" });
  table.observe([lease("a"), lease("b")], false);
  expect(states()).toEqual({ "a@1": "alive", "b@1": "alive" });
});

test("who said goodbye stays gone while the look that crossed it still shows its lease; a new epoch is a new member", () => {
  const { table, gone, states } = makeTable();
  table.observe([lease("a", 5)], false);
  table.left({ router: asRouterId("a"), epoch: 4 });
  expect(states()).toEqual({ "a@5": "alive" });
  table.left({ router: asRouterId("a"), epoch: 5 });
  table.observe([lease("a", 5)], false);
  expect(states()).toEqual({ "a@5": "left" });
  table.observe([lease("a", 4)], false);
  expect(states()).toEqual({ "a@5": "left" });
  table.observe([lease("a", 6)], false);
  expect(states()).toEqual({ "a@6": "alive" });
  expect(gone).toEqual(["a@5", "a@5"]);
});

test("listeners are told when something changed, and only then", () => {
  const { table, changes } = makeTable();
  table.observe([lease("a")], false);
  expect(changes()).toBe(1);
  table.observe([lease("a", 1, { beat: 2 })], false);
  expect(changes()).toBe(1);
  table.observe([lease("a", 1, { beat: 3, unreachable: ["e"] })], false);
  table.observe([lease("a", 1, { beat: 4, unreachable: ["f"] })], false);
  table.observe([lease("a", 1, { beat: 5, unreachable: ["f"], isDraining: true })], false);
  expect(changes()).toBe(4);
});

test("one router more than the bound is no member", () => {
  const { table } = makeTable({ ...defaultRedisLimits, maxMembers: 3 });
  table.observe(
    ["a", "b", "c"].map((router) => lease(router)),
    false,
  );
  table.observe(
    ["a", "b", "c", "d"].map((router) => lease(router)),
    false,
  );
  expect(table.list(true).map(({ origin }) => origin.router)).toEqual(["a", "b", "c"]);
});
