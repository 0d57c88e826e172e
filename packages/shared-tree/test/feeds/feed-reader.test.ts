import { describe, expect, test } from "vitest";
import { epochId } from "../../src/facts/engine-epoch.ts";
import { FeedRig, pair, target } from "./feed-rig.ts";

describe("an owner", () => {
  test("names the epoch by its first message, claims the feed and journals what the ledger tells", () => {
    const { rig, a, b, c } = pair();
    rig.publish(50);
    rig.exchange(a);
    expect(a.reader.role).toBe("owner");
    expect(a.claimed).toBe(1);
    expect(b.claims.size).toBe(1);
    const [first] = rig.engine.messages;
    expect(c.fold.state(target)?.epoch).toMatchObject({ sequence: 0, checksum: first!.checksum, predecessor: null });
    rig.expectTruth();
    expect(c.reader.role).toBe("none");
    expect(c.reader.describe()).toMatchObject({ epoch: null, sequence: null, keptRecords: 0 });
  });

  test("writes nothing before it was made one", () => {
    const rig = new FeedRig();
    const a = rig.add("a");
    rig.publish(5);
    a.read();
    expect(a.reader.describe()).toMatchObject({ role: "none", sequence: 4, keptRecords: 0 });
    a.reader.setRole("backup");
    rig.publish(5);
    a.read();
    expect(a.fold.state(target)).toBeUndefined();
    expect(a.reader.describe()).toMatchObject({ role: "backup", sequence: 9, keptRecords: 5 });
  });

  test("claims a feed that nobody has read and that is silent, once it is worth something", () => {
    const { rig, a, b } = pair();
    a.reader.setQuality("none", "stale", "connecting", null);
    rig.exchange();
    expect(b.claims.size).toBe(0);
    a.reader.setQuality("complete", "live", "nothing-published", null);
    rig.exchange();
    expect(a.reader.role).toBe("owner");
    expect([...b.claims.values()][0]?.claim).toMatchObject({ quality: "complete", state: "live" });
    const { stamp } = [...b.claims.values()][0]!.claim;
    a.reader.setQuality("partial", "partial", "gap", null);
    rig.exchange();
    expect([...b.claims.values()][0]?.claim).toMatchObject({ quality: "partial", stamp });
  });

  /** Nobody could claim it until the next message, so that all routers in turn took themselves for its owner. */
  test.each([
    ["complete", "nothing-published", true],
    ["partial", "nothing-received", false],
  ] as const)(
    "claims a feed of which it hears nothing, though others have read it: %s, %s",
    (quality, reason, isNew) => {
      const { rig, a, b, c } = pair(7);
      rig.publish(20);
      rig.exchange(a);
      const before = c.fold.state(target)!.epoch!;
      a.reader.stop();
      if (isNew) rig.engine.restart();
      b.reader.setRole("owner");
      b.reader.setQuality("void", "stale", "connecting", null);
      rig.exchange();
      expect([b.reader.role, c.claims.size]).toEqual(["backup", 0]);
      b.reader.setQuality(quality, "live", reason, null);
      rig.exchange();
      expect(b.reader.role).toBe("owner");
      expect([...c.claims.values()].map(({ origin, claim }) => [origin.router, claim.quality])).toEqual([
        ["b", quality],
      ]);
      if (isNew) expect(c.held(), "an engine that has said nothing holds nothing").toEqual([]);
      else
        expect(c.fold.state(target)?.epoch, "nothing is said of an engine of which nothing is known").toEqual(before);
      const known = c.fold.state(target)!.epoch!;
      rig.publish(5);
      if (!isNew) b.miss(20);
      b.read();
      rig.settle();
      expect([a.claims.size, b.reader.role]).toEqual([1, "owner"]);
      rig.expectEqual();
      if (isNew) rig.expectTruth();
      if (isNew) expect(c.fold.state(target)?.epoch?.predecessor).toBe(epochId(known));
    },
  );

  test("without a feed any more takes its claim back", () => {
    const { rig, a, b } = pair();
    rig.publish(5);
    rig.exchange(a);
    a.reader.stop();
    rig.exchange();
    expect(a.reader.role).toBe("none");
    expect(b.claims.size).toBe(0);
    expect(b.held().length).toBeGreaterThan(0);
  });

  test("tells what it will not read any more, and closes it with a checkpoint when nobody fills it", () => {
    const { rig, a, b, c } = pair(3, { openGapMs: 5_000 });
    b.reader.setRole("none");
    rig.publish(40);
    a.read(20);
    a.miss(4);
    rig.exchange(a);
    expect(c.fold.state(target)).toMatchObject({ progress: "open", isComplete: false });
    rig.settle();
    rig.settle();
    expect(a.checkpoints).toBeGreaterThan(0);
    expect(c.fold.state(target)).toMatchObject({ progress: "current", isComplete: false });
    rig.expectEqual();
    expect(b.held()).toEqual(a.held());
  });
});

