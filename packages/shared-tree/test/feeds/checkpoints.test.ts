import { describe, expect, test } from "vitest";
import { checkpointUrgency, defaultFeedLimits } from "../../src/feeds/feed-writer.ts";
import { FeedRig } from "./feed-rig.ts";

describe("when a checkpoint is due", () => {
  const still = { ops: 0, blocks: 0, sinceCheckpointMs: 0, hasMoved: true };
  test.each([
    [{ ...still, ops: 4_095 }, "none"],
    [{ ...still, ops: 4_096 }, "due"],
    [{ ...still, ops: 12_287 }, "due"],
    [{ ...still, ops: 12_288 }, "overdue"],
    [{ ...still, ops: 9_999, blocks: 10_000 }, "none"],
    [{ ...still, ops: 10_000, blocks: 10_000 }, "due"],
    [{ ...still, ops: 30_000, blocks: 10_000 }, "overdue"],
    [{ ...still, sinceCheckpointMs: 59_999 }, "none"],
    [{ ...still, sinceCheckpointMs: 60_000 }, "due"],
    [{ ...still, sinceCheckpointMs: 180_000 }, "overdue"],
    [{ ...still, ops: 1_000_000, sinceCheckpointMs: 1_000_000, hasMoved: false }, "none"],
  ] as const)("%o: %s", (need, urgency) => {
    expect(checkpointUrgency(need, defaultFeedLimits)).toBe(urgency);
  });
});

function lone(seed: number, limits = {}) {
  const rig = new FeedRig(seed);
  const [a, c] = [rig.add("a", limits), rig.add("c", limits)];
  a.reader.setRole("owner");
  return { rig, a, c };
}

test("checkpoints keep a journal small, however much happens", () => {
  const { rig, a } = lone(1, { minCheckpointOps: 200 });
  let largest = 0;
  for (let round = 0; round < 120; round++) {
    rig.publish(20);
    rig.exchange(a);
    if (round > 20) largest = Math.max(largest, a.store.stats().ownBytes);
  }
  rig.expectTruth();
  // At most three times what is held in changes, and what one commit adds.
  expect(a.checkpoints).toBeGreaterThan(10);
  expect(largest).toBeLessThan(400 * 3 * 12);
});

test("a feed that moves slowly has a checkpoint once a minute, a silent one has none", () => {
  const { rig, a } = lone(2);
  rig.publish(5);
  rig.exchange(a);
  expect(a.checkpoints).toBe(1);
  rig.publish(1);
  a.read();
  for (let second = 0; second < 59; second++) rig.time.advance(1_000);
  rig.exchange();
  expect(a.checkpoints).toBe(1);
  rig.time.advance(1_000);
  rig.exchange();
  expect(a.checkpoints).toBe(2);
  rig.time.advance(200_000);
  rig.exchange();
  expect(a.checkpoints).toBe(2);
});

test("a router that reads no more gives its entries up once the owner has a checkpoint beyond them", () => {
  const rig = new FeedRig(3);
  const [a, b, c] = [rig.add("a"), rig.add("b"), rig.add("c")];
  a.reader.setRole("owner");
  b.reader.setRole("backup");
  rig.publish(50);
  rig.exchange(a, b);
  b.reader.setRole("owner");
  rig.publish(20);
  rig.exchange(b);
  a.read();
  rig.publish(5);
  a.read();
  b.read();
  rig.settle();
  rig.publish(1);
  a.read();
  b.read();
  rig.settle();
  expect(rig.owners()).toEqual(["b"]);
  expect(a.store.stats().ownFactItems).toBeLessThanOrEqual(1);
  const d = rig.add("d");
  rig.settle();
  rig.expectTruth([b, c, d]);
});

test("somebody who joins after checkpoints has the state by a snapshot and what followed", () => {
  const { rig, a } = lone(4, { minCheckpointOps: 100 });
  for (let round = 0; round < 30; round++) {
    rig.publish(10);
    rig.exchange(a);
  }
  const late = rig.add("late");
  rig.settle();
  rig.publish(10);
  a.read();
  rig.settle();
  rig.expectTruth([a, late]);
});
