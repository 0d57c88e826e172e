import { describe, expect, test } from "vitest";
import {
  type FleetUsage,
  maxBackoffMs,
  noFleetUsage,
  rescanMs,
  type TenantElsewhere,
  toleratedMs,
} from "../../src/admission/index.ts";
import { createRig, full, testClass } from "./rig.ts";

const classes = [testClass("default", { maxPendingTokens: 10_000 })];

/** What other routers tell, as a test says it, and what they are told. */
function fleetOf(tenants: Record<string, Partial<TenantElsewhere>> = {}) {
  const reported: (readonly [what: string, tenant: string, value: number | undefined])[] = [];
  const state = { neediest: Number.POSITIVE_INFINITY, firstMs: Number.POSITIVE_INFINITY };
  const fleet: FleetUsage = {
    ...noFleetUsage,
    served: (_, tenant, tokens) => reported.push(["served", tenant, tokens]),
    lifted: (_, tenant, tokens) => reported.push(["lifted", tenant, Math.round(tokens)]),
    waits: (_, tenant, firstMs) => reported.push(["waits", tenant, firstMs]),
    elsewhere: (_, tenant) => tenants[tenant] && { tokens: 0, lift: 0, waits: false, ...tenants[tenant] },
    neediest: () => state.neediest,
    firstMs: () => state.firstMs,
  };
  return { fleet, reported, state };
}

describe("others are told", () => {
  test("what a tenant was served, and when it begins to wait and waits no more", () => {
    const { fleet, reported } = fleetOf();
    const rig = createRig({ targets: 1, settings: { classes }, fleet });
    const { ticket } = rig.send("at once", { tenant: "a" });
    ticket?.ended(100);
    expect(reported).toEqual([
      ["served", "a", 1_000],
      ["served", "a", 200],
    ]);
    reported.length = 0;
    rig.fill();
    rig.send("first", { tenant: "a" });
    rig.send("second", { tenant: "a" }).ticket?.leave();
    expect(reported).toEqual([["waits", "a", 0]]);
    rig.done(0);
    expect(reported.slice(1)).toEqual([
      ["waits", "a", undefined],
      ["served", "a", 1_000],
    ]);
    reported.length = 0;
    rig.fill();
    rig.send("again", { tenant: "a" });
    expect(reported).toEqual([["waits", "a", 0]]);
  });

  test("by how much a tenant that was away is lifted", () => {
    const { fleet, reported } = fleetOf({ a: { tokens: 9_000 }, b: { tokens: 2_000 } });
    const rig = createRig({ targets: 1, settings: { classes }, fleet });
    rig.fill();
    rig.send("a", { tenant: "a" });
    rig.send("b", { tenant: "b" });
    expect(reported).toContainEqual(["lifted", "b", 7_000]);
  });
});

describe("what others tell", () => {
  /** Which tenants go in which order when each has three requests of a thousand tokens. */
  function orderOf(tenants: Record<string, Partial<TenantElsewhere>>): readonly string[] {
    const rig = createRig({ targets: 1, settings: { classes: [testClass("default")] }, fleet: fleetOf(tenants).fleet });
    rig.fill();
    for (const tenant of ["a", "b"]) for (let count = 0; count < 3; count++) rig.send(tenant, { tenant });
    for (let count = 0; count < 6; count++) rig.done(0);
    return rig.went;
  }

  test("counts as what was served here", () => {
    expect(orderOf({ a: { tokens: 2_500, waits: true }, b: { waits: true } })).toEqual(["b", "b", "b", "a", "a", "a"]);
  });

  test("a tenant that waits elsewhere was not away, and is not lifted", () => {
    expect(orderOf({ a: { tokens: 2_500, waits: true } })).toEqual(["a", "b", "a", "b", "a", "b"]);
  });

  test("a lift that another router gave holds here too, and no more than once", () => {
    const tenants = { a: { tokens: 9_000, waits: true }, b: { lift: 9_000, waits: true } };
    expect(orderOf(tenants)).toEqual(["a", "b", "a", "b", "a", "b"]);
  });
});

