import { asRouterId } from "@espalier/core";
import { tier } from "@espalier/prefix-index";
import { describe, expect, test } from "vitest";
import type { EngineEpoch } from "../../src/facts/engine-epoch.ts";
import type { FactEntry } from "../../src/facts/fact-item.ts";
import { OwnClaim } from "../../src/feeds/feed-claim.ts";
import { maxOwnFeeds, OwnFeeds } from "../../src/feeds/feed-writer.ts";
import { FeedRig, target } from "./feed-rig.ts";
import { wordsOf } from "./model-engine.ts";

/** Notes what is written to a journal, and to the fold. */
function recorded() {
  const log: string[] = [];
  const epoch = { now: 1 };
  let next = 0;
  const note = (what: string, ...rest: readonly unknown[]): unknown => log.push([what, ...rest].join(" "));
  const journal = {
    get origin() {
      return { router: asRouterId("m"), epoch: epoch.now };
    },
    declareFeed: () => next++,
    declarationOf: () => undefined,
    claim: ({ stamp, quality }: { stamp: number; quality: string }) => void note("claim", stamp, quality),
    unclaim: () => void note("unclaim"),
    writeFact: (entry: FactEntry) => void note("write", entry.feed, entry.kind),
    settle: (feed: number, sequence: number) => void note("settle", feed, sequence),
    retireFeed: (feed: number) => void note("retire", feed),
    opsSinceCheckpoint: (feed: number) => feed * 10,
  };
  const fold = {
    declare: () => void note("declare", next - 1),
    apply: (_origin: unknown, entries: readonly FactEntry[]) => void note("apply", entries.length),
    outranking: (): readonly string[] => outranking,
  };
  const outranking: string[] = [];
  const taken = (): string[] => log.splice(0);
  return { journal, fold, taken, epoch, outranking };
}

const engineEpoch = (sequence: number): EngineEpoch => ({
  sequence,
  timestampUs: 5,
  checksum: sequence,
  predecessor: null,
});
const record = (sequence: number) =>
  ({ kind: "record", sequence, timestampUs: 1, checksum: 2, isComplete: true, ops: new Uint8Array(0) }) as const;

describe("entries of the own journal", () => {
  test("go to the fold as well, under the number of their epoch", () => {
    const { journal, fold, taken } = recorded();
    const feeds = new OwnFeeds(target, journal, fold);
    feeds.write(engineEpoch(1), [record(1), { kind: "gap", from: 2, to: 4 }]);
    feeds.write(engineEpoch(1), [record(5)]);
    feeds.write(engineEpoch(1), []);
    expect(taken()).toEqual(["declare 0", "write 0 record", "write 0 gap", "apply 2", "write 0 record", "apply 1"]);
    feeds.checkpoint(engineEpoch(1), record(5), { isComplete: true, blocks: 3, digest: [1, 2] });
    expect(taken()).toEqual(["write 0 checkpoint", "apply 1", "settle 0 5"]);
    expect([feeds.opsSinceCheckpoint(engineEpoch(1)), feeds.opsSinceCheckpoint(engineEpoch(9))]).toEqual([0, 0]);
  });

  test("are given up to the checkpoint of another router, all of them when that is beyond them", () => {
    const { journal, fold, taken } = recorded();
    const feeds = new OwnFeeds(target, journal, fold);
    feeds.write(engineEpoch(1), [record(1), record(7)]);
    taken();
    feeds.settle(engineEpoch(1), 6);
    feeds.settle(engineEpoch(2), 100);
    expect(taken()).toEqual(["settle 0 6"]);
    feeds.settle(engineEpoch(1), 7);
    feeds.settle(engineEpoch(1), 8);
    expect(taken()).toEqual(["retire 0"]);
  });

  test("of the latest four epochs are kept; with one more those of the first go", () => {
    const { journal, fold, taken } = recorded();
    const feeds = new OwnFeeds(target, journal, fold);
    for (let at = 0; at < maxOwnFeeds; at++) feeds.declare(engineEpoch(at));
    expect(taken().filter((line) => line.startsWith("retire"))).toEqual([]);
    feeds.declare(engineEpoch(maxOwnFeeds));
    expect(taken()).toEqual(["declare 4", "retire 0"]);
    feeds.retireOthers(engineEpoch(maxOwnFeeds));
    expect(taken()).toEqual(["retire 1", "retire 2", "retire 3"]);
  });

  test("are of an epoch that follows all that are dated later, each said once, as long as the journal has it", () => {
    const { journal, fold, taken, outranking } = recorded();
    const feeds = new OwnFeeds(target, journal, fold);
    outranking.push("0.9.9", "0.8.8");
    feeds.write(engineEpoch(1), [record(1)]);
    expect(taken()).toEqual(["declare 0", "declare 1", "declare 2", "write 0 record", "apply 1"]);
    outranking.push("0.7.7");
    feeds.declare(engineEpoch(1));
    feeds.declare(engineEpoch(1));
    expect(taken()).toEqual(["declare 3"]);
    feeds.retireOthers(engineEpoch(2));
    expect(taken()).toEqual(["retire 0", "retire 1", "retire 2", "retire 3"]);
  });

  test("are under new numbers in a journal that was begun anew", () => {
    const { journal, fold, taken, epoch } = recorded();
    const feeds = new OwnFeeds(target, journal, fold);
    feeds.write(engineEpoch(1), [record(1)]);
    taken();
    epoch.now = 2;
    feeds.write(engineEpoch(1), [record(2)]);
    expect(taken()).toEqual(["declare 1", "write 1 record", "apply 1"]);
  });
});

