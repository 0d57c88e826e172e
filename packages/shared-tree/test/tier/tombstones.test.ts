import { promptOf, tokensOf } from "@espalier/testing";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { HostedFeed } from "../../src/feeds/feed-host.ts";
import { tombstoneMs } from "../../src/replica/tombstones.ts";
import { chainOf, ScriptedEngine } from "./scripted-engine.ts";
import { TierCluster, type TierRouter } from "./tier-rig.ts";

/** A sweep and what it takes to tell the others. */
const slackMs = 11_000;
const guessTtlMs = 100_000;

let cluster: TierCluster;
let routers: TierRouter[];
let engine: ScriptedEngine;
let feeds: HostedFeed[];

beforeEach(async () => {
  cluster = new TierCluster();
  routers = [cluster.add("a"), cluster.add("b")];
  engine = new ScriptedEngine("engine-1", cluster.time.scheduler);
  for (const { tier } of routers) await tier.start();
  feeds = routers.map((router) => router.read(engine));
  engine.store(chainOf(1, 4));
  cluster.until(() => haveIt(4));
});

afterEach(async () => {
  for (const { tier } of routers) await tier.stop();
});

const haveIt = (blocks: number, seed = 1, of = routers) =>
  of.every((router) => router.held(engine.key, chainOf(seed, 4)) === blocks);
const declaredTargets = ({ replica }: TierRouter["tier"]) =>
  Array.from(replica.store.own.feeds(), ({ declaration }) => declaration.target);
const foldedTargets = () => routers.map(({ tier }) => tier.replica.describe().targets.length);
const leave = async (): Promise<void> => {
  for (const feed of feeds.splice(0)) await feed.stop();
};

test("what an engine held that left every fleet is forgotten everywhere: index, journals, numbers, guesses", async () => {
  for (const router of routers) router.index.placements.setCapacity(router.indexOf(engine.key), 100);
  const [one, other] = routers as [TierRouter, TierRouter];
  one.tier.placements.place(one.indexOf(engine.key), promptOf(tokensOf("a", 96)), guessTtlMs);
  cluster.until(() => other.placed(engine.key, promptOf(tokensOf("a", 96)).chain) === 6);
  await leave();
  cluster.time.advance(tombstoneMs - 1_000);
  expect(haveIt(4)).toBe(true);
  cluster.time.advance(slackMs);
  expect(routers.map(({ index }) => index.factCount)).toEqual([0, 0]);
  expect(routers.map(({ index }) => index.placements.placedBlocks)).toEqual([0, 0]);
  expect(routers.map(({ slots }) => slots.find(engine.key))).toEqual([-1, -1]);
  expect(foldedTargets()).toEqual([0, 0]);
  // What nobody needs leaves a journal with the next thing that is written, once no guess refers to it.
  cluster.time.advance(guessTtlMs);
  const next = Array.from({ length: 8 }, (_, at) => new ScriptedEngine(`next-${at}`, cluster.time.scheduler));
  feeds = routers.flatMap((router) => next.map((each) => router.read(each)));
  for (const seed of [2, 3]) {
    for (const each of next) each.store(chainOf(seed, 4));
    cluster.until(() => routers.every((router) => next.every(({ key }) => router.held(key, chainOf(seed, 4)) === 4)));
  }
  expect(routers.flatMap(({ tier }) => declaredTargets(tier))).not.toContain(engine.key);
});

test("a router that comes later forgets what it was told of an engine that nobody has", async () => {
  await leave();
  const late = cluster.add("c");
  routers.push(late);
  await late.tier.start();
  cluster.until(() => haveIt(4, 1, [late]));
  cluster.time.advance(tombstoneMs + slackMs);
  expect(routers.map(({ index }) => index.factCount)).toEqual([0, 0, 0]);
  expect(foldedTargets()).toEqual([0, 0, 0]);
});

test("an engine that is in one fleet yet is kept there, and everywhere while somebody reads it", async () => {
  const [one, other] = routers as [TierRouter, TierRouter];
  const isOwner = ({ tier }: TierRouter) => tier.ownership.roleOf(engine.key) === "owner";
  const [owner, reader] = isOwner(one) ? [one, other] : [other, one];
  await feeds[routers.indexOf(reader)]!.stop();
  cluster.time.advance(tombstoneMs + slackMs);
  expect(haveIt(4)).toBe(true);
  owner.fleet.add(engine.key);
  await feeds[routers.indexOf(owner)]!.stop();
  cluster.time.advance(tombstoneMs + slackMs);
  expect([haveIt(4, 1, [owner]), haveIt(0, 1, [reader])]).toEqual([true, true]);
});

test("one that is back before is as it was; one that is back later is read anew by all", async () => {
  await leave();
  cluster.time.advance(tombstoneMs - 5_000);
  feeds = routers.map((router) => router.read(engine));
  cluster.time.advance(tombstoneMs + slackMs);
  expect(haveIt(4)).toBe(true);
  await leave();
  cluster.time.advance(tombstoneMs + slackMs);
  expect(haveIt(0)).toBe(true);
  feeds = routers.map((router) => router.read(engine));
  engine.store(chainOf(2, 4));
  cluster.until(() => haveIt(4, 1) && haveIt(4, 2));
  const qualities = () => routers.map(({ tier, indexOf }) => tier.feedQualityOf(indexOf(engine.key)));
  cluster.until(() => qualities().every((quality) => quality === "complete"));
});

test("more engines than there are numbers for come and go", async () => {
  for (let generation = 0; generation < 3; generation++) {
    await leave();
    cluster.time.advance(tombstoneMs + slackMs);
    const engines = Array.from(
      { length: 8 },
      (_, at) => new ScriptedEngine(`${generation}-${at}`, cluster.time.scheduler),
    );
    feeds = routers.flatMap((router) => engines.map((each) => router.read(each)));
    for (const each of engines) each.store(chainOf(3, 4));
    cluster.until(() => routers.every((router) => engines.every(({ key }) => router.held(key, chainOf(3, 4)) === 4)));
  }
});
