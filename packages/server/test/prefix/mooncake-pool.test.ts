import { asTargetIndex } from "@espalier/core";
import { mooncakeKey } from "@espalier/engine-model/kv-events";
import { createPrefixMatches } from "@espalier/prefix-index";
import { maxKnownTargets } from "@espalier/routing";
import { promptOf, tokensOf } from "@espalier/testing";
import { expect, test } from "vitest";
import type { PoolTarget } from "../../src/prefix/engine-feeds.ts";
import { maxListBytes } from "../../src/prefix/mooncake-pool.ts";
import { removed, stored } from "./fake-events.ts";
import { type FeedsRig, startFeedsRig, vllmSources } from "./feeds-rig.ts";
import { lateAnswer, specOf } from "./scripted-fleet.ts";

const index = asTargetIndex(100);
const pool = (changes: Partial<PoolTarget["config"]> = {}): PoolTarget => ({
  ...{ name: "Mooncake", key: "pool Mooncake", index },
  config: {
    ...{ name: "Mooncake", endpoint: undefined, replay: undefined, topic: "", models: ["*"], labels: {} },
    ...{ mooncake: "http://master:9003", keyPrefix: "" },
    ...changes,
  },
});
const tokens = tokensOf("a", 96);
const prompt = promptOf(tokens);
const keys = (...hashes: readonly number[]): string => hashes.map((hash) => mooncakeKey("m", BigInt(hash))).join("\n");

/** Two engines around a store whose master has these keys. */
async function poolRig(list = "", changes: Partial<PoolTarget["config"]> = {}) {
  const rig = await startFeedsRig({ pools: [pool(changes)] });
  rig.answers.master = { "/get_all_keys": list };
  for (const [at, id] of ["a", "b"].entries())
    rig.answers[id] = { "/kv_event_sources": vllmSources(5_000 + 1_000 * at) };
  await rig.apply(specOf("a"), specOf("b"));
  await settle(rig);
  return rig;
}

/** Until the next list has been read. */
const settle = (rig: FeedsRig): Promise<void> => rig.time.advanceAsync(1_100);

/** Publishes at an engine's sockets: that of its own feed and that of the pool. */
function tell(rig: FeedsRig, port: number, sequence: number, ...events: Parameters<typeof stored>[1][]): void {
  for (const socket of rig.transport.sockets.filter((one) => one.isOpen && one.endpoint.endsWith(`:${port}`))) {
    if (sequence === 0) socket.up();
    socket.tell(sequence, ...events.map((run) => stored(tokens, run)));
  }
}

function depth(rig: FeedsRig): number {
  const matches = createPrefixMatches(maxKnownTargets);
  rig.index.match(prompt.chain, prompt.blockCount, 0, matches);
  return matches.factBlocks[index]!;
}

const poolFeed = (rig: FeedsRig) => rig.feeds.describe().find(({ target }) => target === "pool Mooncake");

test("a store's keys become facts once an engine has announced what they are of, and end with the list", async () => {
  const rig = await poolRig(keys(1, 2, 3, 4, 5, 6));
  expect(depth(rig)).toBe(0);
  // It waits for what the engines replay.
  expect(poolFeed(rig)).toMatchObject({ state: "replaying", floatingBlocks: 6, unusable: null });
  tell(rig, 5_000, 0, { first: 1 });
  await settle(rig);
  expect(depth(rig)).toBe(6);
  expect(rig.feeds.feedQualityOf(index)).toBe("complete");
  expect(poolFeed(rig)).toMatchObject({ state: "live", floatingBlocks: 0, blocks: { gpu: 0, external: 6 } });
  // The engine drops its blocks, which the store keeps; then the store evicts one.
  for (const socket of rig.transport.sockets.filter(({ endpoint }) => endpoint.endsWith(":5000")))
    socket.tell(1, removed(1, 2, 3, 4, 5, 6));
  await settle(rig);
  expect(depth(rig)).toBe(6);
  rig.answers.master = { "/get_all_keys": keys(1, 2, 4, 5, 6) };
  await settle(rig);
  expect(depth(rig)).toBe(2);
});