describe("the own claim", () => {
  const origin = (router: string, epoch = 1) => ({ router: asRouterId(router), epoch });
  const claimAt = (stamp: number) =>
    ({ target, stamp, quality: "complete", state: "live", reason: "complete", unusable: null }) as const;

  function posted(stamp = 100) {
    const { journal, taken } = recorded();
    const others: { origin: ReturnType<typeof origin>; claim: ReturnType<typeof claimAt> }[] = [];
    const claim = new OwnClaim({ target, journal, stamp: () => stamp, claimsOf: () => others });
    claim.post();
    return { claim, taken, others };
  }

  test.each([
    ["later", "z", 101, true],
    ["of the same time and of a lower router", "a", 100, true],
    ["of the same time and of a higher router", "z", 100, false],
    ["earlier", "a", 99, false],
    ["its own", "m", 500, false],
  ] as const)("gives way to one that is %s: %s at %d", (_what, router, stamp, isRival) => {
    const { claim } = posted();
    claim.seen(origin(router), claimAt(stamp));
    expect(claim.rival !== undefined).toBe(isRival);
  });

  test("gives way when the other has written, not somebody else", () => {
    const { claim } = posted();
    claim.seen(origin("z"), claimAt(101));
    claim.written(origin("y"));
    claim.written(origin("z", 2));
    expect(claim.rival?.hasWritten).toBe(false);
    claim.written(origin("z"));
    claim.seen(origin("z"), claimAt(102));
    expect(claim.rival?.hasWritten).toBe(true);
  });

  test("is later than all that are known, and changes with its worth without being another", () => {
    const { claim, taken, others } = posted();
    expect(taken()).toEqual(["claim 100 none"]);
    claim.setQuality("complete", "live", "complete", null);
    claim.setQuality("complete", "live", "complete", null);
    expect(taken()).toEqual(["claim 100 complete"]);
    others.push({ origin: origin("z"), claim: claimAt(700) });
    expect(claim.hasOthers()).toBe(true);
    claim.post();
    claim.withdraw();
    claim.withdraw();
    claim.setQuality("partial", "partial", "gap", null);
    expect(taken()).toEqual(["claim 701 complete", "unclaim"]);
  });

  test("of blocks that cannot be used is worth nothing", () => {
    const { claim } = posted();
    claim.setQuality("complete", "live", "complete", "block-size-ratio");
    expect(claim.isUsable).toBe(false);
    claim.setQuality("partial", "live", "complete", null);
    expect(claim.isUsable).toBe(true);
  });
});

describe("removals", () => {
  /** Bytes of the record that removes a hundred blocks. */
  function removalBytes(prepare: (rig: FeedRig) => void): number {
    const rig = new FeedRig(1);
    const a = rig.add("a");
    const b = rig.add("b");
    a.reader.setRole("owner");
    b.reader.setRole("none");
    const blocks = Array.from({ length: 100 }, (_, block) => block);
    rig.engine.publish(blocks);
    a.read();
    prepare(rig);
    let bytes = 0;
    b.store.observe({
      feedDeclared: () => {},
      claimChanged: () => {},
      facts: (_origin, entries) => {
        for (const entry of entries) bytes = entry.kind === "record" ? entry.ops.length : bytes;
      },
      placements: () => {},
      journalDropped: () => {},
    });
    rig.exchange();
    rig.engine.publish([], blocks);
    rig.exchange(a);
    expect(b.held()).toEqual([]);
    rig.expectEqual();
    return bytes;
  }

  test("take four bytes a block where the owner's index has exactly what the message changes", () => {
    expect(removalBytes(() => {})).toBeLessThan(410);
  });

  test("take eight where others may have more than the owner, after a gap", () => {
    const bytes = removalBytes((rig) => {
      rig.publish(3);
      const [a] = rig.routers;
      a!.miss(3);
      rig.engine.publish([]);
      a!.read();
    });
    expect(bytes).toBeGreaterThan(800);
  });

  test("of a backup take eight, as it may write them much later", () => {
    const rig = new FeedRig(2);
    const [a, b] = [rig.add("a"), rig.add("b")];
    a.reader.setRole("owner");
    b.reader.setRole("backup");
    rig.engine.publish([1, 2, 3]);
    rig.exchange(a, b);
    rig.exchange();
    const before = b.reader.describe().keptBytes;
    b.reader.sink.removed(tier.gpu, wordsOf([1, 2, 3]), 0, 3);
    b.reader.batch({ sequence: 1, timestampUs: 1, checksum: 1 }, true);
    expect(b.reader.describe().keptBytes - before).toBeGreaterThan(24);
  });
});

test("checkpoints of several feeds take turns", () => {
  const rig = new FeedRig(3);
  const turns = { left: 0 };
  const a = rig.add("a", {}, () => turns.left-- > 0);
  a.reader.setRole("owner");
  rig.publish(5);
  rig.exchange(a);
  expect(a.checkpoints).toBe(0);
  turns.left = 1;
  rig.exchange();
  expect(a.checkpoints).toBe(1);
  // An overdue one does not wait for its turn.
  rig.publish(5);
  a.read();
  rig.time.advance(179_900);
  rig.exchange();
  expect(a.checkpoints).toBe(1);
  rig.time.advance(100);
  rig.exchange();
  expect(a.checkpoints).toBe(2);
});

test("messages that came already and holes without a beginning change nothing", () => {
  const rig = new FeedRig(4);
  const a = rig.add("a");
  a.reader.setRole("owner");
  a.reader.gap(0, 5);
  rig.publish(3);
  a.read();
  const before = a.digest();
  a.reader.sink.stored(tier.gpu, wordsOf([900]), 0, 1);
  a.reader.batch({ sequence: 2, timestampUs: 1, checksum: 1 }, true);
  a.reader.gap(9, 8);
  expect(a.digest()).toBe(before);
  expect(a.reader.describe()).toMatchObject({ sequence: 2, isComplete: true });
});
