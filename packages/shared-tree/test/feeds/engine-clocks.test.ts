import { asRouterId } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { Journals } from "../../src/documents/journal-store.ts";
import { epochId } from "../../src/facts/engine-epoch.ts";
import { FeedRig, type RigRouter, target } from "./feed-rig.ts";

const hourUs = 3_600_000_000;
/** What the clock of the model of an engine begins with. */
const startUs = 1_700_000_000_000_000;

function trio(seed: number) {
  const rig = new FeedRig(seed);
  const [a, b, c] = [rig.add("a"), rig.add("b"), rig.add("c")];
  a.reader.setRole("owner");
  return { rig, a, b, c };
}

const isLive = ({ reader }: RigRouter): void => reader.setQuality("complete", "live", "complete", null);
const claimBy = ({ store }: RigRouter) => store.own.claims.get(target);
const epochOf = (router: RigRouter): string => epochId(router.fold.state(target)!.epoch!);

// Symptom: an engine whose clock was an hour ahead was killed and came back with the right time; another router read it from
// then on. For an hour all routers held the cache of the dead process, as complete. Mechanism: what was read was older than
// what others knew, by the engine's clock, and that was taken for the truth: it could not name an epoch, though the claim that
// it had posted before the first message stood.
describe("an engine that comes back with an earlier clock", () => {
  test.each([
    ["is known by its first message where an epoch was named by its first", 0],
    ["is known once it is read to its end where that has a higher number", 5],
  ])("%s", (_what, missed) => {
    const { rig, a, b, c } = trio(1);
    rig.engine.setClock(hourUs);
    rig.publish(60);
    a.miss(missed);
    a.read();
    isLive(a);
    rig.exchange();
    const before = epochOf(c);
    rig.apart.add(a);
    rig.engine.restart();
    rig.engine.setClock(-hourUs);
    b.notice();
    b.reader.setRole("owner");
    rig.publish(3);
    b.read(2);
    isLive(b);
    b.read(1);
    rig.exchange();
    expect(c.fold.state(target)?.epoch?.predecessor).toBe(before);
    expect(c.claims.get("b@1")?.claim.quality ?? claimBy(b)?.quality).toBe("complete");
    rig.expectTruth([b, c]);
    rig.publish(30);
    rig.exchange(b);
    rig.expectTruth([b, c]);
  });

  test("is not taken for another process as long as it tells what it had published before", () => {
    const { rig, a, b, c } = trio(2);
    rig.publish(60);
    a.miss(20);
    rig.exchange(a);
    const before = epochOf(c);
    rig.apart.add(a);
    b.notice();
    b.reader.setRole("owner");
    // Its history, of which nobody has told the marks.
    b.read(19);
    rig.exchange();
    expect([epochOf(c), b.reader.role]).toEqual([before, "backup"]);
    b.read();
    isLive(b);
    rig.exchange();
    expect([epochOf(c), b.reader.role]).toEqual([before, "owner"]);
    rig.expectTruth([b, c]);
  });

  test("that it was connected to before others told of an epoch, is told by time alone, and is worth nothing until then", () => {
    const { rig, a, b, c } = trio(3);
    rig.engine.setClock(hourUs);
    rig.publish(40);
    a.read();
    rig.apart.add(b);
    rig.exchange();
    rig.engine.restart();
    rig.engine.setClock(-hourUs);
    b.notice();
    isLive(b);
    b.reader.setRole("owner");
    expect(claimBy(b)?.quality).toBe("complete");
    rig.apart.delete(b);
    rig.apart.add(a);
    rig.exchange();
    // What the other router has told arrives late: a router that lags would see the same.
    for (const update of a.store.diff(a.store.own.name, b.store.stateVector(a.store.own.name), 1_000_000)) {
      b.store.apply(update);
    }
    const before = epochOf(b);
    rig.publish(5);
    rig.exchange(b);
    expect([epochOf(b), claimBy(b)?.quality]).toEqual([before, "void"]);
    rig.time.advance(10_000);
    rig.exchange();
    expect(epochOf(b)).not.toBe(before);
    expect(claimBy(b)?.quality).toBe("complete");
    rig.expectTruth([b, c]);
  });
});