test("a master that does not answer is not believed, and is again with the first list; one that restarted has nothing", async () => {
  const rig = await poolRig(keys(1, 2, 3, 4, 5, 6));
  tell(rig, 5_000, 0, { first: 1 });
  await settle(rig);
  rig.answers.master = { "/get_all_keys": "refused" };
  await settle(rig);
  expect(rig.feeds.feedQualityOf(index)).toBe("void");
  expect(poolFeed(rig)).toMatchObject({ state: "stale", reason: "socket-lost", unusable: null });
  rig.answers.master = { "/get_all_keys": "" };
  await settle(rig);
  expect([rig.feeds.feedQualityOf(index), depth(rig)]).toEqual(["complete", 0]);
  rig.answers.master = { "/get_all_keys": keys(1, 2) };
  await settle(rig);
  expect(depth(rig)).toBe(2);
});

test("engines with different hashes make the pool unusable until ten minutes after the last block named twice", async () => {
  const rig = await poolRig(keys(1, 2, 3, 4, 5, 6));
  tell(rig, 5_000, 0, { first: 1 });
  await settle(rig);
  tell(rig, 6_000, 0, { first: 101 });
  await settle(rig);
  expect([rig.feeds.feedQualityOf(index), depth(rig)]).toEqual(["none", 0]);
  expect(poolFeed(rig)?.unusable).toMatch(/PYTHONHASHSEED/);
  await rig.time.advanceAsync(601_000);
  expect(rig.feeds.feedQualityOf(index)).toBe("complete");
  tell(rig, 6_000, 1, { first: 101 });
  rig.answers.master = { "/get_all_keys": keys(1, 101, 102) };
  await settle(rig);
  expect(depth(rig)).toBe(2);
});

test("lists that take long are read less often, and quick ones every second again", async () => {
  const rig = await poolRig();
  const late = lateAnswer();
  rig.answers.master = { "/get_all_keys": late.answer };
  await settle(rig);
  await rig.time.advanceAsync(2_000);
  late.come("");
  rig.answers.master = { "/get_all_keys": "" };
  const before = rig.asked("master").length;
  await rig.time.advanceAsync(7_500);
  expect(rig.asked("master")).toHaveLength(before);
  await rig.time.advanceAsync(6_000);
  const after = rig.asked("master").length;
  expect(after).toBeGreaterThan(before);
  await rig.time.advanceAsync(3_000);
  expect(rig.asked("master")).toHaveLength(after + 3);
});

test("only engines with the pool's models and labels are read for it, as long as they are there", async () => {
  const rig = await poolRig(keys(1), { models: ["other"] });
  const readers = () => rig.transport.open.filter((one) => one.startsWith("tcp://a:")).length;
  expect(readers()).toBe(1);
  const labelled = await poolRig(keys(1, 2, 3, 4, 5, 6), { labels: { zone: "x" } });
  expect(labelled.transport.open.filter((one) => one.includes(":5000"))).toHaveLength(1);
  await labelled.apply(specOf("a", { labels: { zone: "x" } }), specOf("b"));
  await settle(labelled);
  expect(labelled.transport.open.filter((one) => one.includes(":5000"))).toHaveLength(2);
  expect(labelled.transport.open.filter((one) => one.includes(":6000"))).toHaveLength(1);
  await labelled.apply(specOf("b"));
  await settle(labelled);
  expect(labelled.transport.open.filter((one) => one.includes(":5000"))).toEqual([]);
  await labelled.feeds.stop();
  expect(labelled.transport.open).toEqual([]);
});

test("keys of several models, a list that is too long and a server that is no master are unusable, and say why", async () => {
  const rig = await poolRig(`${keys(1)}\n${mooncakeKey("n", 1n)}`);
  expect(poolFeed(rig)?.unusable).toBe("keys of several models (m, n): set key-prefix");
  for (const [answer, why] of [
    [404, /GET \/get_all_keys: 404/],
    ["x".repeat(maxListBytes + 1), /http:\/\/master:9003: EspalierError/],
  ] as const) {
    rig.answers.master = { "/get_all_keys": answer };
    await settle(rig);
    expect(poolFeed(rig)?.unusable).toMatch(why);
    expect(rig.feeds.feedQualityOf(index)).toBe("none");
  }
  rig.answers.master = { "/get_all_keys": keys(1) };
  await settle(rig);
  expect(rig.feeds.feedQualityOf(index)).toBe("complete");
});
