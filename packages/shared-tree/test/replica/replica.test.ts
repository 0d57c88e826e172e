import { createVirtualTime } from "@espalier/testing";
import { expect, test, vi } from "vitest";
import { chainOf, createNode, join, store, tellMembers } from "./replica-pair.ts";

const nobodyToAsk = (): void => {};

test("what one router reads of a target is known to the other within a tick, and is worth the same", () => {
  const time = createVirtualTime();
  const [a, b] = [createNode("a", time), createNode("b", time)];
  join([a, b]);
  const reader = a.replica.openFeed("engine", nobodyToAsk);
  reader.setQuality("complete", "live", "complete", null);
  reader.setRole("owner");
  const chain = chainOf(1, 20);
  store(reader, 0, chain);
  expect(a.heldBlocks("engine", chain)).toBe(20);
  time.advance(15);
  expect(b.heldBlocks("engine", chain)).toBe(20);
  expect([a.replica.feeds.qualityOf("engine"), b.replica.feeds.qualityOf("engine")]).toEqual(["complete", "complete"]);
  expect(b.replica.fold.statement("engine")).toEqual(a.replica.fold.statement("engine"));
});

test("the backup goes on where a router that died had ended, without loss", () => {
  const time = createVirtualTime();
  const nodes = [createNode("a", time), createNode("b", time), createNode("c", time)] as const;
  const [a, b, c] = nodes;
  join(nodes);
  const owner = a.replica.openFeed("engine", nobodyToAsk);
  const backup = b.replica.openFeed("engine", nobodyToAsk);
  for (const reader of [owner, backup]) reader.setQuality("complete", "live", "complete", null);
  owner.setRole("owner");
  backup.setRole("backup");
  const chains = Array.from({ length: 6 }, (_, seed) => chainOf(seed, 5));
  for (const [sequence, chain] of chains.slice(0, 3).entries()) {
    store(owner, sequence, chain);
    store(backup, sequence, chain);
  }
  time.advance(20);
  for (const sequence of [3, 4]) store(backup, sequence, chains[sequence]!);
  tellMembers(nodes, [b, c]);
  expect(c.replica.feeds.qualityOf("engine")).toBe("partial");
  backup.setRole("owner");
  store(backup, 5, chains[5]!);
  time.advance(20);
  for (const chain of chains) expect(c.heldBlocks("engine", chain)).toBe(5);
  expect(c.replica.fold.statement("engine")).toEqual(b.replica.fold.statement("engine"));
  expect(c.replica.feeds.claimOf("engine")?.origin.router).toBe("b");
  expect(c.replica.feeds.qualityOf("engine")).toBe("complete");
});

test("placements, load and bindings of one router reach the other", () => {
  const time = createVirtualTime();
  const [a, b] = [createNode("a", time), createNode("b", time)];
  join([a, b]);
  const chain = chainOf(3, 30);
  a.slots.slotOf("engine");
  b.slots.slotOf("engine");
  a.replica.placements.place("engine", chain, 30, { ttlMs: 60_000, isConfirmed: false });
  expect(a.placedBlocks("engine", chain)).toBe(30);
  a.replica.load.set("engine", {
    inFlight: 2,
    pendingPrefillTokens: 480,
    decodeTokens: 0,
    pendingWorkMs: 20,
    activeTokens: 0,
    lendingTokens: 0,
    yieldingInFlight: 0,
    answers: 0,
  });
  a.replica.bindings.set("resp_1", "engine", 60_000);
  expect(b.replica.load.shared.inFlight[b.slots.find("engine")]).toBe(2);
  time.advance(20);
  expect(b.placedBlocks("engine", chain)).toBe(30);
  expect(b.replica.bindings.get("resp_1")).toBe("engine");
});

// Two routers that begin another generation of the registry at once each move to a document of their own.
test("one router at a time begins another generation of the registry: the living one of the lowest id", async () => {
  const time = createVirtualTime();
  const nodes = [createNode("b", time), createNode("a", time)] as const;
  join(nodes);
  const rotations: string[] = [];
  for (const { replica } of nodes) {
    const { router } = replica.ports.origin;
    vi.spyOn(replica.registry, "needsRotation", "get").mockReturnValue(true);
    vi.spyOn(replica.registry, "rotate").mockImplementation(() => void rotations.push(router));
    await replica.start();
  }
  time.advance(1_000);
  expect(rotations).toEqual(["a"]);
  tellMembers(nodes, [nodes[0]]);
  time.advance(1_000);
  expect(rotations.slice(1).sort()).toEqual(["a", "b"]);
  for (const { replica } of nodes) await replica.stop();
});

test("every feed has a checkpoint, also one that hardly moves, when the own journal is too long", () => {
  const time = createVirtualTime();
  const [a, b] = [createNode("a", time), createNode("b", time)];
  join([a, b]);
  const readers = ["busy", "slow"].map((target) => a.replica.openFeed(target, nobodyToAsk));
  for (const reader of readers) {
    reader.setQuality("complete", "live", "complete", null);
    reader.setRole("owner");
  }
  let sequence = 0;
  const readBoth = (): void => {
    for (const reader of readers) store(reader, sequence, chainOf(sequence, 2));
    sequence += 1;
    time.advance(20);
  };
  for (let round = 0; round < 40; round++) readBoth();
  const before = a.replica.store.stats().ownFactItems;
  expect(before).toBeGreaterThan(20);
  const isLong = vi.spyOn(a.replica.store.own, "isLong", "get").mockReturnValue(true);
  readBoth();
  isLong.mockReturnValue(false);
  for (let round = 0; round < 2; round++) readBoth();
  expect(a.replica.store.stats().ownFactItems).toBeLessThan(before / 2);
  expect(b.heldBlocks("slow", chainOf(sequence - 1, 2))).toBe(2);
});
