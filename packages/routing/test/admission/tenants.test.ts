import { createSeededRandom, usageHalfLifeMs } from "@espalier/core";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { type FleetUsage, maxServedOwners, noFleetUsage } from "../../src/admission/index.ts";
import { createRig, type Rig, testClass } from "./rig.ts";

const classes = [testClass("default")];

/** Tokens that each tenant was served, over some routers. */
function servedBy(rigs: readonly Rig[], tenant: string): number {
  return rigs
    .flatMap(({ admission }) => admission.usage())
    .filter((one) => one.tenant === tenant)
    .reduce((sum, { tokens }) => sum + tokens, 0);
}

test.each([1, 2, 3])(
  "two tenants, one with ten times the demand, get equal service when both wait (seed %i)",
  (seed) => {
    const random = createSeededRandom(seed);
    const rig = createRig({ targets: 1, settings: { classes, maxQueued: 10_000 } });
    rig.fill();
    const send = (tenant: string): void => {
      rig.send(tenant, { tenant, promptTokens: 200 + random.integer(3_000) });
    };
    for (let count = 0; count < 30; count++) send("small");
    for (let count = 0; count < 300; count++) send("large");
    for (let step = 0; step < 600; step++) {
      rig.time.advance(10);
      rig.done(0);
      send("large");
      for (let count = 0; count < 9; count++) if (random.float() < 0.5) send("large");
      if (random.float() < 0.6) send("small");
    }
    const ratio = servedBy([rig], "small") / servedBy([rig], "large");
    expect(Math.abs(ratio - 1)).toBeLessThan(0.05);
  },
);

test("equal service is counted in tokens, not in requests", () => {
  const rig = createRig({ targets: 1, settings: { classes } });
  rig.fill();
  for (let count = 0; count < 100; count++) rig.send("long", { tenant: "long", promptTokens: 4_000 });
  for (let count = 0; count < 100; count++) rig.send("short", { tenant: "short", promptTokens: 1_000 });
  for (let count = 0; count < 100; count++) rig.done(0);
  expect(rig.went.filter((name) => name === "short")).toHaveLength(80);
});

test("tokens of answers count too, twice as much as those of prompts", () => {
  const rig = createRig({ targets: 1, settings: { classes } });
  rig.fill();
  const talker = rig.send("talker", { tenant: "talker" });
  rig.send("other", { tenant: "other" });
  rig.send("talker", { tenant: "talker" });
  rig.done(0);
  talker.ticket?.ended(2_000);
  expect(servedBy([rig], "talker")).toBe(5_000);
  for (let count = 0; count < 4; count++) rig.send("other", { tenant: "other" });
  for (let count = 0; count < 6; count++) rig.done(0);
  expect(rig.went).toEqual(["talker", "other", "other", "other", "other", "other", "talker"]);
});

test("a tenant that was away does not catch up on what it did not ask for", () => {
  const rig = createRig({ targets: 1, settings: { classes } });
  rig.fill();
  for (let count = 0; count < 60; count++) rig.send("busy", { tenant: "busy" });
  for (let count = 0; count < 40; count++) rig.done(0);
  for (let count = 0; count < 20; count++) rig.send("new", { tenant: "new" });
  for (let count = 0; count < 20; count++) rig.done(0);
  const went = rig.went.slice(40);
  expect(went.filter((name) => name === "new")).toHaveLength(10);
});

test("a tenant that is served alone owes nothing later: half is forgotten in the half-life", () => {
  const rig = createRig({ targets: 1, settings: { classes } });
  rig.send("a", { tenant: "a" });
  expect(servedBy([rig], "a")).toBe(1_000);
  rig.time.advance(usageHalfLifeMs);
  expect(servedBy([rig], "a")).toBeCloseTo(500);
  rig.time.advance(10 * usageHalfLifeMs);
  expect(servedBy([rig], "a")).toBeLessThan(1);
});

test("tenants are fair within a class only: a class's turn does not depend on them", () => {
  const rig = createRig({ targets: 1, settings: { classes: [testClass("high"), testClass("default")] } });
  rig.fill();
  for (let count = 0; count < 5; count++) rig.send("high", { className: "high", tenant: "a" });
  rig.send("usual", { tenant: "b" });
  for (let count = 0; count < 6; count++) rig.done(0);
  expect(rig.went).toEqual([...Array(5).fill("high"), "usual"]);
});

/** Routers that tell each other at once. */
function connectedRigs(count: number): readonly Rig[] {
  const time = createVirtualTime();
  const rigs: Rig[] = [];
  const fleetOf = (self: number): FleetUsage => ({
    ...noFleetUsage,
    elsewhere: (className, tenant) => ({
      tokens: rigs
        .filter((_, router) => router !== self)
        .flatMap(({ admission }) => admission.usage())
        .filter((one) => one.className === className && one.tenant === tenant)
        .reduce((sum, { tokens }) => sum + tokens, 0),
      lift: 0,
      waits: true,
    }),
  });
  for (let router = 0; router < count; router++) {
    rigs.push(createRig({ targets: 1, settings: { classes, maxQueued: 10_000 }, fleet: fleetOf(router), time }));
  }
  return rigs;
}

test.each([1, 2])("over four routers that share usage, 10 : 1 in demand is 1 : 1 in service (seed %i)", (seed) => {
  const random = createSeededRandom(seed);
  const rigs = connectedRigs(4);
  for (const rig of rigs) rig.fill();
  const send = (rig: Rig, tenant: string): void => {
    rig.send(tenant, { tenant, promptTokens: 200 + random.integer(3_000) });
  };
  // The small tenant's clients have found three of the routers only.
  for (let count = 0; count < 450; count++) send(rigs[count % 3]!, "small");
  for (let count = 0; count < 2_000; count++) send(rigs[count % 4]!, "large");
  for (let step = 0; step < 120; step++) {
    rigs[0]!.time.advance(10);
    for (const rig of rigs) rig.done(0);
  }
  const ratio = servedBy(rigs, "small") / servedBy(rigs, "large");
  expect(Math.abs(ratio - 1)).toBeLessThan(0.05);
});

test("tenants that were served longest ago are forgotten beyond the bound", () => {
  const rig = createRig({ targets: 1 });
  for (let tenant = 0; tenant <= maxServedOwners; tenant++) {
    rig.send("a", { tenant: `tenant-${tenant}`, promptTokens: 1 });
    rig.targets[0]!.load.pendingPrefillTokens = 0;
  }
  const known = new Set(rig.admission.usage().map(({ tenant }) => tenant));
  expect(known.size).toBe(maxServedOwners);
  expect([known.has("tenant-0"), known.has("tenant-1")]).toEqual([false, true]);
});
