import { describe, expect, test } from "vitest";
import { type EngineEpoch, epochId } from "../../src/facts/engine-epoch.ts";
import { FeedRig, type RigRouter, target } from "./feed-rig.ts";

function trio(seed: number, limits = {}) {
  const rig = new FeedRig(seed);
  const [a, b, c] = [rig.add("a", limits), rig.add("b", limits), rig.add("c", limits)];
  a.reader.setRole("owner");
  b.reader.setRole("backup");
  return { rig, a, b, c };
}

const epochOf = (router: RigRouter): EngineEpoch => router.fold.state(target)!.epoch!;

describe("an epoch that is named by a message in the middle", () => {
  // Its records say nothing of what was stored before that message, so that a complete reader's records from there on
  // would make the fold believe that it has everything.
  test("is stated as a whole by a reader that has read everything", () => {
    const { rig, a, b, c } = trio(21);
    rig.publish(25);
    a.miss(25);
    b.read();
    rig.publish(10);
    rig.exchange(a);
    expect(epochOf(c)).toMatchObject({ sequence: 25, predecessor: null });
    expect(c.fold.state(target)).toMatchObject({ isComplete: false, progress: "current" });
    b.read();
    b.reader.setRole("owner");
    rig.exchange();
    rig.exchange();
    expect(b.takeovers("state")).toBeGreaterThan(0);
    rig.expectTruth([b, c]);
    rig.publish(6);
    rig.exchange(b);
    rig.expectTruth([b, c]);
    expect(b.reader.describe().epoch).toBe(epochId(epochOf(c)));
  });

  test("is stated as a whole by a backup that was not asked, as soon as it has caught up", () => {
    const { rig, a, b } = trio(22);
    rig.publish(12);
    a.miss(12);
    rig.publish(5);
    a.read();
    b.read(14);
    rig.exchange();
    expect(b.claimed).toBe(0);
    b.read();
    rig.settle();
    expect(b.claimed).toBe(1);
    rig.expectTruth();
  });

  test("is never complete by the records of one who has read nothing before it", () => {
    const { rig, a, b, c } = trio(23);
    rig.publish(12);
    a.miss(12);
    b.miss(12);
    rig.publish(5);
    rig.exchange(a, b);
    rig.apart.add(a);
    b.reader.setRole("owner");
    rig.publish(3);
    b.read();
    rig.settle();
    expect(c.fold.state(target)).toMatchObject({ isComplete: false, last: { sequence: 19 } });
    rig.expectEqual([b, c]);
  });
});

/**
 * Symptom: after a partition nobody used an engine's facts for 20 s. An owner with holes learned of an epoch that others
 * had named, and stated its ledger at once, before their records, which came with the name. Its checkpoint was later
 * than their complete one, theirs was better, and each side waited for the state of the other.
 */
describe("an epoch that another router has named", () => {
  function partition() {
    const { rig, a, b, c } = trio(26);
    rig.apart.add(b);
    rig.publish(6);
    b.miss(3);
    b.reader.setRole("owner");
    b.read();
    a.miss(6);
    rig.publish(4);
    rig.exchange(a, b, c);
    rig.settle();
    return { rig, a, b, c };
  }

  test("is not stated by an owner with holes before the records of who named it have come", () => {
    const { rig, a, b, c } = partition();
    c.reader.setRole("owner");
    rig.exchange();
    rig.settle();
    rig.expectTruth([a, c]);
    rig.apart.clear();
    rig.exchange();
    expect(b.takeovers("state")).toBe(0);
    rig.exchange(a, b, c);
    rig.settle();
    rig.expectTruth();
  });

  test("is stated by it when they have not come for 2 s", () => {
    const { rig, a, b } = partition();
    b.fold.declare({ target, epoch: epochOf(a) });
    rig.time.advance(1_999);
    b.reader.maintain();
    expect([b.takeovers("state"), b.fold.state(target)?.last]).toEqual([0, undefined]);
    rig.time.advance(1);
    b.reader.maintain();
    expect([b.takeovers("state"), b.fold.state(target)?.last?.sequence]).toEqual([1, 9]);
    rig.publish(1);
    b.read();
    expect(b.fold.state(target)?.last?.sequence).toBe(10);
  });
});

