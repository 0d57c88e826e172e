import { promptOf, tokensOf } from "@espalier/testing";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { chainOf, ScriptedEngine } from "./scripted-engine.ts";
import { TierCluster, type TierRouter } from "./tier-rig.ts";

let cluster: TierCluster;
let one: TierRouter;
let other: TierRouter;
let engine: ScriptedEngine;

beforeEach(() => {
  cluster = new TierCluster();
  [one, other] = [cluster.add("a"), cluster.add("b")];
  engine = new ScriptedEngine("engine-1", cluster.time.scheduler);
});

afterEach(async () => {
  for (const { tier } of [one, other]) await tier.stop();
});

const roleOf = ({ tier }: TierRouter, target = engine.key) => tier.ownership.roleOf(target);
const rolesOf = (target = engine.key) => [roleOf(one, target), roleOf(other, target)].sort();
/** The one of the two that reads the engine for both, then the other one. */
const byRole = (): readonly [TierRouter, TierRouter] => (roleOf(one) === "owner" ? [one, other] : [other, one]);

async function startBoth(): Promise<void> {
  await one.tier.start();
  await other.tier.start();
  cluster.until(() => [one, other].every(({ tier }) => tier.backend.waitingFor.length === 0));
}

/** Both read the engine, and have agreed who does it for both. */
async function readTogether(): Promise<void> {
  await startBoth();
  for (const router of [one, other]) router.read(engine);
  cluster.until(() => rolesOf().join() === "backup,owner" && engine.readers.length === 2);
  cluster.until(() => [one, other].every(({ tier }) => tier.ownership.ownerOf(engine.key) === byRole()[0].name));
}

test("before the start nothing is sent, and no feed is read", async () => {
  await other.tier.start();
  one.read(engine);
  cluster.time.advance(10_000);
  expect([engine.readers, roleOf(one), one.tier.backend.describe().address]).toEqual([[], "none", null]);
  expect([one, other].map(({ tier }) => tier.backend.members())).toEqual([[], []]);
});

describe("facts", () => {
  test("that one router reads are in the index of the other, and worth the same", async () => {
    await readTogether();
    const chain = chainOf(1, 6);
    engine.store(chain);
    const target = engine.key;
    expect(cluster.until(() => one.held(target, chain) === 6 && other.held(target, chain) === 6)).toBeLessThan(100);
    cluster.until(() =>
      [one, other].every(({ tier, indexOf }) => tier.feedQualityOf(indexOf(engine.key)) === "complete"),
    );
  });

  test("of which a message was lost are worth less at both, at once", async () => {
    await readTogether();
    engine.store(chainOf(1, 2));
    const qualities = () => [one, other].map(({ tier, indexOf }) => tier.feedQualityOf(indexOf(engine.key)));
    cluster.until(() => qualities().join() === "complete,complete");
    engine.lose(chainOf(2, 2));
    expect(cluster.until(() => qualities().join() === "partial,partial")).toBeLessThan(100);
  });

  test("of a target that nobody reads are worth nothing", async () => {
    await startBoth();
    expect(one.tier.feedQualityOf(one.indexOf("engine-9"))).toBe("none");
  });

  test("each of many engines is read for all by one router, and what it holds is told with its tier", async () => {
    await startBoth();
    const engines = Array.from({ length: 8 }, (_, at) => new ScriptedEngine(`engine-${at}`, cluster.time.scheduler));
    const feeds = engines.map((each) => [one.read(each), other.read(each)] as const);
    for (const [at, each] of engines.entries()) each.store(chainOf(at, at + 1));
    cluster.until(() => engines.every(({ key }) => rolesOf(key).join() === "backup,owner"));
    const counts = () => feeds.map((pair) => pair.map((feed) => feed.describe().blocks.gpu));
    cluster.until(() => counts().every(([mine, theirs], at) => mine === at + 1 && theirs === at + 1));
    cluster.until(() => feeds.every(([mine, theirs]) => mine.describe().owner === theirs.describe().owner));
    const owners = new Set(feeds.map(([mine]) => mine.describe().owner));
    expect([...owners].sort()).toEqual(["a", "b"]);
    expect([...one.tier.host.targets()].sort()).toEqual(engines.map(({ key }) => key));
  });
});

