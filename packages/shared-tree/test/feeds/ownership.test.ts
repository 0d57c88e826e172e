import { asRouterId, type Meter, silentLogger, silentMeter } from "@espalier/core";
import type { Member } from "@espalier/mesh";
import { createCountingMeter, createRecordingLogger, createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { candidateHash, eligibleFor, rankingOf } from "../../src/feeds/decide-role.ts";
import type { FeedQuality, PostedClaim } from "../../src/feeds/feed-claim.ts";
import { maxOwnedTargets, Ownership } from "../../src/feeds/ownership.ts";
import { originOf } from "../documents/journal-fixtures.ts";
import { Fleet, feedsWith, targetsOf } from "./fleet.ts";

const names = ["a", "b", "c", "d", "e"];

function nomineeOf(target: string, routers: readonly string[]): string {
  const candidates = routers.map(asRouterId).map((router) => {
    return { router, hash: candidateHash(router), isDraining: false, unreachable: new Set<string>() };
  });
  return rankingOf(target, candidates, { self: asRouterId("?"), claimant: undefined }).nominee!;
}

function startFleet(count: number, targets: readonly string[], seed = 1): Fleet {
  const fleet = new Fleet(seed);
  for (const name of names.slice(0, count)) fleet.add(name, targets);
  fleet.time.advance(6_000);
  return fleet;
}

function expectSettled(fleet: Fleet, targets: readonly string[], isBackupExpected = true): void {
  for (const target of targets) {
    const [owner, ...more] = fleet.who(target, "owner");
    expect(more, `owners of ${target}`).toEqual([]);
    expect(owner, `owner of ${target}`).toBeDefined();
    for (const name of fleet.routers.keys()) expect(fleet.ownerSeenBy(name, target)).toBe(owner);
    if (isBackupExpected) expect(fleet.who(target, "backup"), `backups of ${target}`).toHaveLength(1);
  }
}

test("a router alone owns everything at once", () => {
  const fleet = new Fleet(1);
  const router = fleet.add("a", targetsOf(5));
  for (const target of targetsOf(5)) expect(router.ownership.roleOf(target)).toBe("owner");
  router.ownership.addTarget("late");
  expect(router.ownership.roleOf("late")).toBe("owner");
  router.ownership.removeTarget("late");
  expect(router.roles.get("late")).toBe("none");
});

describe("regions", () => {
  const targets = targetsOf(24);
  const regionOf = (target: string) => [undefined, "eu", "us", "asia"][targets.indexOf(target) % 4];
  const regions: Readonly<Record<string, string>> = { a: "eu", b: "eu", c: "us", d: "us" };
  const start = (said: Readonly<Record<string, string | undefined>>): Fleet => {
    const fleet = new Fleet(3);
    for (const [name, region] of Object.entries(said)) fleet.add(name, targets, region, regionOf);
    fleet.time.advance(6_000);
    return fleet;
  };
  const ownersIn = (fleet: Fleet, region: string | undefined): Set<string> =>
    new Set(targets.filter((target) => regionOf(target) === region).flatMap((target) => fleet.who(target, "owner")));
  const owners = (fleet: Fleet): string[] => targets.map((target) => fleet.who(target, "owner").join());

  test("of engines with routers get those as owners and backups, and others are divided as ever", () => {
    const fleet = start(regions);
    expectSettled(fleet, targets);
    expect(ownersIn(fleet, "eu")).toEqual(new Set(["a", "b"]));
    expect(ownersIn(fleet, "us")).toEqual(new Set(["c", "d"]));
    const names = Object.keys(regions);
    for (const target of targets) {
      const region = regionOf(target);
      if (region === undefined || region === "asia")
        expect(fleet.who(target, "owner")).toEqual([nomineeOf(target, names)]);
      else expect(regions[fleet.who(target, "backup")[0]!]).toBe(region);
    }
  });

  test("without a living router have their engines read from elsewhere, until one comes back", () => {
    const fleet = start(regions);
    fleet.kill("c");
    fleet.kill("d");
    fleet.time.advance(6_000);
    expectSettled(fleet, targets);
    expect(ownersIn(fleet, "us")).toEqual(new Set(["a", "b"]));
    fleet.add("d", targets, "us", regionOf);
    fleet.time.advance(10_000);
    expectSettled(fleet, targets);
    expect(ownersIn(fleet, "us")).toEqual(new Set(["d"]));
  });

  test("of routers count as soon as they are heard, before which they change nothing", () => {
    const time = createVirtualTime();
    const member = (region: string): Member => ({
      ...{ origin: { router: asRouterId("b"), epoch: 1 }, state: "alive", isDraining: false, isLinked: true },
      ...{ unreachable: [], region },
    });
    let members = [member("")];
    const ownership = new Ownership({
      ...{ clock: time.clock, scheduler: time.scheduler, meter: silentMeter, logger: silentLogger, region: "us" },
      self: () => ({ router: asRouterId("a"), epoch: 1 }),
      members: () => members,
      feeds: feedsWith(() => []),
      onRole: () => {},
    });
    for (const target of targets) ownership.addTarget(target, "eu");
    ownership.start();
    const owned = () => targets.filter((target) => ownership.roleOf(target) === "owner");
    expect(owned()).toEqual(targets.filter((target) => nomineeOf(target, ["a", "b"]) === "a"));
    members = [member("eu")];
    ownership.membersChanged();
    expect(owned()).toEqual([]);
  });

  test("count only while every living router says its own: one of an earlier version does not", () => {
    const fleet = start({ ...regions, e: undefined });
    expect(owners(fleet)).toEqual(
      owners(start({ a: undefined, b: undefined, c: undefined, d: undefined, e: undefined })),
    );
    const takings = fleet.takings;
    fleet.time.advance(60_000);
    expect(fleet.takings).toBe(takings);
    fleet.kill("e");
    fleet.time.advance(10_000);
    expectSettled(fleet, targets);
    expect(ownersIn(fleet, "eu")).toEqual(new Set(["a", "b"]));
  });
});

test("before it is started a router has no role, for it may not know the others yet", () => {
  const time = createVirtualTime();
  const roles: string[] = [];
  const ownership = new Ownership({
    self: () => ({ router: asRouterId("a"), epoch: 1 }),
    clock: time.clock,
    scheduler: time.scheduler,
    members: () => [],
    feeds: feedsWith(() => []),
    onRole: (target, role) => roles.push(`${target} ${role}`),
    meter: silentMeter,
    logger: silentLogger,
  });
  ownership.addTarget("t");
  ownership.membersChanged();
  time.advance(5_000);
  expect(roles).toEqual([]);
  ownership.start();
  expect(roles).toEqual(["t owner"]);
  ownership.stop();
  expect(time.pendingCount).toBe(0);
});

test("feeds are spread over the routers, each with one owner and one backup", () => {
  const targets = targetsOf(120);
  const fleet = startFleet(4, targets);
  expectSettled(fleet, targets);
  for (const name of fleet.routers.keys()) {
    const owned = targets.filter((target) => fleet.who(target, "owner")[0] === name);
    expect(owned.length).toBeGreaterThan(12);
    expect(owned.length).toBeLessThan(52);
  }
  for (const target of targets) expect(fleet.who(target, "owner")[0]).toBe(nomineeOf(target, names.slice(0, 4)));
});

test("the backup takes over within 1 s of its owner's death, and no other feed moves", () => {
  const targets = targetsOf(60);
  const fleet = startFleet(4, targets);
  const before = new Map(targets.map((target) => [target, fleet.who(target, "owner")[0]]));
  const backups = new Map(targets.map((target) => [target, fleet.who(target, "backup")[0]]));
  fleet.kill("b");
  fleet.time.advance(1_000);
  for (const target of targets) {
    const expected = before.get(target) === "b" ? backups.get(target) : before.get(target);
    expect(fleet.who(target, "owner")).toEqual([expected]);
  }
  fleet.time.advance(2_000);
  expectSettled(fleet, targets);
});

test("a router that joins takes what it is nominated for, once its reading is complete, and nothing else moves", () => {
  const targets = targetsOf(80);
  const fleet = startFleet(3, targets);
  const before = new Map(targets.map((target) => [target, fleet.who(target, "owner")[0]]));
  const partial = new Set(targets.filter((_, index) => index % 2 === 0));
  fleet.qualityOf = (target, router) => (router === "d" && partial.has(target) ? "partial" : "complete");
  fleet.add("d", targets);
  fleet.time.advance(5_000);
  expectSettled(fleet, targets);
  const nominated = targets.filter((target) => nomineeOf(target, names.slice(0, 4)) === "d");
  for (const target of targets) {
    const takes = nominated.includes(target) && !partial.has(target);
    expect(fleet.who(target, "owner")).toEqual([takes ? "d" : before.get(target)]);
    if (nominated.includes(target) && !takes) expect(fleet.who(target, "backup")).toEqual(["d"]);
  }
});

test("a draining router hands its feeds over and keeps none", () => {
  const targets = targetsOf(40);
  const fleet = startFleet(3, targets);
  fleet.setDraining("a", true);
  fleet.time.advance(5_000);
  expectSettled(fleet, targets);
  for (const target of targets) {
    expect(fleet.who(target, "owner")).not.toEqual(["a"]);
    expect(fleet.who(target, "backup")).not.toEqual(["a"]);
  }
  fleet.setDraining("b", true);
  fleet.setDraining("c", true);
  fleet.time.advance(5_000);
  expectSettled(fleet, targets);
});

test("a target that its nominee cannot reach goes to the next, and stays where it is when nobody reaches it", () => {
  const targets = targetsOf(30);
  const fleet = startFleet(3, targets);
  const [target] = targets as [string];
  const [first] = fleet.who(target, "owner") as [string];
  fleet.setUnreachable(first, [target]);
  fleet.time.advance(3_000);
  const [second] = fleet.who(target, "owner") as [string];
  expect(second).not.toBe(first);
  expect(fleet.who(target, "backup")).not.toEqual([first]);
  expectSettled(fleet, targets);
  for (const name of fleet.routers.keys()) fleet.setUnreachable(name, [target]);
  fleet.time.advance(3_000);
  expect(fleet.who(target, "owner")).toHaveLength(1);
});

/**
 * An engine that is down for seconds is out of reach for all. When it is back, only who reads it notices; the others said
 * that they could not, and nobody asked them again, so the feed was without a backup until its owner died.
 */
test("a feed that only its owner is known to reach has a backup that tries", () => {
  const targets = targetsOf(9);
  const fleet = startFleet(4, targets);
  const [target] = targets as [string];
  for (const name of fleet.routers.keys()) fleet.setUnreachable(name, [target]);
  fleet.time.advance(3_000);
  const [owner] = fleet.who(target, "owner") as [string];
  fleet.setUnreachable(owner, []);
  fleet.time.advance(3_000);
  expectSettled(fleet, targets);
  const [backup] = fleet.who(target, "backup") as [string];
  fleet.setDraining(backup, true);
  fleet.time.advance(3_000);
  expect(fleet.who(target, "backup")).not.toEqual([backup]);
  expectSettled(fleet, targets);
});

test("where all others drain, one of them keeps a feed warm that only its owner is known to reach", () => {
  const targets = targetsOf(1);
  const fleet = startFleet(3, targets);
  const [owner] = fleet.who(targets[0]!, "owner") as [string];
  for (const name of fleet.routers.keys()) {
    if (name === owner) continue;
    fleet.setUnreachable(name, targets);
    fleet.setDraining(name, true);
  }
  fleet.time.advance(3_000);
  expect(fleet.who(targets[0]!, "owner")).toEqual([owner]);
  expectSettled(fleet, targets);
});

/**
 * A router whose clock was minutes ahead claimed a feed and withdrew. Its stamp, which nobody else could reach, went on
 * voiding the claims of all others, who each took the feed and lost it again every second.
 */
test("a claim that was withdrawn voids no later one, however far ahead its clock was", () => {
  const time = createVirtualTime();
  const members: Member[] = ["p", "q"].map((name) => {
    const origin = { router: asRouterId(name), epoch: 1 };
    return { origin, state: "alive", isDraining: false, isLinked: true, unreachable: [] };
  });
  const posted = (router: string, stamp: number) => ({
    origin: { router: asRouterId(router), epoch: 1 },
    claim: { target: "t", stamp, quality: "complete", state: "live", reason: "complete", unusable: null } as const,
  });
  let claims = [posted("p", 1_000_000), posted("q", 10)];
  const ownership = new Ownership({
    ...{ clock: time.clock, scheduler: time.scheduler, meter: silentMeter, logger: silentLogger },
    self: () => ({ router: asRouterId("self"), epoch: 1 }),
    members: () => members,
    feeds: feedsWith(() => claims),
    onRole: () => {},
  });
  ownership.addTarget("t");
  ownership.start();
  expect(ownership.ownerOf("t")).toBe("p");
  members[0] = { ...members[0]!, state: "down" };
  ownership.membersChanged();
  expect(ownership.ownerOf("t"), "superseded, and its author is not told to read").toBeUndefined();
  claims = [posted("q", 20)];
  ownership.claimsChanged("t");
  expect(ownership.ownerOf("t")).toBe("q");
  ownership.stop();
});

test("a nominee that makes no claim for 1 s loses its turn", () => {
  const time = createVirtualTime();
  const rivals = ["p", "q", "r"].filter((name) => name !== "self");
  const target = targetsOf(500).find((each) => nomineeOf(each, [...rivals, "self"]) !== "self")!;
  const ranked = [...rivals, "self"];
  const members: Member[] = rivals.map((name) => ({
    origin: { router: asRouterId(name), epoch: 1 },
    state: "alive",
    isDraining: false,
    isLinked: true,
    unreachable: [],
  }));
  const candidates = eligibleFor(
    target,
    ranked.map(asRouterId).map((router) => {
      return { router, hash: candidateHash(router), isDraining: false, unreachable: new Set<string>() };
    }),
  );
  const { rank } = rankingOf(target, candidates, { self: asRouterId("self"), claimant: undefined });
  const roles: string[] = [];
  const logger = createRecordingLogger();
  const ownership = new Ownership({
    self: () => ({ router: asRouterId("self"), epoch: 1 }),
    clock: time.clock,
    scheduler: time.scheduler,
    members: () => members,
    feeds: feedsWith(() => []),
    onRole: (_, role) => roles.push(`${role} at ${time.clock.nowMs()}`),
    meter: silentMeter,
    logger,
  });
  ownership.addTarget(target);
  ownership.start();
  time.advance(6_000);
  const backupFirst = rank === 1 ? ["backup at 0"] : [`backup at ${(rank! - 1) * 1_000}`];
  const ownerAts = Array.from({ length: 7 - rank! }, (_, index) => `owner at ${(rank! + index) * 1_000}`);
  expect(roles).toEqual([...backupFirst, ...ownerAts]);
  expect(logger.lines.filter(({ message }) => message === "feeds without a reader")).toHaveLength(1);
});

/** One router, "self", in whose eyes the test says who the others are and what they claim. */
function ownershipOf(members: readonly Member[], claims: () => readonly PostedClaim[], meter: Meter = silentMeter) {
  const time = createVirtualTime();
  const roles: string[] = [];
  let asked = 0;
  const feeds = feedsWith(() => {
    asked += 1;
    return claims();
  });
  const ownership = new Ownership({
    self: () => ({ router: asRouterId("self"), epoch: 1 }),
    ...{ clock: time.clock, scheduler: time.scheduler, meter, logger: silentLogger },
    members: () => members,
    feeds,
    onRole: (target, role) => roles.push(`${target} ${role} at ${time.clock.nowMs()}`),
  });
  return { time, ownership, feeds, roles, asked: () => asked };
}

const memberOf = (name: string, state: Member["state"] = "alive"): Member => {
  const origin = { router: asRouterId(name), epoch: 1 };
  return { origin, state, isDraining: false, isLinked: true, unreachable: [] };
};

const claimOf = (name: string, stamp: number, quality: FeedQuality = "complete"): PostedClaim => ({
  origin: { router: asRouterId(name), epoch: 1 },
  claim: { target: "t", stamp, quality, state: "live", reason: "", unusable: null },
});

test("a nominee whose claim does not come to hold is told again every second; a settled feed costs nothing", () => {
  const target = targetsOf(99).find((each) => nomineeOf(each, ["p", "self"]) === "self")!;
  let claims = [claimOf("p", 5, "partial")];
  const { time, ownership, roles, asked } = ownershipOf([memberOf("p")], () => claims);
  ownership.addTarget(target);
  ownership.start();
  time.advance(3_000);
  ownership.setQuality(target, "complete");
  time.advance(2_100);
  expect(roles).toEqual([`${target} backup at 0`, ...[3_000, 4_000, 5_000].map((ms) => `${target} owner at ${ms}`)]);
  claims = [claimOf("self", 6)];
  ownership.claimsChanged(target);
  const settled = asked();
  time.advance(10_000);
  expect(asked()).toBe(settled);
  expect(roles).toHaveLength(4);
  ownership.stop();
});

test("a claim of a router that is suspected holds, for it may still read", () => {
  const members = [memberOf("p", "suspect")];
  const { ownership } = ownershipOf(members, () => [claimOf("p", 5)]);
  ownership.addTarget("t");
  ownership.start();
  expect(ownership.ownerOf("t")).toBe("p");
  members[0] = memberOf("p", "down");
  ownership.membersChanged();
  expect(ownership.ownerOf("t")).toBeUndefined();
  ownership.stop();
});

test("a feed whose reader becomes another router is counted, and its first reader is not", () => {
  const meter = createCountingMeter();
  let claims: PostedClaim[] = [];
  const { ownership } = ownershipOf([memberOf("p"), memberOf("q")], () => claims, meter);
  const moves = () => meter.value("espalier_mesh_feed_moves_total");
  ownership.addTarget("t");
  ownership.start();
  for (const [at, claim] of [claimOf("p", 5), claimOf("q", 6), claimOf("q", 7)].entries()) {
    claims = [claim];
    ownership.claimsChanged("t");
    expect(moves()).toBe(Math.min(at, 1));
  }
  ownership.stop();
});

test("of two claims the later holds, of equal ones that of the lower id", () => {
  const fleet = startFleet(3, ["t"]);
  const stamped = (name: string, stamp: number, quality: FeedQuality = "complete") => ({
    origin: { router: asRouterId(name), epoch: fleet.routers.get(name)!.epoch },
    claim: { target: "t", stamp, quality, state: "", reason: "", unusable: null },
  });
  for (const router of fleet.routers.values()) {
    router.claims.set(
      "t",
      new Map([
        ["c", stamped("c", 50)],
        ["b", stamped("b", 50)],
        ["a", stamped("a", 49)],
      ]),
    );
    router.ownership.claimsChanged("t");
    expect(router.ownership.ownerOf("t")).toBe("b");
    router.claims.get("t")!.set("c", stamped("c", 51));
    router.ownership.claimsChanged("t");
    expect(router.ownership.ownerOf("t")).toBe("c");
  }
});

test("a claim that was superseded stays void when the later claimant dies", () => {
  const fleet = startFleet(1, ["t"]);
  fleet.add("b", ["t"]);
  fleet.add("c", ["t"]);
  fleet.time.advance(3_000);
  const [owner] = fleet.who("t", "owner") as [string];
  const second = [...fleet.routers.keys()].find((name) => name !== owner)!;
  fleet.claim(fleet.routers.get(second)!, "t", "partial");
  fleet.time.advance(500);
  for (const name of fleet.routers.keys()) expect(fleet.ownerSeenBy(name, "t")).toBe(second);
  const [backup] = fleet.who("t", "backup");
  fleet.kill(second);
  fleet.time.advance(500);
  expect(fleet.who("t", "owner")).toEqual([backup]);
});

test("a target that left and came back while others claim it is decided afresh", () => {
  const { ownership, roles, feeds } = ownershipOf([memberOf("p")], () => []);
  const target = targetsOf(99).find((each) => nomineeOf(each, ["p", "self"]) === "self")!;
  feeds.claimChanged(originOf("p"), target, { ...claimOf("p", 5).claim, target });
  ownership.addTarget(target);
  ownership.start();
  ownership.removeTarget(target);
  expect(ownership.roleOf(target)).toBe("none");
  ownership.addTarget(target);
  expect(roles).toEqual(["owner", "none", "owner"].map((role) => `${target} ${role} at 0`));
  ownership.stop();
});

test("a claim of an earlier epoch of a router, or of a stranger, holds nothing", () => {
  const fleet = startFleet(1, ["t"]);
  const router = fleet.routers.get("a")!;
  for (const [name, epoch] of [
    ["a", 0],
    ["x", 1],
  ] as const) {
    const claim = { target: "t", stamp: 99, quality: "complete", state: "", reason: "", unusable: null } as const;
    router.claims.get("t")!.set(`${name}${epoch}`, { origin: { router: asRouterId(name), epoch }, claim });
    router.ownership.claimsChanged("t");
    expect(router.ownership.ownerOf("t")).toBe("a");
  }
});

test("one target more than there is room for is refused", () => {
  const fleet = new Fleet(1);
  const { ownership } = fleet.add("a", []);
  fleet.claim = () => {};
  ownership.stop();
  for (let index = 0; index < maxOwnedTargets; index++) ownership.addTarget(`t${index}`);
  ownership.addTarget("t0");
  expect(() => ownership.addTarget("one more")).toThrow(RangeError);
  ownership.removeTarget("t0");
  ownership.addTarget("one more");
});

test("after any changes each feed has exactly one owner that all agree on, and one backup", () => {
  const targets = targetsOf(8);
  for (let seed = 1; seed <= 150; seed++) {
    const fleet = new Fleet(seed);
    const { random } = fleet;
    const ranks: FeedQuality[] = ["partial", "complete", "complete"];
    const salt = random.integer(1_000);
    fleet.qualityOf = (target, router) => ranks[(target.length * 7 + router.charCodeAt(0) * 31 + salt) % ranks.length]!;
    for (const name of names.slice(0, 2 + random.integer(4))) fleet.add(name, targets);
    for (let step = 0; step < 12; step++) {
      fleet.time.advance(random.integer(1_500));
      const name = names[random.integer(names.length)]!;
      const router = fleet.routers.get(name);
      if (!router) fleet.add(name, targets);
      else if (random.integer(3) === 0 && fleet.routers.size > 2) fleet.kill(name);
      else if (random.integer(2) === 0) fleet.setDraining(name, !router.isDraining);
      else
        fleet.setUnreachable(
          name,
          targets.filter(() => random.integer(4) === 0),
        );
    }
    for (const name of fleet.routers.keys()) {
      fleet.setDraining(name, false);
      fleet.setUnreachable(name, []);
    }
    fleet.time.advance(8_000);
    try {
      expectSettled(fleet, targets);
      const { takings } = fleet;
      fleet.time.advance(20_000);
      expect(fleet.takings, "roles change without a cause").toBe(takings);
    } catch (error) {
      throw new Error(`seed ${seed}: ${error instanceof Error ? error.message : error}`, { cause: error });
    }
  }
}, 60_000);
