import { asTargetIndex, createSeededRandom, silentLogger, silentMeter } from "@espalier/core";
import { createEventDecoder, type WireEvent } from "@espalier/engine-model/kv-events";
import type { Target } from "@espalier/engines";
import { createPrefixIndex, createPrefixMatches, type PrefixIndex, tier } from "@espalier/prefix-index";
import { createRecentPrompts, type PromptBlocks, type RecentPrompts } from "@espalier/routing";
import { createLocalOutput } from "@espalier/shared-tree";
import { createReplayGate, createWorkSlices } from "@espalier/shared-tree/events";
import {
  blockSize,
  createVirtualTime,
  joinTokens,
  promptDigests,
  promptOf,
  tokensOf,
  type VirtualTime,
} from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { TargetFeed } from "../../src/prefix/target-feed.ts";
import { createFakeTransport, type FakeSocket, type FakeTransport, removed, stored } from "./fake-events.ts";

const maxTargets = 4;

interface Rig {
  readonly feed: TargetFeed;
  readonly index: PrefixIndex;
  readonly recent: RecentPrompts;
  readonly time: VirtualTime;
  readonly transport: FakeTransport;
  readonly socket: FakeSocket;
  /** Targets that were forgotten. */
  readonly forgotten: number[];
  /** Targets that emptied their caches. */
  readonly emptied: number[];
  /** Lags of live messages, in milliseconds. */
  readonly lags: number[];
  /** Leading blocks of a prompt that the target has announced on its GPU. */
  depth(prompt: PromptBlocks): number;
  /** `STATE REASON STANDING` at present. */
  readonly state: string;
  settle(): Promise<void>;
}

interface RigOptions {
  /** What the engine has published in all; undefined has no replay. */
  readonly history?: () => readonly (readonly WireEvent[])[];
}

/** A feed of target 1 that has been started and is not connected yet. */
async function rig({ history }: RigOptions = {}): Promise<Rig> {
  const time = createVirtualTime();
  const transport = createFakeTransport();
  transport.history = history;
  const index = createPrefixIndex({ maxTargets, maxBlocks: 10_000, maxSets: 100 });
  const recent = createRecentPrompts({ maxRequests: 100, maxBlocks: 10_000 });
  const forgotten: number[] = [];
  const emptied: number[] = [];
  const lags: number[] = [];
  const feed = new TargetFeed(
    {
      ...time,
      random: createSeededRandom(1),
      recent,
      digests: promptDigests,
      blockSize,
      decoder: createEventDecoder(),
      slices: createWorkSlices(time),
      replayGate: createReplayGate(),
      transport,
      onLag: (lagMs) => lags.push(lagMs),
      logger: silentLogger,
      meter: silentMeter,
    },
    { index: asTargetIndex(1), key: "engine-a#1" } as Target,
    {
      endpoint: "tcp://a:5557",
      mode: "connect",
      topic: "kv-events",
      replayEndpoint: history ? "tcp://a:5657" : undefined,
    },
    createLocalOutput(
      {
        index,
        forget(number) {
          forgotten.push(number);
          index.forgetTarget(number);
        },
        forgetPlacements(number) {
          emptied.push(number);
          index.placements.clear(number);
        },
      },
      asTargetIndex(1),
    ),
  );
  await feed.start();
  const matches = createPrefixMatches(maxTargets);
  return {
    ...{ feed, index, recent, time, transport, forgotten, emptied, lags, socket: transport.sockets[0]! },
    depth({ chain, blockCount }) {
      index.match(chain, blockCount, time.clock.nowMs(), matches);
      return matches.gpuBlocks[1]!;
    },
    get state() {
      const { state, reason } = feed.describe();
      return `${state} ${reason} ${feed.quality}`;
    },
    settle: () => time.advanceAsync(100),
  };
}

/** A feed that has everything since the engine's start. */
async function liveRig(): Promise<Rig> {
  const live = await rig();
  live.socket.up();
  return live;
}

const tokens = tokensOf("a", 96);
const prompt = promptOf(tokens);

