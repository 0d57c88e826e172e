import { asRouterId, asTargetIndex, silentLogger, silentMeter } from "@espalier/core";
import { createPrefixIndex, tier } from "@espalier/prefix-index";
import { createVirtualTime } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { createTargetSlots } from "../../src/facts/target-slots.ts";
import type { FeedRole } from "../../src/feeds/decide-role.ts";
import type { EventReading, FeedOutput } from "../../src/feeds/feed-host.ts";
import type { FeedReader } from "../../src/feeds/feed-reader.ts";
import type { FeedTable } from "../../src/feeds/feed-table.ts";
import type { Ownership } from "../../src/feeds/ownership.ts";
import { createReachability, createSharedHost, type SharedHost } from "../../src/feeds/shared-host.ts";
import { createReplica } from "../../src/replica/replica.ts";
import { chainOf, connectMs, ScriptedEngine } from "../tier/scripted-engine.ts";
import { feedsWith } from "./fleet.ts";

const ends: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

/** Gives roles, as the ownership does. */
const rolesOf = (feeds: FeedTable, host: SharedHost) => (target: string, role: FeedRole) => {
  const feed = feeds.get(target);
  if (feed) feed.role = role;
  host.roleChanged(target);
};

/** The feed of one engine, whose roles a test gives as the ownership would. */
async function startHost() {
  const time = createVirtualTime();
  const index = createPrefixIndex({ maxTargets: 4, maxBlocks: 10_000, maxSets: 100 });
  const slots = createTargetSlots(4);
  const replica = createReplica({
    ...{ ...time, logger: silentLogger, meter: silentMeter, placementTtlMs: 600_000 },
    ...{ router: asRouterId("r1"), index, slots },
  });
  await replica.start();
  ends.push(() => replica.stop());
  const reported: string[] = [];
  const unreachable: (readonly string[])[] = [];
  const ownership = {
    addTarget: (target: string) => void reported.push(`add ${target}`),
    removeTarget: (target: string) => void reported.push(`remove ${target}`),
    setQuality: (target: string, quality: string) => void reported.push(`${target} is worth ${quality}`),
  } as unknown as Ownership;
  const { feeds } = replica;
  const host = createSharedHost({
    ...{ feeds, ownership, openFeed: (target, tellAll) => replica.openFeed(target, tellAll) },
    reachability: createReachability(time.scheduler, () => {
      unreachable.push([...feeds.all()].flatMap(({ target, isUnreachable }) => (isUnreachable ? [target] : [])));
    }),
    blocksOf: (target) => ({
      gpu: slots.find(target) < 0 ? 0 : index.factBlockCount(slots.find(target), tier.gpu),
      ...{ cpu: 0, disk: 0, external: 0 },
    }),
  });
  const engine = new ScriptedEngine("a", time.scheduler);
  const open = () => host.open({ index: asTargetIndex(slots.slotOf("a")), key: "a" }, engine.readBy("r1"));
  return {
    time,
    replica,
    host: { ...host, setRole: rolesOf(feeds, host) },
    engine,
    reported,
    unreachable,
    open,
    feed: open(),
  };
}

test("a target is known to the ownership from the beginning, and nothing is read before a role is given", async () => {
  const { reported, host, engine, feed } = await startHost();
  expect([reported, host.targets(), engine.readers]).toEqual([["add a"], ["a"], []]);
  expect(feed.quality).toBe("none");
  expect(feed.describe()).toEqual({
    ...{ target: "a", role: "none", owner: null, state: "off", reason: "not-started" },
    ...{ floatingBlocks: 0, unusable: null, blocks: { gpu: 0, cpu: 0, disk: 0, external: 0 } },
  });
});

test("an owner reads and claims; what it read is worth what its feed is", async () => {
  const { host, engine, reported, time, replica, feed } = await startHost();
  engine.store(chainOf(1, 4));
  host.setRole("a", "owner");
  expect(reported.at(-1)).toBe("a is worth void");
  time.advance(connectMs);
  expect(reported.at(-1)).toBe("a is worth complete");
  time.advance(100);
  expect(feed.describe()).toMatchObject({ role: "owner", owner: "r1", state: "live", blocks: { gpu: 4 } });
  expect(replica.feeds.claimOf("a")).toMatchObject({
    origin: { router: "r1" },
    claim: { quality: "complete", state: "live" },
  });
  expect(feed.quality).toBe("complete");
  expect(replica.store.stats().ownFactItems).toBeGreaterThan(0);
});