describe("capacity is left to a needier tenant of another router", () => {
  /** An engine that is busy, and a tenant that was served a lot. */
  function busyRig(neediest: number) {
    const { fleet, state } = fleetOf({ a: { tokens: 100_000 } });
    state.neediest = neediest;
    const rig = createRig({ targets: 1, settings: { classes }, fleet });
    rig.targets[0]!.load.pendingPrefillTokens = 5_000;
    return { ...rig, state };
  }

  test("for a while, and again after each request", () => {
    const { time, send, went } = busyRig(10_000);
    send("first", { tenant: "a" });
    send("second", { tenant: "a" });
    time.advance(maxBackoffMs);
    expect(went).toEqual([]);
    time.advance(rescanMs);
    expect(went).toEqual(["first"]);
    time.advance(maxBackoffMs);
    expect(went).toEqual(["first"]);
    time.advance(2 * rescanMs);
    expect(went).toEqual(["first", "second"]);
  });

  test("until that one waits no more", () => {
    const { time, send, went, state } = busyRig(10_000);
    send("a", { tenant: "a" });
    state.neediest = Number.POSITIVE_INFINITY;
    time.advance(rescanMs);
    expect(went).toEqual(["a"]);
  });

  test("but not for what routers know too late: the request's own tokens, and a hundredth", () => {
    const close = busyRig(98_100);
    close.send("a", { tenant: "a", promptTokens: 1_000 });
    expect(close.went).toEqual(["a"]);
    const apart = busyRig(97_900);
    apart.send("a", { tenant: "a", promptTokens: 1_000 });
    expect(apart.went).toEqual([]);
  });

  test("but not at an engine that has nothing to do", () => {
    const { send, went, targets } = busyRig(0);
    targets[0]!.load.pendingPrefillTokens = 0;
    send("a", { tenant: "a" });
    expect(went).toEqual(["a"]);
  });

  test("while there is none, no time runs", () => {
    const { time, send, went, targets } = busyRig(10_000);
    const { load } = targets[0]!;
    send("a", { tenant: "a" });
    time.advance(maxBackoffMs / 2);
    load.pendingPrefillTokens = full;
    time.advance(10 * maxBackoffMs);
    load.pendingPrefillTokens = 5_000;
    time.advance(maxBackoffMs);
    expect(went).toEqual([]);
    time.advance(2 * rescanMs);
    expect(went).toEqual(["a"]);
  });

  test("by those who need it less only: a tenant with little goes at once", () => {
    const { send, went } = busyRig(10_000);
    send("b", { tenant: "b" });
    expect(went).toEqual(["b"]);
  });
});

describe("capacity is left to an earlier request of the same tenant at another router", () => {
  const nowMs = 60_000;

  /** An engine that is busy, and a request elsewhere whose sort key is this much before now. */
  function busyRig(aheadMs: number) {
    const { fleet, state } = fleetOf();
    state.firstMs = nowMs - aheadMs;
    const rig = createRig({ targets: 1, settings: { classes }, fleet });
    rig.time.advance(nowMs - rig.time.clock.nowMs());
    rig.targets[0]!.load.pendingPrefillTokens = 5_000;
    return { ...rig, state };
  }

  test("for a while, once for each", () => {
    const { time, send, went, state, targets } = busyRig(10_000);
    for (const name of ["first", "second", "third"]) send(name, { tenant: "a" });
    time.advance(maxBackoffMs);
    expect(went).toEqual([]);
    time.advance(rescanMs);
    expect(went).toEqual(["first", "second", "third"]);
    send("not again", { tenant: "a" });
    expect(went).toContain("not again");
    state.firstMs += 20;
    send("reported again", { tenant: "a" });
    expect(went).toContain("reported again");
    // As busy as before.
    targets[0]!.load.pendingPrefillTokens = 5_000;
    state.firstMs += 100;
    send("for another", { tenant: "a" });
    expect(went).not.toContain("for another");
    time.advance(maxBackoffMs + rescanMs);
    expect(went).toContain("for another");
  });

  test("until it waits no more", () => {
    const { time, send, went, state } = busyRig(10_000);
    send("a", { tenant: "a" });
    expect(went).toEqual([]);
    state.firstMs = Number.POSITIVE_INFINITY;
    time.advance(rescanMs);
    expect(went).toEqual(["a"]);
  });

  test("but not for one that came at almost the same time, nor later", () => {
    for (const aheadMs of [toleratedMs, 0, -10_000]) {
      const { send, went } = busyRig(aheadMs);
      send("a", { tenant: "a" });
      expect(went).toEqual(["a"]);
    }
  });

  test("but not at an engine that has nothing to do", () => {
    const { send, went, targets } = busyRig(10_000);
    targets[0]!.load.pendingPrefillTokens = 0;
    send("a", { tenant: "a" });
    expect(went).toEqual(["a"]);
  });
});