describe("events become facts of the index", () => {
  test("blocks that are stored below one another", async () => {
    const { socket, depth, index, lags } = await liveRig();
    socket.tell(0, stored(tokens.subarray(0, 32), { first: 1 }));
    expect(depth(prompt)).toBe(2);
    socket.tell(1, stored(tokens.subarray(32, 80), { first: 3, parent: 2 }));
    expect(depth(prompt)).toBe(5);
    expect(depth(promptOf(tokensOf("b", 96)))).toBe(0);
    expect([lags.length, lags.every((lagMs) => lagMs >= 0)]).toEqual([2, true]);
    expect([0, 1, 2, 3].map((target) => index.factBlockCount(target, tier.gpu))).toEqual([0, 5, 0, 0]);
  });

  test("blocks that are removed, from the end or from the middle", async () => {
    const { socket, depth } = await liveRig();
    socket.tell(0, stored(tokens, { first: 1 }));
    socket.tell(1, removed(6));
    expect(depth(prompt)).toBe(5);
    socket.tell(2, removed(3));
    expect(depth(prompt)).toBe(2);
    socket.tell(3, stored(tokens.subarray(32, 48), { first: 3, parent: 2 }));
    expect(depth(prompt)).toBe(5);
  });

  /** Blocks below others that no message announced are in no chain: the feed said `live`, `complete` without them. */
  test("of blocks below unknown ones none: the feed is partial and says so, until the unknown ones are announced", async () => {
    const live = await liveRig();
    const { socket, depth } = live;
    socket.tell(0, stored(tokens.subarray(0, 16), { first: 1 }));
    expect(live.state).toBe("live complete complete");
    socket.tell(1, stored(tokens.subarray(32, 64), { first: 3, parent: 2 }));
    expect([live.state, depth(prompt)]).toEqual(["partial unknown-parents partial", 1]);
    socket.tell(2, stored(tokens.subarray(16, 32), { first: 2, parent: 1 }));
    expect([live.state, depth(prompt)]).toEqual(["live complete complete", 4]);
    socket.tell(3, stored(tokens.subarray(64, 80), { first: 90, parent: 80 }));
    expect(live.state).toBe("partial unknown-parents partial");
    socket.tell(4, { type: "cleared" });
    expect(live.state).toBe("live complete complete");
  });

  test.each([4, 8, 32, 48])("whatever the engine's block size: %i tokens", async (size) => {
    const { socket, depth, feed } = await liveRig();
    socket.tell(0, stored(tokens, { first: 1, size }));
    expect(depth(prompt)).toBe(6);
    expect(feed.describe()).toMatchObject({ unusable: null, blocks: { gpu: 6 } });
    socket.tell(1, removed(96 / size));
    expect(depth(prompt)).toBe(size < blockSize ? 5 : 6 - size / blockSize);
  });

  test("tiers are kept apart", async () => {
    const { socket, depth, feed, index } = await liveRig();
    socket.tell(0, stored(tokens.subarray(0, 32), { first: 1 }));
    // vLLM announces what it offloads block by block.
    socket.tell(1, stored(tokens.subarray(32, 48), { first: 3, parent: 2, medium: "CPU" }));
    socket.tell(2, stored(tokens.subarray(48, 64), { first: 4, parent: 3, medium: "CPU" }));
    socket.tell(3, stored(tokens.subarray(64, 80), { first: 5, parent: 4, medium: "DISK" }));
    socket.tell(4, stored(tokens.subarray(80, 96), { first: 6, parent: 5, medium: "EXTERNAL" }));
    expect(depth(prompt)).toBe(2);
    expect(feed.describe().blocks).toEqual({ gpu: 2, cpu: 2, disk: 1, external: 1 });
    expect([0, 1, 2, 3].map((inTier) => index.factBlockCount(1, inTier as 0 | 1 | 2 | 3))).toEqual([2, 2, 1, 1]);
  });

  test.each<[string, Parameters<typeof promptOf>[1] & object]>([
    ["an adapter", { adapter: "sql" }],
    ["a cache salt", { cacheSalt: "tenant-7" }],
    ["both", { adapter: "sql", cacheSalt: "tenant-7" }],
  ])("blocks of %s are found by prompts with it, and by no other", async (_, names) => {
    const { socket, depth } = await liveRig();
    socket.tell(0, stored(tokens, { first: 1, ...names }));
    expect(depth(promptOf(tokens, names))).toBe(6);
    for (const other of [{}, { adapter: "other" }, { cacheSalt: "tenant-8" }]) {
      expect(depth(promptOf(tokens, other)), JSON.stringify(other)).toBe(0);
    }
  });

  test("a cache that is emptied", async () => {
    const { socket, depth, emptied, forgotten, feed } = await liveRig();
    socket.tell(0, stored(tokens, { first: 1 }));
    socket.tell(1, { type: "cleared" }, stored(tokens.subarray(0, 16), { first: 1 }));
    expect(depth(prompt)).toBe(1);
    expect([emptied, forgotten, feed.quality]).toEqual([[1], [], "complete"]);
  });

  test.each([24, 5, 16 * 257])(
    "blocks of %i tokens fit those of the index in no way: the feed says so",
    async (size) => {
      const { socket, feed, index } = await liveRig();
      socket.tell(0, stored(tokensOf("a", size), { first: 1, size }));
      expect(feed.describe()).toMatchObject({ unusable: "block-size-ratio", blocks: { gpu: 0 } });
      // So that what is sent there is remembered for long, as without events.
      expect(feed.quality).toBe("none");
      expect(index.factCount).toBe(0);
    },
  );

  test("a block size that changes voids what was known", async () => {
    const { socket, feed, index } = await liveRig();
    socket.tell(0, stored(tokens, { first: 1 }));
    socket.tell(1, stored(tokensOf("b", 64), { first: 10, size: 32 }));
    expect(feed.describe().unusable).toBe("block-size-changed");
    expect(index.factCount).toBe(0);
  });
});