test("a backup reads along and writes nothing, until it becomes the owner: then all of it is there", async () => {
  const { host, engine, time, replica, feed, reported } = await startHost();
  host.setRole("a", "backup");
  time.advance(connectMs);
  for (let seed = 1; seed <= 3; seed++) engine.store(chainOf(seed, seed));
  time.advance(100);
  expect(reported.at(-1)).toBe("a is worth complete");
  expect([feed.describe().role, feed.describe().blocks.gpu, replica.store.stats().ownFactItems]).toEqual([
    ...["backup", 0, 0],
  ]);
  host.setRole("a", "owner");
  time.advance(100);
  expect(feed.describe()).toMatchObject({ role: "owner", owner: "r1", blocks: { gpu: 6 } });
});

test("an owner that is told so again goes on with the reading that it has", async () => {
  const { host, engine, time, feed } = await startHost();
  host.setRole("a", "owner");
  time.advance(connectMs);
  engine.store(chainOf(1, 4));
  for (let again = 0; again < 3; again++) host.setRole("a", "owner");
  time.advance(100);
  expect([engine.readers, feed.describe().blocks.gpu]).toEqual([["r1"], 4]);
});

test("who loses its role reads no more, and is worth nothing; the facts stay", async () => {
  const { host, engine, time, reported, feed } = await startHost();
  host.setRole("a", "owner");
  time.advance(connectMs);
  engine.store(chainOf(1, 4));
  host.setRole("a", "none");
  time.advance(100);
  expect([engine.readers, reported.at(-1)]).toEqual([[], "a is worth none"]);
  expect(feed.describe()).toMatchObject({ role: "none", floatingBlocks: 0, blocks: { gpu: 4 } });
  const before = reported.length;
  host.setRole("a", "none");
  expect(reported).toHaveLength(before);
});

test("a role that is given again is taken up with a new reading", async () => {
  const { host, engine, time, feed } = await startHost();
  host.setRole("a", "owner");
  feed.attach();
  expect(feed.describe().floatingBlocks).toBe(1);
  host.setRole("a", "none");
  feed.attach();
  host.setRole("a", "backup");
  time.advance(connectMs);
  expect([engine.readers, feed.describe().role, feed.describe().floatingBlocks]).toEqual([["r1"], "backup", 0]);
});

test("an engine that is not connected for two seconds is told to be out of reach, until it is", async () => {
  const { host, engine, time, unreachable } = await startHost();
  engine.isReachedBy = () => false;
  host.setRole("a", "owner");
  time.advance(1_999);
  expect(unreachable).toEqual([]);
  time.advance(1);
  expect(unreachable).toEqual([["a"]]);
  host.setRole("a", "none");
  time.advance(10_000);
  expect(unreachable).toEqual([["a"]]);
  engine.isReachedBy = () => true;
  host.setRole("a", "backup");
  time.advance(connectMs);
  expect(unreachable).toEqual([["a"], []]);
});

test("messages that are missed make the claim partial", async () => {
  const { host, engine, time, replica } = await startHost();
  host.setRole("a", "owner");
  time.advance(connectMs);
  engine.store(chainOf(1, 4));
  engine.lose(chainOf(2, 4));
  time.advance(100);
  expect(replica.feeds.claimOf("a")?.claim).toMatchObject({ quality: "partial", state: "partial", reason: "gap" });
});

test("an engine whose process is another one is a new epoch: what was told of the old one is gone", async () => {
  const { host, engine, time, replica, feed } = await startHost();
  host.setRole("a", "owner");
  time.advance(connectMs);
  engine.store(chainOf(1, 4));
  time.advance(100);
  const before = replica.fold.state("a")?.epoch;
  engine.restart();
  engine.store(chainOf(2, 3));
  time.advance(100);
  expect(feed.describe().blocks.gpu).toBe(3);
  expect(replica.fold.state("a")?.epoch).not.toEqual(before);
});