describe("guesses", () => {
  test("are in a router's own index at once, and soon in the other's; so are those that turn out wrong", async () => {
    await startBoth();
    const prompt = promptOf(tokensOf("a", 96));
    const target = one.indexOf("engine-1");
    other.indexOf("engine-0");
    other.indexOf("engine-1");
    for (const { index, slots } of [one, other]) index.placements.setCapacity(slots.find("engine-1"), 100);
    one.tier.placements.place(target, prompt, 60_000);
    expect([one.placed("engine-1", prompt.chain), other.placed("engine-1", prompt.chain)]).toEqual([6, 0]);
    expect(cluster.until(() => other.placed("engine-1", prompt.chain) === 6)).toBeLessThan(100);
    expect(other.placed("engine-0", prompt.chain)).toBe(0);
    other.tier.placements.refute(other.indexOf("engine-1"), prompt, 2);
    cluster.until(() => one.placed("engine-1", prompt.chain) === 2);
    expect(other.placed("engine-1", prompt.chain)).toBe(2);
  });
});

// After an engine had emptied its cache, or evicted a prompt, every router believed the prompt there until its placement's
// ten seconds were over. Mechanism: facts and placements are folded apart, and the longer of the two counted.
describe("a placement that facts refute", () => {
  const prompt = promptOf(tokensOf("a", 96));
  const routers = () => [one, other];
  const placedAt = (blocks: number) => () =>
    routers().every((router) => router.placed(engine.key, prompt.chain) === blocks);

  beforeEach(async () => {
    await readTogether();
    for (const { index, slots } of routers()) index.placements.setCapacity(slots.find(engine.key), 100);
    one.tier.placements.place(one.indexOf(engine.key), prompt, 60_000);
    engine.store(prompt.chain);
    cluster.until(() => routers().every((router) => router.held(engine.key, prompt.chain) === 6));
    cluster.until(placedAt(6));
  });

  test("ends in every router when the engine has emptied its cache", () => {
    engine.clear();
    expect(cluster.until(placedAt(0))).toBeLessThan(100);
    expect(routers().map((router) => router.held(engine.key, prompt.chain))).toEqual([0, 0]);
    other.tier.placements.place(other.indexOf(engine.key), prompt, 60_000);
    expect(cluster.until(placedAt(6))).toBeLessThan(100);
  });

  test("ends in every router where the engine has evicted it, and begins again with the next request", () => {
    engine.replace(prompt.chain, 5, chainOf(7, 20));
    expect(cluster.until(placedAt(5))).toBeLessThan(100);
    expect(routers().map((router) => router.held(engine.key, prompt.chain))).toEqual([5, 5]);
    other.tier.placements.place(other.indexOf(engine.key), prompt, 60_000);
    expect(cluster.until(placedAt(6))).toBeLessThan(100);
  });
});

describe("a router that ends", () => {
  test("by draining hands its feeds over, and still has what the other one reads", async () => {
    await readTogether();
    const [owner, backup] = byRole();
    engine.store(chainOf(1, 4));
    cluster.until(() => owner.held(engine.key, chainOf(1, 4)) === 4 && backup.held(engine.key, chainOf(1, 4)) === 4);
    owner.tier.setDraining();
    cluster.until(() => backup.tier.backend.members()[0]?.isDraining === true);
    cluster.until(() => roleOf(backup) === "owner" && backup.tier.ownership.ownerOf(engine.key) === backup.name);
    cluster.until(() => owner.tier.ownership.ownerOf(engine.key) === backup.name && roleOf(owner) !== "owner");
    engine.store(chainOf(2, 5));
    cluster.until(() => [owner, backup].every((router) => router.held(engine.key, chainOf(2, 5)) === 5));
    expect(owner.held(engine.key, chainOf(1, 4))).toBe(4);
  });

  test("takes no feed of an engine that comes while it drains, from the moment at which it was told to", async () => {
    await readTogether();
    one.tier.setDraining();
    const engines = Array.from({ length: 8 }, (_, at) => new ScriptedEngine(`new-${at}`, cluster.time.scheduler));
    for (const router of [one, other]) for (const each of engines) router.read(each);
    expect(engines.map(({ key }) => roleOf(one, key))).not.toContain("owner");
    cluster.until(() => engines.every(({ key }) => roleOf(other, key) === "owner" && roleOf(one, key) !== "owner"));
  });

  test("by stopping says goodbye: the other one reads its feeds sooner than it would miss it", async () => {
    await readTogether();
    const [owner, backup] = byRole();
    await owner.tier.stop();
    expect(cluster.until(() => roleOf(backup) === "owner")).toBeLessThan(500);
    engine.store(chainOf(3, 3));
    expect(cluster.until(() => backup.held(engine.key, chainOf(3, 3)) === 3)).toBeLessThan(500);
    expect(backup.tier.backend.members().map(({ state }) => state)).not.toContain("alive");
  });

  test("leaves no timer behind", async () => {
    await readTogether();
    engine.store(chainOf(1, 4));
    one.tier.placements.place(one.indexOf(engine.key), promptOf(tokensOf("a", 96)), 60_000);
    for (const { tier } of [one, other]) await tier.stop();
    cluster.time.advance(60_000);
    expect(cluster.time.pendingCount).toBe(0);
  });
});