describe("what the events are worth", () => {
  test("from the engine's first message on they are complete", async () => {
    const live = await rig();
    expect(live.state).toBe("stale connecting void");
    live.socket.up();
    expect(live.state).toBe("partial nothing-received partial");
    live.socket.tell(0, stored(tokens, { first: 1 }));
    expect(live.state).toBe("live complete complete");
  });

  test("from a later one on they are partial", async () => {
    const live = await liveRig();
    live.socket.tell(7, stored(tokens, { first: 1 }));
    expect(live.state).toBe("partial joined-late partial");
    expect(live.depth(prompt)).toBe(6);
  });

  test("a gap that nothing fills leaves them partial, and what was known stays", async () => {
    const live = await liveRig();
    live.socket.tell(0, stored(tokens.subarray(0, 48), { first: 1 }));
    live.socket.tell(2, stored(tokensOf("b", 32), { first: 10 }));
    await live.settle();
    expect(live.state).toBe("partial gap partial");
    expect([live.depth(prompt), live.depth(promptOf(tokensOf("b", 32)))]).toEqual([3, 2]);
  });

  test("a lost connection voids them until the engine is known to be the same", async () => {
    const live = await liveRig();
    live.socket.tell(0, stored(tokens.subarray(0, 48), { first: 1 }));
    live.socket.down();
    expect(live.state).toBe("stale socket-lost void");
    live.socket.up();
    expect(live.state).toBe("stale unverified void");
    live.socket.tell(1, stored(tokens.subarray(48), { first: 4, parent: 3 }));
    expect(live.state).toBe("live complete complete");
    expect(live.depth(prompt)).toBe(6);
    expect(live.forgotten).toEqual([]);
  });

  test("read late they are believed and not taken for all, until all is read", async () => {
    const live = await liveRig();
    live.socket.tell(0, stored(tokens, { first: 1 }));
    live.socket.backlog(true);
    live.time.advance(1_000);
    expect(live.state).toBe("stale behind partial");
    expect(live.depth(prompt)).toBe(6);
    live.socket.backlog(false);
    expect(live.state).toBe("live complete complete");
  });

  test("history fills what came before the connection, and is void until it has", async () => {
    const live = await rig({ history: () => [[stored(tokens, { first: 1 })]] });
    live.socket.up();
    expect(live.state).toBe("replaying first-connection void");
    await live.settle();
    expect(live.state).toBe("live complete complete");
    expect(live.depth(prompt)).toBe(6);
  });

  test("an engine that has published nothing yet is known completely: it holds nothing", async () => {
    const live = await rig({ history: () => [] });
    live.socket.up();
    await live.settle();
    expect(live.state).toBe("live nothing-published complete");
  });

  test("history fills a gap; meanwhile what is known is believed", async () => {
    const history = [[stored(tokens.subarray(0, 32), { first: 1 })]];
    const live = await rig({ history: () => history });
    live.socket.up();
    await live.settle();
    history.push([stored(tokens.subarray(32, 64), { first: 3, parent: 2 })]);
    history.push([stored(tokens.subarray(64, 96), { first: 5, parent: 4 })]);
    live.socket.tell(2, ...history[2]!);
    live.time.advance(20);
    expect(live.state).toBe("replaying filling-gap partial");
    await live.settle();
    expect(live.state).toBe("live complete complete");
    expect(live.depth(prompt)).toBe(6);
  });

  test("history that is not to be had leaves them partial", async () => {
    const live = await rig({ history: () => [] });
    live.transport.history = undefined;
    live.socket.up();
    await live.time.advanceAsync(10_000);
    expect(live.state).toBe("partial replay-failed partial");
  });
});

