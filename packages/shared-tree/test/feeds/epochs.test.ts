import { describe, expect, test } from "vitest";
import { epochId } from "../../src/facts/engine-epoch.ts";
import { pair, type RigRouter, target } from "./feed-rig.ts";

const epochOf = (router: RigRouter): string => epochId(router.fold.state(target)!.epoch!);

describe("a restart of the engine", () => {
  test("seen by the owner first is another epoch, which the backup finds in its own feed", () => {
    const { rig, a, b, c } = pair(2);
    rig.publish(60);
    rig.exchange(a, b);
    const before = epochOf(c);
    rig.engine.restart();
    rig.publish(10);
    a.notice();
    rig.exchange(a);
    expect(epochOf(b)).not.toBe(before);
    expect(c.fold.state(target)?.epoch?.predecessor).toBe(before);
    rig.expectTruth();
    b.notice();
    b.read();
    expect(b.reader.describe().epoch).toBe(epochOf(a));
    rig.apart.add(a);
    rig.publish(5);
    b.read();
    b.reader.setRole("owner");
    rig.exchange();
    rig.expectTruth([b, c]);
    expect(b.takeovers("state")).toBe(0);
  });

  test("seen by a backup only, whose owner is gone, voids everything of the old epoch", () => {
    for (const seesEnd of [true, false]) {
      const { rig, a, b, c } = pair(3);
      rig.publish(60);
      a.read();
      if (seesEnd) b.read();
      rig.exchange();
      rig.apart.add(a);
      rig.engine.restart();
      rig.publish(8);
      if (seesEnd) b.notice();
      b.read();
      b.reader.setRole("owner");
      rig.exchange();
      rig.expectTruth([b, c]);
      expect(c.fold.state(target)?.epoch).toMatchObject({ sequence: 0, predecessor: epochOf(a) });
      expect(b.meter.value("espalier_feed_epochs_total")).toBe(1);
    }
  });

  test("of which an old owner comes back with the old epoch's messages brings nothing back", () => {
    const { rig, a, b, c } = pair(4);
    rig.publish(40);
    a.read(30);
    b.read(30);
    rig.exchange();
    rig.apart.add(a);
    a.read();
    rig.engine.restart();
    rig.publish(8);
    b.notice();
    b.read();
    b.reader.setRole("owner");
    rig.exchange();
    a.store.own.commit();
    rig.apart.delete(a);
    rig.exchange();
    rig.expectTruth([a, b, c]);
    a.notice();
    a.read();
    rig.publish(3);
    rig.exchange(a, b);
    rig.expectTruth();
    expect(rig.owners()).toEqual(["b"]);
  });

  test("again and again leaves no entries of epochs that are over", () => {
    const { rig, a, b } = pair(5);
    for (let epoch = 0; epoch < 12; epoch++) {
      rig.publish(30);
      rig.exchange(a, b);
      rig.expectTruth();
      rig.engine.restart();
      a.notice();
      b.notice();
    }
    rig.publish(30);
    a.read();
    rig.settle();
    expect(a.store.stats().ownFactItems).toBeLessThan(8);
    expect(a.store.stats().ownBytes).toBeLessThan(10_000);
  });

  test("without the engine's messages after it changes nothing", () => {
    const { rig, a, c } = pair(6);
    rig.publish(20);
    rig.exchange(a);
    a.notice();
    rig.exchange();
    expect(c.held()).not.toEqual([]);
    expect(a.reader.describe()).toMatchObject({ sequence: null, epoch: null });
  });
});

describe("which epoch it is", () => {
  test("that was only suspected to be another one shows with a message that others know", () => {
    const { rig, a, b, c } = pair(7);
    rig.publish(20);
    rig.exchange(a, b);
    // Its connection broke, and nothing shows that the engine was not restarted meanwhile.
    b.notice();
    b.read();
    b.reader.setRole("owner");
    rig.publish(10);
    rig.exchange(b);
    expect(epochOf(c)).toBe(epochOf(a));
    expect(b.meter.value("espalier_feed_epochs_total")).toBe(0);
    rig.expectTruth([b, c]);
  });

  test("cannot be shown to be the known one where the engine does not tell what others have read", () => {
    const { rig, a, b, c } = pair(8);
    rig.publish(20);
    rig.exchange(a);
    rig.apart.add(a);
    rig.publish(10);
    b.miss(25);
    b.read();
    b.reader.setRole("owner");
    rig.exchange();
    expect(c.fold.state(target)).toMatchObject({ epoch: { sequence: 25, predecessor: epochOf(a) }, isComplete: false });
    rig.expectEqual([b, c]);
  });

  test("is waited for while it does not show, but not for ever", () => {
    const { rig, a, b, c } = pair(9, { epochWaitMs: 2_000 });
    rig.publish(20);
    rig.exchange(a);
    const old = epochOf(c);
    rig.apart.add(a);
    // Messages before the latest known one, none of which others have told the marks of.
    b.miss(5);
    b.read(5);
    b.reader.setRole("owner");
    rig.exchange();
    expect(epochOf(c)).toBe(old);
    expect(b.reader.role).toBe("backup");
    rig.settle();
    // What it has read is older than what others know, so it may still be the same epoch.
    expect(epochOf(c)).toBe(old);
    rig.exchange(b);
    expect(epochOf(c)).toBe(old);
    expect(b.reader.role).toBe("owner");
  });

  test("is told by clocks when a lower number was made much later", () => {
    const { rig, a, b, c } = pair(10);
    rig.publish(50);
    a.miss(10);
    rig.exchange(a);
    rig.apart.add(a);
    rig.engine.restart();
    rig.publish(5);
    b.miss(2);
    b.read();
    b.reader.setRole("owner");
    rig.exchange();
    expect(c.fold.state(target)?.epoch).toMatchObject({ sequence: 2, predecessor: epochOf(a) });
  });

  test("that another router has named meanwhile is taken over when a message matches", () => {
    const { rig, a, b, c } = pair(11);
    b.reader.setRole("owner");
    rig.publish(10);
    rig.apart.add(a);
    rig.exchange(b);
    a.miss(3);
    a.read();
    rig.apart.delete(a);
    // Both have named the epoch: by its first message, and by a later one.
    rig.exchange();
    rig.exchange();
    rig.publish(10);
    a.read();
    b.read();
    rig.settle();
    rig.publish(1);
    a.read();
    b.read();
    rig.settle();
    rig.expectEqual();
    expect(new Set([a, b, c].map(epochOf)).size).toBe(1);
    rig.expectTruth();
  });
});