/**
 * Requests were sent to an empty engine for the cache of the process before it: only a message names an epoch, and an
 * engine that was restarted has none before its first request. That its history is empty voided nothing.
 */
describe.each(["by another router", "by the same one"])(
  "the history of an engine that was restarted, read %s",
  (how) => {
    function emptied() {
      const { rig, a, b, c } = pair(11);
      rig.publish(40);
      rig.exchange(a, b);
      expect(c.held().length).toBeGreaterThan(0);
      rig.engine.restart();
      if (how === "by the same one") {
        a.notice();
        return { rig, reader: a, others: [b, c] };
      }
      a.reader.stop();
      const fresh = rig.add("d");
      fresh.reader.setRole("owner");
      rig.exchange();
      return { rig, reader: fresh, others: [b, c] };
    }

    test("voids at all routers what the process before held, once its history is empty", () => {
      const { rig, reader, others } = emptied();
      reader.reader.setQuality("complete", "live", "nothing-published", null);
      rig.exchange();
      for (const router of others) expect(router.held()).toEqual([]);
      const [state] = others.map((router) => router.fold.state(target));
      expect(state).toMatchObject({ progress: "current", isComplete: true, last: undefined });
      rig.settle();
      expect(others[0]!.fold.state(target), "said once").toEqual(state);
      rig.publish(30);
      for (const router of [reader, ...others]) if (router !== reader) router.notice();
      reader.read();
      rig.settle();
      expect(rig.owners()).toEqual([reader.store.own.origin.router]);
      rig.expectTruth([reader, ...others]);
    });

    test("voids nothing while it is not known that the history is empty", () => {
      const { rig, reader, others } = emptied();
      for (const quality of ["void", "partial", "none"] as const)
        reader.reader.setQuality(quality, "partial", "nothing-received", null);
      rig.exchange();
      for (const router of others) expect(router.held().length).toBeGreaterThan(0);
    });

    test("goes on though the engine's clock was set back", () => {
      const { rig, reader, others } = emptied();
      reader.reader.setQuality("complete", "live", "nothing-published", null);
      rig.exchange();
      rig.engine.setClock(-3_600_000_000);
      rig.publish(30);
      reader.read();
      rig.settle();
      rig.expectTruth([reader, ...others]);
    });
  },
);

describe("a backup that becomes the owner", () => {
  test("writes what is missing, without loss and without a snapshot", () => {
    for (let seed = 1; seed < 12; seed++) {
      const { rig, a, b, c } = pair(seed);
      for (let round = 0; round < 10; round++) {
        rig.publish(1 + rig.random.integer(20));
        a.read();
        b.read();
        if (round < 7) rig.exchange();
      }
      // What the owner read last has reached nobody.
      rig.apart.add(a);
      rig.publish(10);
      b.read(4);
      b.reader.setRole("owner");
      expect(b.reader.role).toBe("owner");
      rig.exchange(b);
      rig.expectTruth([b, c]);
      expect([b.takeovers("records"), b.takeovers("state")]).toEqual([1, 0]);
      expect([...b.needs, ...c.needs]).toEqual([]);
    }
  });

  test("keeps no more than what the fold lacks", () => {
    const { rig, a, b } = pair();
    for (let round = 0; round < 20; round++) {
      rig.publish(10);
      rig.exchange(a, b);
    }
    rig.exchange();
    expect(b.reader.describe()).toMatchObject({ keptRecords: 0, keptBytes: 0, sequence: 199, isComplete: true });
    rig.publish(7);
    b.read();
    expect(b.reader.describe()).toMatchObject({ keptRecords: 7 });
  });

  test("states what it holds when it does not keep enough, and others load it", () => {
    const { rig, a, b, c } = pair(5, { maxKeptRecords: 10 });
    rig.publish(30);
    rig.exchange(a, b);
    rig.apart.add(a);
    rig.publish(11);
    b.read();
    expect(b.reader.describe().keptRecords).toBe(10);
    b.reader.setRole("owner");
    rig.settle();
    expect([b.takeovers("records"), b.takeovers("state")]).toEqual([0, 1]);
    rig.expectTruth([b, c]);
    rig.publish(20);
    rig.exchange(b);
    rig.expectTruth([b, c]);
  });

  test("with exactly as much as is missing goes on by records", () => {
    const { rig, a, b, c } = pair(5, { maxKeptRecords: 10 });
    rig.publish(30);
    rig.exchange(a, b);
    rig.apart.add(a);
    rig.publish(10);
    b.read();
    b.reader.setRole("owner");
    rig.exchange();
    expect(b.takeovers("records")).toBe(1);
    rig.expectTruth([b, c]);
  });

  test("drops the oldest when the kept ones are too large", () => {
    const { rig, b } = pair(5, { maxKeptBytes: 2_000 });
    rig.publish(100);
    b.read();
    const { keptBytes, keptRecords } = b.reader.describe();
    expect(keptBytes).toBeLessThanOrEqual(2_000);
    expect(keptRecords).toBeGreaterThan(5);
    expect(keptRecords).toBeLessThan(20);
  });
});