/** A router that declares epochs by itself, all dated ahead. */
function tellMadeUp(rig: FeedRig, aheadUs: readonly number[]) {
  const liar = new Journals({ origin: { router: asRouterId("liar"), epoch: 1 }, clock: rig.time.clock });
  const epochs = aheadUs.map((by) => ({ sequence: 0, timestampUs: startUs + by, checksum: 9, predecessor: null }));
  for (const epoch of epochs) liar.own.declareFeed({ target, epoch });
  liar.own.commit();
  return {
    ids: epochs.map(epochId),
    to({ store }: RigRouter): void {
      for (const update of liar.diff(liar.own.name, store.stateVector(liar.own.name), 1_000_000)) store.apply(update);
    },
  };
}

// Symptom: one epoch that a router declared, dated a day ahead, removed the facts of an engine everywhere and for a day,
// and the engine's reader said that they were complete. Mechanism: as above, and the reader's word did not depend on whether
// the facts were of the epoch that it reads.
test("an epoch that somebody made up counts as unverified at once for who reads the engine, and outlived", () => {
  const { rig, a, b, c } = trio(4);
  rig.publish(60);
  a.read();
  isLive(a);
  rig.exchange();
  rig.expectTruth();
  const tell = tellMadeUp(rig, [24 * hourUs]);
  for (const router of [a, b, c]) tell.to(router);
  const [madeUp] = tell.ids;
  expect([epochOf(a), epochOf(c)]).toEqual([madeUp, madeUp]);
  expect(claimBy(a)).toMatchObject({ quality: "void", state: "stale", reason: "unverified" });
  rig.exchange();
  expect([...c.claims.values()].map(({ claim }) => claim.quality)).toEqual(["void"]);
  rig.publish(5);
  a.read();
  rig.time.advance(10_000);
  rig.exchange();
  rig.expectTruth();
  expect(claimBy(a)).toMatchObject({ quality: "complete", state: "live" });
  rig.publish(20);
  rig.exchange(a);
  rig.expectTruth();
});

// Symptom: where a router had declared four epochs, all dated ahead, another router ended with nothing of this engine, while the
// engine's reader said that the facts were complete. Mechanism: an epoch was said to follow one other, and one epoch after the
// other was named to follow each of those made up. The reader's journal kept the last of these only, so that for routers which
// had not seen the others in time the epochs made up were the newest; and an epoch that became the newest again was taken to be
// whole with what had come since.
test.each([2, 3, 4, 16, 60])(
  "%d epochs that somebody made up, none of which follows another, are outlived at once",
  (count) => {
    const { rig, a, b, c } = trio(5);
    rig.publish(60);
    a.read();
    isLive(a);
    rig.exchange();
    rig.apart.add(c);
    const ahead = Array.from({ length: count }, (_, at) => (24 + at) * hourUs);
    const tell = tellMadeUp(rig, ahead);
    for (const router of [a, b, c]) tell.to(router);
    expect(claimBy(a)).toMatchObject({ quality: "void", state: "stale", reason: "unverified" });
    rig.publish(5);
    a.read();
    rig.time.advance(10_000);
    rig.exchange();
    expect(claimBy(a)).toMatchObject({ quality: "complete", state: "live" });
    rig.expectTruth([a, b]);
    rig.apart.delete(c);
    rig.settle();
    rig.expectTruth();
    // Its reader says it by itself, also of a later process, whose journal names no epoch between.
    for (let restart = 0; restart < 2; restart++) {
      rig.engine.restart();
      for (const router of [a, b, c]) router.notice();
      rig.publish(3);
      a.read();
      isLive(a);
      rig.settle();
      rig.expectTruth();
    }
    const joiner = rig.add("joiner");
    tell.to(joiner);
    rig.settle();
    rig.expectTruth();
    rig.publish(20);
    a.read();
    rig.settle();
    rig.expectTruth();
  },
);
