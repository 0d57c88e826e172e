import { asRouterId, createSeededRandom, silentLogger, silentMeter } from "@espalier/core";
import type { Backend } from "@espalier/mesh";
import { createPrefixIndex } from "@espalier/prefix-index";
import { createRecentPrompts, maxKnownTargets } from "@espalier/routing";
import { createSharedTier, createTargetSlots, type FeedRole } from "@espalier/shared-tree";
import { createSharedBinds, createWorkSlices } from "@espalier/shared-tree/events";
import { blockSize, promptDigests, tokensOf } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { EngineFeeds } from "../../src/prefix/engine-feeds.ts";
import { createFakeTransport, stored } from "../prefix/fake-events.ts";
import { specOf, startScriptedFleet } from "../prefix/scripted-fleet.ts";

const ends: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

const endpoint = "tcp://a:5557";
const spec = specOf("a", { kvEvents: { endpoint, replay: undefined, topic: "kv-events" } });

/** The feeds of one engine, whose roles a test gives: the ownership, which is not started, gives none. */
async function startFeeds() {
  const scripted = await startScriptedFleet();
  const { time, fleet, http } = scripted;
  const unreachable: (readonly string[])[] = [];
  const alone: Backend = {
    ...{ kind: "mesh", bufferedBytes: 0, waitingFor: [], members: () => [], onMembers: () => () => {} },
    setUnreachable: (targets) => void unreachable.push(targets),
    ...{ setDraining() {}, async start() {}, async leave() {}, async stop() {} },
    describe: () => ({ kind: "mesh", address: null, members: [], refused: [], waitingFor: [] }),
  };
  const { replica, host } = createSharedTier({
    ...{ ...time, logger: silentLogger, meter: silentMeter, placementTtlMs: 600_000, createBackend: () => alone },
    router: asRouterId("r1"),
    index: createPrefixIndex({ maxTargets: maxKnownTargets, maxBlocks: 10_000, maxSets: 100 }),
    slots: createTargetSlots(maxKnownTargets),
  });
  await replica.start();
  const transport = createFakeTransport();
  const feeds = new EngineFeeds({
    ...time,
    ...{ fleet, http, digests: promptDigests, blockSize, host, maxReplays: 8, listen: undefined },
    recent: createRecentPrompts({ maxRequests: 100, maxBlocks: 10_000 }),
    slices: createWorkSlices(time),
    transport: createSharedBinds(transport, silentLogger),
    random: createSeededRandom(7),
    logger: silentLogger,
    meter: silentMeter,
  });
  await feeds.start();
  ends.push(
    () => replica.stop(),
    () => feeds.stop(),
  );
  await scripted.apply(spec);
  const settle = () => time.advanceAsync(100);
  const latest = () => transport.sockets.at(-1)!;
  const tell = async (sequence: number, letter: string, blocks: number) => {
    latest().tell(sequence, stored(tokensOf(letter, blocks * blockSize), { first: 100 * (sequence + 1) }));
    await settle();
  };
  const described = () => feeds.describe()[0]!;
  const setRole = (target: string, role: FeedRole) => {
    const feed = replica.feeds.get(target);
    if (feed) feed.role = role;
    host.roleChanged(target);
  };
  return {
    ...{ ...scripted, replica, unreachable, transport, feeds, settle, latest, tell, described },
    host: { ...host, setRole },
  };
}

test("a target is known from the beginning, and nothing is read before a role is given", async () => {
  const { host, transport, described } = await startFeeds();
  expect(host.targets()).toEqual(["a"]);
  expect(transport.sockets).toEqual([]);
  expect(described()).toMatchObject({
    ...{ target: "a", role: "none", owner: null, state: "off", reason: "not-started" },
    ...{ floatingBlocks: 0, unusable: null, blocks: { gpu: 0 } },
  });
});

test("an owner reads, claims, and what it reads is in the index and the journal", async () => {
  const { host, latest, tell, settle, described, replica, feeds, target } = await startFeeds();
  host.setRole("a", "owner");
  latest().up();
  await tell(0, "a", 4);
  expect(described()).toMatchObject({ role: "owner", owner: "r1", state: "live", blocks: { gpu: 4 } });
  expect(replica.feeds.claimOf("a")).toMatchObject({
    origin: { router: "r1" },
    claim: { quality: "complete", state: "live" },
  });
  expect(feeds.feedQualityOf(target("a").index)).toBe("complete");
  await tell(1, "b", 2);
  expect(described().blocks.gpu).toBe(6);
  await settle();
  expect(replica.store.stats().ownFactItems).toBeGreaterThan(0);
});