describe("a backup that becomes the owner with less than what is known", () => {
  test("has nothing to write before its own feed is where the fold is", () => {
    const { rig, a, b, c } = pair(6);
    rig.publish(30);
    a.read();
    b.read(20);
    rig.exchange();
    rig.apart.add(a);
    b.reader.setRole("owner");
    b.read(9);
    rig.exchange();
    rig.expectTruth([b, c]);
    rig.publish(5);
    rig.exchange(b);
    rig.expectTruth([b, c]);
    expect([b.takeovers("records"), b.takeovers("state")]).toEqual([1, 0]);
  });

  test("leaves a gap where nobody has read, and goes on with what was inherited", () => {
    const { rig, a, b, c } = pair(7);
    rig.publish(40);
    a.read();
    b.miss(35);
    rig.exchange(b);
    rig.apart.add(a);
    rig.publish(10);
    b.miss(3);
    b.read();
    const before = c.held().length;
    b.reader.setRole("owner");
    rig.exchange();
    expect(b.takeovers("records")).toBe(1);
    expect(c.fold.state(target)).toMatchObject({ isComplete: false });
    expect(c.held().length).toBeGreaterThan(before / 2);
    rig.expectEqual([b, c]);
  });
});

describe("two readers at once", () => {
  test("do no harm, and the earlier one stops when the later one writes", () => {
    for (let seed = 20; seed < 30; seed++) {
      const { rig, a, b } = pair(seed);
      rig.publish(20);
      rig.exchange(a, b);
      b.reader.setRole("owner");
      for (let round = 0; round < 8; round++) {
        rig.publish(1 + rig.random.integer(5));
        for (const reader of rig.random.integer(2) === 0 ? [a, b] : [b, a]) reader.read();
        rig.exchange();
        rig.expectTruth();
      }
      expect(rig.owners()).toEqual(["b"]);
      expect(a.meter.value("espalier_feed_yields_total")).toBe(1);
      // It does not take the feed back by itself.
      rig.settle();
      expect(rig.owners()).toEqual(["b"]);
    }
  });

  test("an owner that was paused comes back, finds a later claim and stops", () => {
    const { rig, a, b, c } = pair(31);
    rig.publish(30);
    rig.exchange(a, b);
    rig.apart.add(a);
    b.reader.setRole("owner");
    rig.publish(30);
    rig.exchange(b);
    // It reads what waited, before it hears of anybody.
    a.read(20);
    rig.apart.delete(a);
    a.store.own.commit();
    rig.exchange();
    a.read();
    rig.publish(5);
    rig.exchange(a, b);
    rig.expectTruth([a, b, c]);
    expect(rig.owners()).toEqual(["b"]);
  });

  test("one that is named again claims later than the other", () => {
    const { rig, a, b } = pair(32);
    rig.publish(10);
    rig.exchange(a, b);
    b.reader.setRole("owner");
    rig.publish(10);
    rig.exchange(b);
    rig.exchange(a);
    expect(rig.owners()).toEqual(["b"]);
    a.reader.setRole("owner");
    rig.publish(10);
    rig.exchange(a);
    b.read();
    rig.publish(1);
    rig.exchange(a, b);
    expect(rig.owners()).toEqual(["a"]);
    rig.expectTruth();
  });
});