describe("an engine that runs anew", () => {
  test("is known by its numbers: nothing of the old epoch holds", async () => {
    const live = await liveRig();
    live.socket.tell(0, stored(tokens, { first: 1 }));
    live.socket.tell(1, stored(tokensOf("b", 32), { first: 10 }));
    live.index.place(1, prompt.chain, 6, { nowMs: 0, ttlMs: 1_000 });
    live.socket.tell(0, stored(tokensOf("c", 32), { first: 1 }));
    expect(live.state).toBe("live complete complete");
    expect(["a", "b", "c"].map((letter) => live.depth(promptOf(tokensOf(letter, 96))))).toEqual([0, 0, 2]);
    expect(live.index.placements.placedBlocks).toBe(0);
    expect(new Set(live.forgotten)).toEqual(new Set([1]));
  });

  test("may use the old hashes for other blocks", async () => {
    const live = await liveRig();
    live.socket.tell(0, stored(tokens.subarray(0, 16), { first: 1 }));
    live.socket.tell(1, stored(tokens.subarray(16, 32), { first: 2, parent: 1 }));
    live.socket.tell(0, stored(tokensOf("c", 16), { first: 1 }));
    live.socket.tell(1, stored(tokens.subarray(0, 16), { first: 2, parent: 1 }));
    expect(live.depth(prompt)).toBe(0);
    expect(live.depth(promptOf(joinTokens(tokensOf("c", 16), tokens)))).toBe(2);
  });

  test("may have another block size", async () => {
    const live = await liveRig();
    live.socket.tell(0, stored(tokens, { first: 1 }));
    live.socket.tell(1, stored(tokensOf("b", 16), { first: 10 }));
    live.socket.tell(0, stored(tokens, { first: 1, size: 32 }));
    expect(live.feed.describe()).toMatchObject({ unusable: null, blocks: { gpu: 6 }, restarts: 1 });
  });
});

describe("blocks whose parent was never told", () => {
  const tail = stored(tokens.subarray(32), { first: 3, parent: 2 });

  test("float until a prompt shows where they belong", async () => {
    const live = await liveRig();
    live.socket.tell(9, tail);
    expect(live.feed.describe()).toMatchObject({ floatingBlocks: 5, blocks: { gpu: 0 } });
    live.feed.attach();
    expect(live.feed.describe().floatingBlocks).toBe(5);
    live.recent.add(prompt);
    live.feed.attach();
    expect(live.feed.describe()).toMatchObject({ floatingBlocks: 0, blocks: { gpu: 4 } });
    expect(live.depth(prompt)).toBe(0);
    live.socket.tell(10, stored(tokens.subarray(0, 32), { first: 1 }));
    expect(live.depth(prompt)).toBe(6);
  });

  test("are given their place at once when the prompt was there before", async () => {
    const live = await liveRig();
    live.recent.add(prompt);
    live.socket.tell(9, tail);
    expect(live.feed.describe()).toMatchObject({ floatingBlocks: 0, blocks: { gpu: 4 } });
  });

  test("go with the name that the engine gave them, also when nobody ever placed them", async () => {
    const live = await liveRig();
    live.socket.tell(9, tail);
    live.socket.tell(10, removed(3, 4, 5, 6));
    expect(live.feed.describe().floatingBlocks).toBe(0);
    live.recent.add(prompt);
    live.feed.attach();
    expect(live.index.factCount).toBe(0);
  });

  test("do not attach where two prompts have them in different places", async () => {
    const live = await liveRig();
    live.recent.add(prompt);
    live.recent.add(promptOf(joinTokens(tokensOf("b", 32), tokens.subarray(32))));
    live.socket.tell(9, tail);
    expect(live.feed.describe()).toMatchObject({ floatingBlocks: 5, blocks: { gpu: 0 } });
  });

  test("are void with the epoch that they are of", async () => {
    const live = await liveRig();
    live.socket.tell(9, tail);
    live.transport.epoch++;
    live.socket.tell(0, stored(tokensOf("c", 16), { first: 1 }));
    live.recent.add(prompt);
    live.feed.attach();
    expect(live.feed.describe()).toMatchObject({ floatingBlocks: 0, blocks: { gpu: 1 } });
  });
});

describe("the end of a feed", () => {
  test("forgets what it told, and hears nothing more", async () => {
    const live = await liveRig();
    live.socket.tell(0, stored(tokens, { first: 1 }));
    await live.feed.stop();
    expect(live.feed.quality).toBe("none");
    expect(live.index.factCount).toBe(0);
    expect(live.transport.open).toEqual([]);
    live.socket.tell(1, stored(tokens, { first: 1 }));
    expect(live.index.factCount).toBe(0);
  });

  test("leaves nothing that waits", async () => {
    const live = await rig({ history: () => [] });
    live.transport.history = undefined;
    live.socket.up();
    await live.feed.stop();
    await live.settle();
    expect(live.time.pendingCount).toBe(0);
  });
});

test("operators see the target, its connection and what it holds", async () => {
  const live = await liveRig();
  live.socket.tell(0, stored(tokens, { first: 1 }));
  expect(live.feed.describe()).toMatchObject({
    target: "engine-a#1",
    endpoint: "tcp://a:5557",
    replayEndpoint: null,
    mode: "connect",
    topic: "kv-events",
    state: "live",
    lastSequence: 0,
    messages: 1,
    blocksStored: 6,
    blocks: { gpu: 6, cpu: 0, disk: 0, external: 0 },
    floatingBlocks: 0,
    unusable: null,
  });
});