test("a backup reads along and writes nothing, until it becomes the owner: then all of it is there", async () => {
  const { host, latest, tell, settle, described, replica } = await startFeeds();
  host.setRole("a", "backup");
  latest().up();
  await tell(0, "a", 4);
  await tell(1, "b", 2);
  expect(described()).toMatchObject({ role: "backup", owner: null, blocks: { gpu: 0 } });
  host.setRole("a", "owner");
  await settle();
  expect(described()).toMatchObject({ role: "owner", owner: "r1", blocks: { gpu: 6 } });
  expect(replica.feeds.qualityOf("a")).toBe("complete");
});

test("an owner that loses its role closes its socket; the facts stay", async () => {
  const { host, latest, tell, transport, settle, described } = await startFeeds();
  host.setRole("a", "owner");
  latest().up();
  await tell(0, "a", 4);
  host.setRole("a", "none");
  await settle();
  expect(transport.open).toEqual([]);
  expect(described()).toMatchObject({ role: "none", blocks: { gpu: 4 } });
});

test("a role that is given again is taken up with a new socket", async () => {
  const { host, latest, tell, transport, described } = await startFeeds();
  host.setRole("a", "owner");
  latest().up();
  await tell(0, "a", 4);
  host.setRole("a", "none");
  host.setRole("a", "backup");
  expect([transport.sockets.length, transport.open.length, described().role]).toEqual([2, 1, "backup"]);
  host.setRole("a", "backup");
  expect(transport.sockets).toHaveLength(2);
});

test("a socket that is not connected for two seconds is told to be out of reach, until it is", async () => {
  const { host, latest, unreachable, time } = await startFeeds();
  host.setRole("a", "owner");
  await time.advanceAsync(1_900);
  expect(unreachable).toEqual([]);
  await time.advanceAsync(200);
  expect(unreachable).toEqual([["a"]]);
  latest().up();
  await time.advanceAsync(1_000);
  expect(unreachable).toEqual([["a"], []]);
});

test("messages that are missed make the claim partial", async () => {
  const { host, latest, tell, replica, settle } = await startFeeds();
  host.setRole("a", "owner");
  latest().up();
  await tell(0, "a", 4);
  await tell(5, "b", 2);
  await settle();
  expect(replica.feeds.claimOf("a")?.claim).toMatchObject({ quality: "partial", state: "partial" });
});

test("an engine whose process is another one is a new epoch: what was told of the old one is gone", async () => {
  const { host, latest, tell, transport, described, replica } = await startFeeds();
  host.setRole("a", "owner");
  latest().up();
  await tell(0, "a", 4);
  await tell(1, "b", 4);
  const before = replica.fold.state("a")?.epoch;
  transport.epoch = 1;
  await tell(0, "c", 3);
  expect(described().blocks.gpu).toBe(3);
  expect(replica.fold.state("a")?.epoch).not.toEqual(before);
});

test("an engine that goes takes its feed with it", async () => {
  const { host, latest, tell, fleet, transport, settle } = await startFeeds();
  host.setRole("a", "owner");
  latest().up();
  await tell(0, "a", 4);
  fleet.apply([]);
  await settle();
  expect([host.targets(), transport.open]).toEqual([[], []]);
  host.setRole("a", "owner");
  expect(transport.open).toEqual([]);
});

test("events that are elsewhere now are read there: the old feed makes room, the target stays one", async () => {
  const { host, latest, tell, apply, transport, settle } = await startFeeds();
  host.setRole("a", "owner");
  latest().up();
  await tell(0, "a", 4);
  await apply({ ...spec, kvEvents: { endpoint: "tcp://a:9999", replay: undefined, topic: "kv-events" } });
  await settle();
  expect(host.targets()).toEqual(["a"]);
  host.setRole("a", "owner");
  expect(transport.open).toEqual(["tcp://a:9999 connect kv-events"]);
});

test("a target that nobody reads here takes no role", async () => {
  const { host, transport } = await startFeeds();
  host.setRole("unknown", "owner");
  expect(transport.sockets).toEqual([]);
});