describe("an inherited state with a hole that a checkpoint has closed", () => {
  // Records at or below a checkpoint are ignored, so that a complete reader's records from before the hole change nothing.
  test.each([false, true])("is made whole by a reader that has read everything, the owner gone: %s", (isGone) => {
    const { rig, a, b, c } = trio(24, { openGapMs: 300, maxKeptRecords: 1_000 });
    rig.publish(10);
    rig.exchange(a);
    rig.publish(5);
    a.miss(3);
    a.read();
    rig.settle();
    expect(c.fold.state(target)).toMatchObject({ isComplete: false, progress: "current" });
    expect(a.checkpoints).toBeGreaterThan(0);
    if (isGone) rig.apart.add(a);
    b.reader.setRole("owner");
    b.read();
    rig.settle();
    rig.expectTruth(isGone ? [b, c] : [a, b, c]);
    rig.publish(4);
    if (!isGone) a.read();
    b.read();
    rig.settle();
    rig.expectTruth(isGone ? [b, c] : [a, b, c]);
  });
});

describe("a reader that was without a role for a time", () => {
  // Its ledger goes on meanwhile, and what it knows from then must not be taken for nothing when it writes again.
  test.each([0, 3])("goes on in the same epoch when it has read %i messages meanwhile", (count) => {
    const { rig, a, b, c } = trio(26);
    rig.publish(10);
    rig.exchange(a);
    const epoch = epochOf(c);
    a.reader.setRole("none");
    rig.publish(count);
    rig.exchange(a);
    expect([a.reader.describe().keptRecords, c.fold.state(target)?.last?.sequence]).toEqual([0, 9]);
    a.reader.setRole("owner");
    rig.publish(4);
    a.read();
    rig.settle();
    expect(epochOf(c)).toEqual(epoch);
    rig.expectTruth([a, b, c]);
    expect(a.takeovers("state")).toBe(count > 0 ? 1 : 0);
  });

  test("states what it holds when it is the first to tell of an epoch that it has read before", () => {
    const { rig, a, b, c } = trio(27);
    a.reader.setRole("none");
    rig.publish(10);
    a.read(4);
    a.reader.setRole("owner");
    a.read();
    rig.settle();
    expect(epochOf(c)).toMatchObject({ sequence: 0, predecessor: null });
    rig.expectTruth([a, b, c]);
  });

  test("knows what it has lost meanwhile", () => {
    const { rig, a, c } = trio(28);
    rig.publish(10);
    a.read();
    a.reader.setRole("none");
    rig.publish(10);
    a.read(2);
    a.miss(3);
    a.read();
    a.reader.setRole("owner");
    rig.settle();
    expect(a.reader.describe()).toMatchObject({ isComplete: false, sequence: 19 });
    expect(c.fold.state(target)).toMatchObject({ isComplete: false, last: { sequence: 19 } });
    rig.expectEqual();
  });
});

describe("a reader that has read everything, but not as far as others", () => {
  // Its state at its own latest message would take the fold back to that one.
  test("does not state what it holds before it has caught up", () => {
    const { rig, a, b, c } = trio(25, { openGapMs: 300 });
    rig.publish(30);
    a.read(10);
    a.miss(5);
    a.read();
    rig.settle();
    b.reader.setRole("owner");
    for (let left = 29; left > 0; left--) {
      b.read(1);
      rig.exchange();
      expect(b.fold.state(target)).toMatchObject({ isComplete: false, last: { sequence: 29 } });
    }
    b.read(1);
    rig.settle();
    rig.expectTruth([b, c]);
  });
});

describe("a reader that cannot match the newest epoch", () => {
  /** Makes an epoch known by a journal of its own, of whatever mark. */
  function declare(router: RigRouter, epoch: EngineEpoch): void {
    const declaration = { target, epoch };
    router.store.own.declareFeed(declaration);
    router.fold.declare(declaration);
  }

  // The name of the reader's own run was superseded by epochs that others believed in; to give it again, as that of a
  // epoch after those, would name epochs in a circle.
  test.each([1, 2, 3])("names its run by a later message when its earliest is an epoch %i names back", (steps) => {
    const { rig, a, b, c } = trio(24 + steps);
    rig.publish(8);
    rig.exchange(a, b);
    const first = epochOf(c);
    expect(first.sequence).toBe(0);
    rig.apart.add(a);
    let last = first;
    for (let step = 1; step <= steps; step++) {
      const timestampUs = first.timestampUs + step;
      const epoch = { sequence: 2 + step, timestampUs, checksum: 77 + step, predecessor: epochId(last) };
      declare(c, epoch);
      last = epoch;
    }
    rig.exchange();
    expect(epochId(epochOf(b))).toBe(epochId(last));
    b.notice();
    b.read();
    b.reader.setRole("owner");
    rig.exchange();
    expect(epochOf(c)).toMatchObject({ sequence: 7, predecessor: epochId(last) });
    expect(b.reader.role).toBe("owner");
    rig.exchange();
    rig.expectTruth([b, c]);
    rig.publish(5);
    rig.exchange(b);
    rig.expectTruth([b, c]);
  });
});