test("engines that a router cannot reach are owned by the other one, which hears of it after two seconds", async () => {
  await startBoth();
  const engines = Array.from({ length: 8 }, (_, at) => new ScriptedEngine(`engine-${at}`, cluster.time.scheduler));
  for (const each of engines) {
    each.isReachedBy = (reader) => reader === "b";
    for (const router of [one, other]) router.read(each);
    each.store(chainOf(4, 2));
  }
  const unreached = () => [...(other.tier.backend.members()[0]?.unreachable ?? [])].sort();
  cluster.time.advance(1_900);
  expect(engines.filter(({ readers }) => readers.includes("a"))).toEqual(engines);
  expect(unreached()).toEqual([]);
  const keys = engines.map(({ key }) => key);
  expect(cluster.until(() => unreached().join() === keys.join())).toBeLessThan(2_000);
  cluster.until(() => keys.every((key) => roleOf(other, key) === "owner" && roleOf(one, key) !== "owner"));
  cluster.until(() =>
    keys.every((key) => one.tier.ownership.ownerOf(key) === "b" && one.held(key, chainOf(4, 2)) === 2),
  );
});

describe("new epoch of an engine", () => {
  test("is told at both routers, by their own numbers, once for each, and not for the first", async () => {
    await startBoth();
    other.indexOf("engine-0");
    const reported: string[] = [];
    for (const { name, tier } of [one, other]) tier.onNewEpoch((slot) => reported.push(`${name} ${slot}`));
    for (const router of [one, other]) router.read(engine);
    engine.store(chainOf(1, 4));
    cluster.until(() => [one, other].every((router) => router.held(engine.key, chainOf(1, 4)) === 4));
    engine.store(chainOf(2, 4));
    engine.lose(chainOf(5, 1));
    cluster.time.advance(1_000);
    expect(reported).toEqual([]);
    for (const seed of [3, 4]) {
      reported.length = 0;
      engine.restart();
      engine.store(chainOf(seed, 3));
      cluster.until(() => [one, other].every((router) => router.held(engine.key, chainOf(seed, 3)) === 3));
      cluster.time.advance(1_000);
      expect(reported.sort()).toEqual(["a 0", "b 1"]);
      expect(one.held(engine.key, chainOf(1, 4))).toBe(0);
    }
  });

  /** Of three routers each took itself for the reader in turn, and nobody read along, until the engine said something. */
  test.each([true, false])(
    "that is silent has one reader, and one reads along; the last reader gone: %s",
    async (isGone) => {
      await readTogether();
      const third = cluster.add("c");
      await third.tier.start();
      third.read(engine);
      const all = [one, other, third];
      engine.store(chainOf(1, 4));
      cluster.until(() => all.every((router) => router.held(engine.key, chainOf(1, 4)) === 4));
      cluster.time.advance(3_000);
      engine.restartAfter(isGone ? 0 : 3_000);
      cluster.time.advance(100);
      const last = all.find((router) => roleOf(router) === "owner")!;
      if (isGone) await last.tier.stop();
      const rest = all.filter((router) => !isGone || router !== last);
      cluster.time.advance(9_000);
      const expected = isGone ? ["backup", "owner"] : ["backup", "none", "owner"];
      expect(rest.map((router) => roleOf(router)).sort()).toEqual(expected);
      const reader = rest.find((router) => roleOf(router) === "owner")!;
      for (const { tier } of rest) expect(tier.ownership.ownerOf(engine.key)).toBe(reader.name);
      engine.store(chainOf(2, 3));
      cluster.until(() => rest.every((router) => router.held(engine.key, chainOf(2, 3)) === 3));
      for (const router of rest) expect(router.held(engine.key, chainOf(1, 4))).toBe(0);
      await third.tier.stop();
    },
  );
});
