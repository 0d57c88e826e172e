import { asTargetIndex } from "@espalier/core";
import { createPrefixMatches, type PrefixIndex } from "@espalier/prefix-index";
import { maxKnownTargets, type PromptBlocks } from "@espalier/routing";
import { promptOf, tokensOf } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import type { PoolTarget } from "../../src/prefix/engine-feeds.ts";
import { removed, stored } from "./fake-events.ts";
import { feedsRig, startFeedsRig, vllmSources } from "./feeds-rig.ts";
import { specOf } from "./scripted-fleet.ts";

const pool = (at: number, changes: Partial<PoolTarget["config"]> = {}): PoolTarget => ({
  name: `p${at}`,
  key: `pool p${at}`,
  index: asTargetIndex(100 + at),
  config: {
    name: `p${at}`,
    ...{ endpoint: `tcp://pool:${5_000 + at}`, replay: undefined, topic: "", models: ["*"], labels: {} },
    ...{ mooncake: undefined, keyPrefix: "" },
    ...changes,
  },
});

const tokens = tokensOf("a", 96);
const prompt = promptOf(tokens);
const external = { medium: "EXTERNAL" } as const;

/** Leading blocks of the prompt that a pool has, in whatever memory. */
function depth(index: PrefixIndex, { chain, blockCount }: PromptBlocks, at = 0): number {
  const matches = createPrefixMatches(maxKnownTargets);
  index.match(chain, blockCount, 0, matches);
  return matches.factBlocks[100 + at]!;
}

describe("a pool's events", () => {
  test("are read from the start on, without an engine, by its endpoint, topic and replay", async () => {
    const rig = await startFeedsRig({
      pools: [pool(0, { topic: "kv@" }), pool(1, { replay: "tcp://pool:6001" })],
    });
    expect(rig.transport.open).toEqual(["tcp://pool:5000 connect kv@", "tcp://pool:5001 connect "]);
    rig.socket("tcp://pool:5001").up();
    expect(rig.transport.replays).toEqual(["tcp://pool:6001 from 0"]);
    expect(rig.described).toEqual(["pool p0 tcp://pool:5000", "pool p1 tcp://pool:5001"]);
  });

  test("become facts of the pool, which follow what it drops in any order", async () => {
    const rig = await startFeedsRig({ pools: [pool(0), pool(1)] });
    const socket = rig.socket("tcp://pool:5000");
    socket.up();
    socket.tell(0, stored(tokens, { first: 1, ...external }));
    expect([depth(rig.index, prompt), depth(rig.index, prompt, 1)]).toEqual([6, 0]);
    expect(rig.feeds.feedQualityOf(asTargetIndex(100))).toBe("complete");
    socket.tell(1, { ...removed(1), ...external });
    expect(depth(rig.index, prompt)).toBe(0);
    socket.tell(2, stored(tokens.subarray(0, 16), { first: 1, ...external }), { ...removed(4), ...external });
    expect(depth(rig.index, prompt)).toBe(3);
    expect(rig.feeds.describe()[0]).toMatchObject({ target: "pool p0", blocks: { gpu: 0, external: 5 } });
  });

  test("of chunks larger than the router's blocks are cut into those", async () => {
    const rig = await startFeedsRig({ pools: [pool(0)] });
    const socket = rig.socket("tcp://pool:5000");
    socket.up();
    socket.tell(0, stored(tokens, { first: 1, size: 48, ...external }));
    socket.tell(1, { ...removed(2), ...external });
    expect(depth(rig.index, prompt)).toBe(3);
  });

  test("with adapters and salts are of other prompts", async () => {
    const rig = await startFeedsRig({ pools: [pool(0)] });
    const socket = rig.socket("tcp://pool:5000");
    socket.up();
    socket.tell(0, stored(tokens, { first: 1, adapter: "sql", ...external }));
    expect(depth(rig.index, prompt)).toBe(0);
    expect(depth(rig.index, promptOf(tokens, { adapter: "sql" }))).toBe(6);
  });

  test("that name blocks without their tokens count for nothing, and the feed says how many those are", async () => {
    const rig = await startFeedsRig({ pools: [pool(0)] });
    const socket = rig.socket("tcp://pool:5000");
    socket.up();
    const named = (...hashes: readonly number[]) => ({
      ...stored(new Uint32Array(), { first: 0, ...external }),
      hashes: hashes.map(BigInt),
    });
    socket.tell(0, named(1, 2), named(3));
    expect(rig.feeds.describe()[0]).toMatchObject({ unplacedBlocks: 3, state: "live", blocks: { external: 0 } });
    socket.tell(1, stored(tokens.subarray(0, 16), { first: 9 }), named(9));
    expect(rig.feeds.describe()[0]).toMatchObject({ unplacedBlocks: 3, blocks: { gpu: 1, external: 1 } });
    rig.transport.epoch = 1;
    socket.tell(0, stored(tokens.subarray(0, 16), { first: 9, ...external }));
    expect(rig.feeds.describe()[0]).toMatchObject({ unplacedBlocks: 0, blocks: { external: 1 } });
  });
});

describe("a pool beside engines", () => {
  test("outlives them, and its facts are its own", async () => {
    const rig = await startFeedsRig({ pools: [pool(0)] });
    rig.answers.a = { "/kv_event_sources": vllmSources(5557) };
    await rig.apply(specOf("a"));
    expect(rig.described).toEqual(["a tcp://a:5557", "pool p0 tcp://pool:5000"]);
    rig.socket("tcp://pool:5000").up();
    rig.socket("tcp://pool:5000").tell(0, stored(tokens, { first: 1, ...external }));
    await rig.apply();
    expect(rig.described).toEqual(["pool p0 tcp://pool:5000"]);
    expect(depth(rig.index, prompt)).toBe(6);
  });

  test("that runs anew has nothing of its former epoch", async () => {
    const rig = await startFeedsRig({ pools: [pool(0)] });
    const socket = rig.socket("tcp://pool:5000");
    socket.up();
    socket.tell(0, stored(tokens, { first: 1, ...external }));
    socket.tell(1, stored(tokensOf("b", 16), { first: 50, ...external }));
    rig.transport.epoch = 1;
    socket.tell(0, stored(tokensOf("c", 16), { first: 1, ...external }));
    expect(depth(rig.index, prompt)).toBe(0);
    expect(depth(rig.index, promptOf(tokensOf("c", 16)))).toBe(1);
  });

  test("is not believed while its socket is gone, nor before it was ever there", async () => {
    const rig = await startFeedsRig({ pools: [pool(0)] });
    const quality = () => rig.feeds.feedQualityOf(asTargetIndex(100));
    expect(quality()).toBe("void");
    const socket = rig.socket("tcp://pool:5000");
    socket.up();
    socket.tell(0, stored(tokens, { first: 1, ...external }));
    expect(quality()).toBe("complete");
    socket.down();
    expect(quality()).toBe("void");
    expect(rig.feeds.feedQualityOf(asTargetIndex(101))).toBe("none");
  });

  test("ends with the feeds, and begins with them only", async () => {
    const rig = await feedsRig({ pools: [pool(0)] });
    expect([rig.transport.open, rig.described]).toEqual([[], []]);
    await rig.feeds.start();
    expect(rig.transport.open).toHaveLength(1);
    await rig.feeds.stop();
    expect([rig.transport.open, rig.described]).toEqual([[], []]);
  });
});