test("a feed that is stopped is gone from the ownership, and takes no role any more", async () => {
  const { host, engine, time, reported, feed } = await startHost();
  host.setRole("a", "owner");
  time.advance(connectMs);
  await feed.stop();
  expect([reported.includes("remove a"), host.targets(), engine.readers]).toEqual([true, [], []]);
  host.setRole("a", "owner");
  expect(engine.readers).toEqual([]);
});

test("a feed that another one of its target has replaced takes nothing from it when it stops", async () => {
  const { host, engine, time, reported, feed, open } = await startHost();
  host.setRole("a", "owner");
  time.advance(connectMs);
  const next = open();
  await feed.stop();
  expect([host.targets(), reported.includes("remove a"), engine.readers]).toEqual([["a"], false, []]);
  host.setRole("a", "owner");
  expect([engine.readers, next.describe().role]).toEqual([["r1"], "owner"]);
});

test("a target that nobody reads here takes no role", async () => {
  const { host, engine } = await startHost();
  host.setRole("unknown", "owner");
  expect(engine.readers).toEqual([]);
});

/** A host whose reader and reading a test plays. */
function playedHost() {
  const reported: unknown[][] = [];
  const note =
    (name: string) =>
    (...given: unknown[]) =>
      void reported.push([name, ...given]);
  const reader = {
    sink: {},
    ...Object.fromEntries(
      ["setRole", "batch", "gap", "newEpoch", "unknownRemovals", "setQuality", "stop"].map((name) => [
        name,
        note(name),
      ]),
    ),
  } as unknown as FeedReader;
  const qualities: string[] = [];
  const ownership = {
    ...{ addTarget() {}, removeTarget() {} },
    setQuality: (_target: string, quality: string) => void qualities.push(quality),
  } as unknown as Ownership;
  const feeds = feedsWith(() => []);
  const shared = createSharedHost({
    ...{ feeds, ownership },
    openFeed(target) {
      feeds.opened(target, reader);
      return reader;
    },
    reachability: { note: ({ target }, isConnected) => note("reach")(target, isConnected), forget: note("forget") },
    blocksOf: () => ({ gpu: 0, cpu: 0, disk: 0, external: 0 }),
  });
  const host = { ...shared, setRole: rolesOf(feeds, shared) };
  let output: FeedOutput | undefined;
  host.open({ index: asTargetIndex(0), key: "a" }, (given) => {
    output = given;
    return { start: async () => {}, stop: async () => {} } as EventReading;
  });
  host.setRole("a", "owner");
  return { reported, reader, qualities, host, output: output! as FeedOutput };
}

test("a reading that ends without another word is worth nothing to the ownership", () => {
  const { host, output, qualities } = playedHost();
  output.condition({ quality: "complete", state: "live", reason: "complete", unusable: undefined });
  host.setRole("a", "none");
  expect(qualities).toEqual(["complete", "none"]);
});

test("what a reading says goes to the reader of the feed, message by message", () => {
  const { reported, reader, output } = playedHost();
  const mark = { sequence: 3, timestampUs: 5, checksum: 7 };
  output.batch(mark, { isComplete: false, unknownRemovals: 0 });
  output.batch(mark, { isComplete: true, unknownRemovals: 2 });
  output.gap(4, 6);
  output.newEpoch();
  output.emptied();
  output.condition({ quality: "void", state: "connecting", reason: "socket-lost", unusable: "block size" });
  output.condition({ quality: "partial", state: "live", reason: "gap", unusable: undefined });
  output.condition({ quality: "none", state: "off", reason: "stopped", unusable: undefined });
  expect(output.sink).toBe(reader.sink);
  expect(reported).toEqual([
    ["setRole", "owner"],
    ["batch", mark, false],
    ["unknownRemovals", 2],
    ["batch", mark, true],
    ["gap", 4, 6],
    ["newEpoch"],
    ["setQuality", "void", "connecting", "socket-lost", "block size"],
    ["reach", "a", false],
    ["setQuality", "partial", "live", "gap", null],
    ["reach", "a", true],
    ["setQuality", "none", "off", "stopped", null],
    ["reach", "a", undefined],
  ]);
});
