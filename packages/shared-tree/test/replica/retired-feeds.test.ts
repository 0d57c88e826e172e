import { createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { chainOf, createNode, join, type Node, store } from "./replica-pair.ts";

const nobodyToAsk = (): void => {};
const tickMs = 15;

function pair(): { time: ReturnType<typeof createVirtualTime>; a: Node; b: Node } {
  const time = createVirtualTime();
  const [a, b] = [createNode("a", time), createNode("b", time)];
  join([a, b]);
  return { time, a, b };
}

function openFeed({ replica }: Node): ReturnType<Node["replica"]["openFeed"]> {
  const reader = replica.openFeed("engine", nobodyToAsk);
  reader.setQuality("complete", "live", "complete", null);
  return reader;
}

describe("an owner that stops reading", () => {
  test("takes its claim away in the commit that has its last records", () => {
    const { time, a, b } = pair();
    const owner = openFeed(a);
    owner.setRole("owner");
    store(owner, 0, chainOf(1, 5));
    time.advance(tickMs);
    expect(b.replica.feeds.claimOf("engine")?.origin.router).toBe("a");
    const updates: number[] = [];
    a.replica.ports.documents.onUpdate(() => updates.push(b.replica.feeds.claimsOf("engine").length));
    store(owner, 1, chainOf(2, 5));
    owner.stop();
    time.advance(tickMs);
    // Told after the other router has it.
    expect(updates).toEqual([0]);
    expect(b.heldBlocks("engine", chainOf(2, 5))).toBe(5);
    expect([a.replica.feeds.claimsOf("engine"), b.replica.feeds.claimsOf("engine")]).toEqual([[], []]);
  });

  test.each(["stop", "setRole"] as const)("by %s lets the next one begin within a tick, without loss", (how) => {
    const { time, a, b } = pair();
    const [owner, backup] = [openFeed(a), openFeed(b)];
    owner.setRole("owner");
    backup.setRole("backup");
    for (const reader of [owner, backup]) store(reader, 0, chainOf(1, 5));
    time.advance(tickMs);
    store(backup, 1, chainOf(2, 5));
    if (how === "stop") owner.stop();
    else owner.setRole("none");
    const reported: string[] = [];
    b.replica.feeds.onClaims((target) => {
      if (b.replica.feeds.claimOf(target) !== undefined || reported.length > 0) return;
      reported.push(target);
      backup.setRole("owner");
    });
    time.advance(tickMs);
    expect(reported).toEqual(["engine"]);
    time.advance(tickMs);
    expect(a.replica.feeds.claimOf("engine")?.origin.router).toBe("b");
    expect(a.heldBlocks("engine", chainOf(2, 5))).toBe(5);
    expect(a.replica.fold.statement("engine")).toEqual(b.replica.fold.statement("engine"));
  });

  test("is followed at once by one that had given way to it", () => {
    const { time, a, b } = pair();
    const [first, later] = [openFeed(a), openFeed(b)];
    first.setRole("owner");
    later.setRole("backup");
    const readBoth = (sequence: number): void => {
      for (const reader of [first, later]) store(reader, sequence, chainOf(sequence, 5));
      time.advance(2 * tickMs);
    };
    readBoth(0);
    later.setRole("owner");
    for (const sequence of [1, 2, 3]) readBoth(sequence);
    expect([first.role, later.role]).toEqual(["backup", "owner"]);
    later.stop();
    time.advance(2 * tickMs);
    expect(first.role).toBe("owner");
    store(first, 4, chainOf(4, 5));
    time.advance(tickMs);
    expect(b.heldBlocks("engine", chainOf(4, 5))).toBe(5);
  });
});

describe("a target that one router has forgotten", () => {
  // Its facts were voided there, and the number of the feed is as before, so that records alone would lead nowhere.
  test("comes back whole when another one goes on writing under the same number", async () => {
    const { time, a, b } = pair();
    await b.replica.start();
    const owner = openFeed(a);
    owner.setRole("owner");
    const chains = Array.from({ length: 8 }, (_, seed) => chainOf(seed + 1, 5));
    const requests: string[] = [];
    b.replica.ports.snapshots.onRequest(({ targets }) => requests.push(...(targets ?? [])));
    for (const sequence of [0, 1, 2, 3]) store(owner, sequence, chains[sequence]!);
    time.advance(tickMs);
    expect(b.heldBlocks("engine", chains[3]!)).toBe(5);
    const changed: string[] = [];
    const cancel = b.replica.fold.onChange((target) => changed.push(target));
    b.replica.forgetTarget("engine");
    cancel();
    expect(changed).toEqual(["engine"]);
    expect(b.replica.fold.state("engine")).toBeUndefined();
    expect(b.slots.find("engine")).toBe(-1);
    expect(b.index.factCount).toBe(0);
    // Another target has its number in the index meanwhile.
    b.slots.slotOf("another");
    store(owner, 4, chains[4]!);
    time.advance(tickMs);
    expect(b.replica.fold.state("engine")).toMatchObject({ progress: "waiting", last: undefined });
    for (const sequence of [5, 6]) store(owner, sequence, chains[sequence]!);
    time.advance(4_000);
    expect(requests).toEqual(["engine"]);
    for (const chain of chains.slice(0, 7)) expect(b.heldBlocks("engine", chain)).toBe(5);
    expect(b.replica.fold.statement("engine")).toEqual(a.replica.fold.statement("engine"));
    expect(b.replica.fold.state("engine")).toMatchObject({ isComplete: true, progress: "current" });
    store(owner, 7, chains[7]!);
    time.advance(tickMs);
    expect(b.replica.fold.statement("engine")).toEqual(a.replica.fold.statement("engine"));
    expect(b.replica.feeds.qualityOf("engine")).toBe("complete");
    await b.replica.stop();
  });

  test("again and again leaves nothing behind", async () => {
    const { time, a, b } = pair();
    await b.replica.start();
    const owner = openFeed(a);
    owner.setRole("owner");
    for (let sequence = 0; sequence < 6; sequence++) {
      store(owner, sequence, chainOf(sequence + 1, 5));
      time.advance(4_000);
      expect(b.replica.fold.statement("engine")).toEqual(a.replica.fold.statement("engine"));
      expect(b.index.factCount).toBe(5 * (sequence + 1));
      b.replica.forgetTarget("engine");
      expect([b.index.factCount, b.replica.fold.byteLength]).toEqual([0, 0]);
    }
    await b.replica.stop();
  });
});
