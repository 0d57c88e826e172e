import { silentMeter } from "@espalier/core";
import { type Member, type Origin, originKey } from "@espalier/mesh";
import { createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import type { FoldState } from "../../src/facts/fact-fold.ts";
import type { FactEntry } from "../../src/facts/fact-item.ts";
import type { FeedClaim, FeedQuality } from "../../src/feeds/feed-claim.ts";
import { type CoordinatedReader, FeedTable } from "../../src/feeds/feed-table.ts";
import { checkpoint, claimOf, feedOf, originOf, record, textOf } from "../documents/journal-fixtures.ts";

const self = originOf("self", 3);
const mark = { sequence: 9, timestampUs: 1, checksum: 1 };
const current: Partial<FoldState> = { last: mark, isComplete: true, progress: "current" };

function member(origin: Origin, state: Member["state"] = "alive"): Member {
  return { origin, state, isDraining: false, isLinked: true, unreachable: [] };
}

/** A reader that notes what it is told. */
function readerOf(reported: string[], role: CoordinatedReader["role"] = "owner"): CoordinatedReader {
  const nothing = (): void => {};
  return {
    ...{ role, setRole: nothing, maintain: nothing, stop: nothing },
    foldChanged: () => reported.push("fold"),
    claimSeen: ({ router }, { stamp }) => reported.push(`claim ${router} ${stamp}`),
    factsSeen: ({ router }, epoch, entries) => reported.push(`${router} ${epoch.sequence} ${entries.map(textOf)}`),
  };
}

function tableOf() {
  const states = new Map<string, FoldState>();
  const reported: string[] = [];
  const feeds = new FeedTable({
    ...{ fold: { state: (target) => states.get(target) }, slots: { keyOf: () => undefined }, self: () => self },
    ...{ clock: createVirtualTime().clock, meter: silentMeter },
  });
  feeds.onClaims((target) => reported.push(target));
  return {
    feeds,
    reported,
    folded(state: Partial<FoldState>, target = "engine") {
      const empty = { target, epoch: undefined, last: undefined, isComplete: false, progress: "current" } as const;
      states.set(target, { ...empty, ...state });
    },
    claim(origin: Origin, quality: FeedQuality, stamp = 1, target = "engine") {
      feeds.claimChanged(origin, target, { ...claimOf(target, stamp), quality });
    },
  };
}

describe("who lives", () => {
  test.each<[Member["state"], boolean]>([
    ["alive", true],
    ["suspect", true],
    ["down", false],
    ["left", false],
  ])("a member that is %s: %s", (state, isLiving) => {
    const { feeds } = tableOf();
    feeds.setMembers([member(originOf("a"), state)]);
    expect(feeds.isLiving(originOf("a"))).toBe(isLiving);
  });

  test("this router does in this epoch only, whoever says what of it; others do in the epoch that is told", () => {
    const { feeds } = tableOf();
    expect(feeds.isLiving(self)).toBe(true);
    feeds.setMembers([member(originOf("a", 2)), member(self, "down")]);
    expect([self, originOf("self", 2), originOf("a", 2), originOf("a", 1)].map((each) => feeds.isLiving(each))).toEqual(
      [true, false, true, false],
    );
  });

  test("who is not told of any more is gone", () => {
    const { feeds } = tableOf();
    feeds.setMembers([member(originOf("a"))]);
    feeds.setMembers([]);
    expect(feeds.isLiving(originOf("a"))).toBe(false);
  });
});

describe("what facts are worth", () => {
  type Row = [string, FeedQuality, { claimed?: FeedQuality; isAlive?: boolean; state?: Partial<FoldState> }];
  test.each<Row>([
    ["nobody has ever read them", "none", {}],
    ["nobody has, but facts are known", "none", { state: current }],
    ["a living router has read nothing yet", "complete", { claimed: "complete" }],
    ["a living router reads and all is folded", "complete", { claimed: "complete", state: current }],
    ["the fold waits for something", "partial", { claimed: "complete", state: { ...current, progress: "waiting" } }],
    ["the fold went on over a gap", "partial", { claimed: "complete", state: { ...current, progress: "open" } }],
    ["nothing is folded, and something is missing", "partial", { claimed: "complete", state: { isComplete: false } }],
    [
      "nothing is folded, for later messages wait",
      "partial",
      { claimed: "complete", state: { isComplete: true, progress: "waiting" } },
    ],
    ["nothing is folded, for there was nothing", "complete", { claimed: "complete", state: { isComplete: true } }],
    ["something was missed before", "partial", { claimed: "complete", state: { ...current, isComplete: false } }],
    ["the state is on its way", "void", { claimed: "complete", state: { ...current, progress: "loading" } }],
    ["the state is on its way and nobody reads", "void", { state: { progress: "loading" } }],
    ["the reader says partial", "partial", { claimed: "partial", state: current }],
    ["the reader says void", "void", { claimed: "void", state: current }],
    ["the reader says none", "none", { claimed: "none", state: current }],
    ["the reader is dead", "partial", { claimed: "complete", isAlive: false, state: current }],
    ["the reader is dead and had read nothing", "partial", { claimed: "complete", isAlive: false }],
    ["the reader is dead and had said void", "void", { claimed: "void", isAlive: false, state: current }],
  ])("%s: %s", (_what, quality, { claimed, isAlive = true, state }) => {
    const rig = tableOf();
    if (claimed) rig.claim(originOf("a"), claimed);
    rig.feeds.setMembers(isAlive ? [member(originOf("a"))] : []);
    if (state) rig.folded(state);
    expect(rig.feeds.qualityOf("engine")).toBe(quality);
  });

  test("a living router's claim goes before a dead one's later claim", () => {
    const rig = tableOf();
    rig.claim(originOf("a"), "partial", 1);
    rig.claim(originOf("b"), "void", 9);
    rig.folded(current);
    rig.feeds.setMembers([member(originOf("a"))]);
    expect([rig.feeds.qualityOf("engine"), rig.feeds.claimOf("engine")?.origin.router]).toEqual(["partial", "a"]);
    rig.feeds.setMembers([]);
    expect([rig.feeds.qualityOf("engine"), rig.feeds.claimOf("engine")]).toEqual(["void", undefined]);
  });

  test("the own claim counts without any members", () => {
    const rig = tableOf();
    rig.claim(self, "complete");
    rig.folded(current);
    expect(rig.feeds.qualityOf("engine")).toBe("complete");
  });
});

describe("listeners", () => {
  test("hear of claims, withdrawals, members, dropped journals and the fold, by target", () => {
    const rig = tableOf();
    rig.claim(originOf("a"), "complete", 1, "x");
    rig.claim(originOf("b"), "complete", 1, "y");
    rig.feeds.claimChanged(originOf("a"), "x", undefined);
    expect(rig.reported.splice(0)).toEqual(["x", "y", "x"]);
    rig.feeds.setMembers([]);
    expect(rig.reported.splice(0)).toEqual(["y"]);
    rig.feeds.foldChanged("z");
    rig.feeds.dropOrigin(originOf("a"));
    rig.feeds.dropOrigin(originOf("b"));
    expect(rig.reported).toEqual(["z", "y"]);
    expect(rig.feeds.claimsOf("y")).toEqual([]);
  });

  test("those that have left hear nothing", () => {
    const rig = tableOf();
    const heard: string[] = [];
    rig.feeds.onClaims((target) => heard.push(target))();
    rig.claim(originOf("a"), "complete");
    expect([heard, rig.reported]).toEqual([[], ["engine"]]);
  });
});

describe("readers", () => {
  test("hear of others' claims on their target and of its fold, and of nothing else", () => {
    const rig = tableOf();
    const reported: string[] = [];
    rig.feeds.opened("engine", readerOf(reported));
    rig.claim(originOf("a"), "complete", 5);
    rig.claim(originOf("a"), "complete", 6, "other");
    rig.feeds.claimChanged(originOf("a"), "engine", undefined);
    rig.feeds.foldChanged("engine");
    rig.feeds.foldChanged("other");
    expect(reported).toEqual(["claim a 5", "fold"]);
  });

  test("hear of facts of their target by epoch, all entries of a feed together", () => {
    const rig = tableOf();
    const [engine, other]: [string[], string[]] = [[], []];
    rig.feeds.opened("engine", readerOf(engine));
    rig.feeds.opened("other", readerOf(other));
    const declarations = [feedOf("engine", 0), feedOf("other", 0), feedOf("engine", 50), feedOf("nobody", 0)];
    const entries: FactEntry[] = [record(0, 1), record(1, 1), record(2, 51), record(0, 2), record(3, 7), record(9, 8)];
    rig.feeds.factsSeen(originOf("a"), [...entries, checkpoint(1, 1)], (feed) => declarations[feed]);
    expect(engine).toEqual(["a 0 record 0.1,record 0.2", "a 50 record 2.51"]);
    expect(other).toEqual(["a 0 record 1.1,checkpoint 1.1"]);
  });

  test("hear nothing of facts in a feed without an epoch", () => {
    const rig = tableOf();
    const reported: string[] = [];
    rig.feeds.opened("engine", readerOf(reported));
    rig.feeds.factsSeen(originOf("a"), [record(1, 1)], () => ({ target: "engine", epoch: null }));
    expect(reported).toEqual([]);
  });

  test("of a target the one that was opened last holds, and only its own end ends it", () => {
    const { feeds } = tableOf();
    const [first, second] = [readerOf([]), readerOf([])];
    feeds.opened("engine", first);
    feeds.opened("engine", second);
    feeds.closed("engine", first);
    expect(feeds.readers).toEqual([second]);
    feeds.closed("engine", second);
    expect(feeds.readers).toEqual([]);
  });

  test("own the targets of which they are owners", () => {
    const { feeds } = tableOf();
    for (const role of ["owner", "backup", "none"] as const) feeds.opened(role, readerOf([], role));
    expect([...feeds.owned()]).toEqual(["owner"]);
  });
});

test("claims of one router in two epochs are two claims", () => {
  const rig = tableOf();
  rig.claim(originOf("a", 1), "complete", 9);
  rig.claim(originOf("a", 2), "partial", 5);
  const claims = rig.feeds.claimsOf("engine").map(({ origin, claim }): [string, FeedClaim["quality"]] => {
    return [originKey(origin), claim.quality];
  });
  expect(claims).toEqual([
    ["a@1", "complete"],
    ["a@2", "partial"],
  ]);
  rig.feeds.setMembers([member(originOf("a", 2))]);
  expect(rig.feeds.claimOf("engine")?.claim.quality).toBe("partial");
});
