import { asRouterId } from "@espalier/common";
import { describe, expect, test } from "vitest";
import { createJournalStore } from "../../src/documents/journal-store.ts";
import { lifeId } from "../../src/facts/life.ts";
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

const isLive = ({ reader }: RigRouter): void => reader.worth("complete", "live", "complete", null);
const claimBy = ({ store }: RigRouter) => store.own.claims.get(target);
const lifeOf = (router: RigRouter): string => lifeId(router.fold.state(target)!.life!);

// Symptom: an engine whose clock was an hour ahead was killed and came back with the right time; another router read it from
// then on. For an hour all routers held the cache of the dead process, as complete. Mechanism: what was read was older than
// what others knew, by the engine's clock, and that was taken for the truth: it could not name a life, though the claim that
// it had posted before the first message stood.
describe("an engine that comes back with an earlier clock", () => {
  test.each([
    ["is known by its first message where a life was named by its first", 0],
    ["is known once it is read to its end where that has a higher number", 5],
  ])("%s", (_what, missed) => {
    const { rig, a, b, c } = trio(1);
    rig.engine.setClock(hourUs);
    rig.publish(60);
    a.miss(missed);
    a.read();
    isLive(a);
    rig.exchange();
    const before = lifeOf(c);
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
    expect(c.fold.state(target)?.life?.predecessor).toBe(before);
    expect(c.claims.get("b@1")?.claim.worth ?? claimBy(b)?.worth).toBe("complete");
    rig.expectTruth([b, c]);
    rig.publish(30);
    b.read();
    rig.exchange();
    rig.expectTruth([b, c]);
  });

  test("is not taken for another process as long as it tells what it had published before", () => {
    const { rig, a, b, c } = trio(2);
    rig.publish(60);
    a.miss(20);
    a.read();
    rig.exchange();
    const before = lifeOf(c);
    rig.apart.add(a);
    b.notice();
    b.reader.setRole("owner");
    // Its history, of which nobody has told the marks.
    b.read(19);
    rig.exchange();
    expect([lifeOf(c), b.reader.role]).toEqual([before, "backup"]);
    b.read();
    isLive(b);
    rig.exchange();
    expect([lifeOf(c), b.reader.role]).toEqual([before, "owner"]);
    rig.expectTruth([b, c]);
  });

  test("that it was connected to before others told of a life, is told by time alone, and is worth nothing until then", () => {
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
    expect(claimBy(b)?.worth).toBe("complete");
    rig.apart.delete(b);
    rig.apart.add(a);
    rig.exchange();
    // What the other router has told arrives late: a router that lags would see the same.
    for (const update of a.store.diff(a.store.own.name, b.store.stateVector(a.store.own.name), 1_000_000)) {
      b.store.apply(update);
    }
    const before = lifeOf(b);
    rig.publish(5);
    b.read();
    rig.exchange();
    expect([lifeOf(b), claimBy(b)?.worth]).toEqual([before, "void"]);
    rig.time.advance(10_000);
    rig.exchange();
    expect(lifeOf(b)).not.toBe(before);
    expect(claimBy(b)?.worth).toBe("complete");
    rig.expectTruth([b, c]);
  });
});

/** A router that declares lives by itself, all dated ahead. */
function tellMadeUp(rig: FeedRig, to: readonly RigRouter[], aheadUs: readonly number[]): readonly string[] {
  const liar = createJournalStore({ origin: { router: asRouterId("liar"), epoch: 1 }, clock: rig.time.clock });
  const lives = aheadUs.map((by) => ({ sequence: 0, timestampUs: startUs + by, checksum: 9, predecessor: null }));
  for (const life of lives) liar.own.declareFeed({ target, life });
  liar.own.commit();
  for (const { store } of to) {
    for (const update of liar.diff(liar.own.name, store.stateVector(liar.own.name), 1_000_000)) store.apply(update);
  }
  return lives.map(lifeId);
}

// Symptom: one life that a router declared, dated a day ahead, removed the facts of an engine everywhere and for a day,
// and the engine's reader said that they were complete. Mechanism: as above, and the reader's word did not depend on whether
// the facts were of the life that it reads.
test("a life that somebody made up is doubted at once by who reads the engine, and outlived", () => {
  const { rig, a, b, c } = trio(4);
  rig.publish(60);
  a.read();
  isLive(a);
  rig.exchange();
  rig.expectTruth();
  const [madeUp] = tellMadeUp(rig, [a, b, c], [24 * hourUs]);
  expect([lifeOf(a), lifeOf(c)]).toEqual([madeUp, madeUp]);
  expect(claimBy(a)).toMatchObject({ worth: "void", state: "stale", reason: "unverified" });
  rig.exchange();
  expect([...c.claims.values()].map(({ claim }) => claim.worth)).toEqual(["void"]);
  rig.publish(5);
  a.read();
  rig.time.advance(10_000);
  rig.exchange();
  rig.expectTruth();
  expect(claimBy(a)).toMatchObject({ worth: "complete", state: "live" });
  rig.publish(20);
  a.read();
  rig.exchange();
  rig.expectTruth();
});

// Each of them has to be named as the predecessor of another life before the present one is the newest: one at a time, since a
// life says what it follows once.
test("two lives that somebody made up, neither of which follows the other, are outlived one after the other", () => {
  const count = 2;
  const { rig, a, b, c } = trio(5);
  rig.publish(60);
  a.read();
  isLive(a);
  rig.exchange();
  tellMadeUp(
    rig,
    [a, b, c],
    Array.from({ length: count }, (_, at) => (24 + at) * hourUs),
  );
  expect(claimBy(a)).toMatchObject({ worth: "void", state: "stale", reason: "unverified" });
  for (let round = 0; round < count; round++) {
    rig.publish(5);
    a.read();
    rig.time.advance(10_000);
    rig.exchange();
    // Nothing is worth anything that is not the truth: neither by the reader's word nor by what is folded.
    const { isComplete, progress } = a.fold.state(target)!;
    if (claimBy(a)?.worth === "complete" && isComplete && progress === "current") rig.expectTruth([a]);
  }
  rig.settle();
  rig.expectTruth();
  expect(claimBy(a)).toMatchObject({ worth: "complete", state: "live" });
  rig.publish(20);
  a.read();
  rig.exchange();
  rig.expectTruth();
});
