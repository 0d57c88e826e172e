import { asRouterId } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { FeedRig, pair, target } from "./feed-rig.ts";

describe("a backup that has what the owner has missed", () => {
  test("writes it and goes on as the owner", () => {
    for (let seed = 1; seed < 12; seed++) {
      const { rig, a, b } = pair(seed);
      rig.publish(60);
      rig.exchange(a, b);
      // X is stored in what the owner misses, and removed in what it reads.
      rig.engine.publish([1_500]);
      rig.publish(9);
      a.miss(10);
      b.read();
      rig.publish(5);
      rig.engine.publish([], [1_500]);
      rig.exchange(a, b);
      rig.exchange();
      expect(b.claimed).toBe(1);
      rig.expectTruth();
      rig.publish(10);
      rig.exchange(a, b);
      a.read();
      rig.publish(1);
      rig.exchange(a, b);
      expect(rig.owners()).toEqual(["b"]);
      rig.expectTruth();
      expect([b.takeovers("records"), b.takeovers("state")]).toEqual([1, 0]);
    }
  });

  test("whose feed is behind waits until it has caught up", () => {
    const { rig, a, b } = pair(12);
    rig.publish(30);
    rig.exchange(a, b);
    rig.publish(10);
    a.miss(5);
    a.read();
    b.read(7);
    rig.exchange();
    expect(b.claimed).toBe(0);
    b.read(3);
    rig.exchange();
    expect(b.claimed).toBe(1);
    rig.expectTruth();
  });

  test("states what it holds when it does not keep enough", () => {
    const { rig, a, b } = pair(13, { maxKeptRecords: 3 });
    rig.publish(30);
    rig.exchange(a, b);
    rig.publish(10);
    a.miss(5);
    a.read();
    b.read();
    rig.settle();
    expect([b.takeovers("records"), b.takeovers("state")]).toEqual([0, 1]);
    rig.expectTruth();
  });

  test("states it at once when all wait for a state that nobody has", () => {
    const { rig, a, b, c } = pair(18);
    rig.publish(10);
    rig.exchange(a);
    rig.publish(6);
    a.miss(3);
    rig.exchange(a);
    // A reader that is gone has stated what comes later, and has written no records.
    const origin = { router: asRouterId("gone"), epoch: 1 };
    const { epoch, last } = c.fold.state(target)!;
    const declaration = { target, epoch: epoch! };
    const stated = { kind: "checkpoint", feed: 1, ...last!, sequence: 20, isComplete: false, blocks: 1 } as const;
    for (const { fold } of [a, b, c]) {
      fold.apply(origin, [{ ...stated, digest: [1, 1] }], () => declaration);
      expect(fold.state(target)).toMatchObject({ isComplete: false, progress: "loading" });
    }
    b.read();
    expect(b.claimed).toBe(1);
    expect(b.fold.state(target)).toMatchObject({ isComplete: true, last: { sequence: 15 } });
    rig.publish(10);
    a.read();
    b.read();
    rig.settle();
    expect(b.takeovers("state")).toBe(1);
    rig.expectTruth();
  });

  test("which has missed something too leaves the feed where it is", () => {
    const { rig, a, b } = pair(14);
    rig.publish(30);
    a.read();
    b.miss(1);
    rig.exchange(b);
    rig.publish(10);
    a.miss(5);
    a.read();
    b.read();
    rig.settle();
    expect(b.claimed).toBe(0);
    expect(rig.owners()).toEqual(["a"]);
  });
});

describe("an owner that knows all", () => {
  test("makes a state whole that it has taken over with a hole", () => {
    const { rig, a, b, c } = pair(15);
    rig.publish(30);
    a.read(10);
    a.miss(3);
    rig.exchange(a);
    rig.settle();
    expect(c.fold.state(target)?.isComplete).toBe(false);
    rig.apart.add(a);
    b.reader.setRole("owner");
    b.read();
    rig.settle();
    rig.expectTruth([b, c]);
  });
});

describe("an inherited state", () => {
  test("is given up when the engine has removed half as much as it holds and nobody knows of", () => {
    const rig = new FeedRig(16);
    const [a, b, c] = [rig.add("a"), rig.add("b"), rig.add("c")];
    a.reader.setRole("owner");
    b.reader.setRole("backup");
    rig.engine.publish(Array.from({ length: 100 }, (_, block) => block));
    a.read();
    rig.engine.publish([200]);
    b.miss(1);
    rig.exchange(a, b);
    rig.apart.add(a);
    b.reader.setRole("owner");
    rig.engine.publish([300]);
    b.read();
    expect(b.reader.describe()).toMatchObject({ inheritedBlocks: 101, unknownRemovals: 0 });
    rig.engine.publish(
      [],
      Array.from({ length: 50 }, (_, block) => block),
    );
    rig.exchange(b);
    expect(b.reader.describe()).toMatchObject({ inheritedBlocks: 101, unknownRemovals: 50 });
    expect(c.held()).toHaveLength(102);
    // One more is half of 101, rounded up.
    rig.engine.publish([], [50]);
    b.read();
    rig.settle();
    expect(b.reader.describe()).toMatchObject({ inheritedBlocks: 0, unknownRemovals: 0 });
    expect(b.held()).toEqual([200, 300]);
    expect(c.held()).toEqual([200, 300]);
    expect(c.fold.state(target)).toMatchObject({ isComplete: false, progress: "current" });
  });

  test("is kept by a reader that has read everything, whatever it does not know", () => {
    const { rig, a, b } = pair(17);
    rig.publish(20);
    rig.exchange(a, b);
    b.reader.setRole("owner");
    rig.publish(1);
    b.read();
    b.reader.unknownRemovals(1_000);
    rig.publish(1);
    b.read();
    expect(b.reader.describe().inheritedBlocks).toBe(0);
    expect(b.takeovers("state")).toBe(0);
    rig.exchange(a);
    rig.expectTruth();
  });
});
