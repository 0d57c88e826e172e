import { type Origin, originKey } from "@espalier/mesh";
import { expect, test } from "vitest";
import { type JournalFeed, noteEntry } from "../../src/documents/journal.ts";
import { epochId } from "../../src/facts/engine-epoch.ts";
import type { FactEntry, GapEntry } from "../../src/facts/fact-item.ts";
import type { FeedDeclaration } from "../../src/facts/feed-declaration.ts";
import { isCovered as isJournalCovered } from "../../src/replica/dead-journals.ts";
import { checkpoint, feedOf, originOf, record } from "../documents/journal-fixtures.ts";

const dead = originOf("dead");
const living = originOf("living");
const gap = (feed: number, from: number, to: number): GapEntry => ({ kind: "gap", feed, from, to });

/** Feeds 1 and 2 are two epochs of `engine`, feed 3 is another engine, feed 4 has no epoch, the rest is not declared. */
const declarations: Readonly<Record<number, FeedDeclaration>> = {
  1: feedOf("engine", 0),
  2: feedOf("engine", 500),
  3: feedOf("other", 0),
  4: { target: "placed", epoch: null },
};

type Said = readonly (readonly [Origin, readonly FactEntry[]])[];

/** What the journals of these origins tell of their feeds. */
function journalsOf(said: Said): (origin: Origin) => readonly JournalFeed[] {
  const journals = new Map<string, Map<number, JournalFeed>>();
  for (const [origin, entries] of said) {
    const feeds = journals.get(originKey(origin)) ?? new Map<number, JournalFeed>();
    journals.set(originKey(origin), feeds);
    for (const entry of entries) {
      const declaration = declarations[entry.feed];
      if (!declaration) continue;
      const feed = feeds.get(entry.feed) ?? { number: entry.feed, declaration, lastSequence: -1, lastCheckpoint: -1 };
      feeds.set(entry.feed, feed);
      noteEntry(feed, entry);
    }
  }
  return (origin) => [...(journals.get(originKey(origin))?.values() ?? [])];
}

function isCovered(said: Said, newest: Readonly<Record<string, number>> = {}, writers = [living]): boolean {
  const currentEpoch = (target: string): string | undefined => {
    const declaration = declarations[newest[target] ?? (target === "other" ? 3 : 1)];
    return declaration?.epoch ? epochId(declaration.epoch) : undefined;
  };
  return isJournalCovered({ feedsOf: journalsOf(said) }, dead, { living: writers, currentEpoch });
}

test.each<[string, boolean, Said]>([
  ["a journal that nothing is known of", true, []],
  ["a record and no checkpoint", false, [[dead, [record(1, 5)]]]],
  ["a record and its own writer's checkpoint beyond it", false, [[dead, [record(1, 5), checkpoint(1, 6)]]]],
  [
    "a checkpoint just before the record",
    false,
    [
      [dead, [record(1, 5)]],
      [living, [checkpoint(1, 4)]],
    ],
  ],
  [
    "a checkpoint at the record",
    true,
    [
      [dead, [record(1, 5)]],
      [living, [checkpoint(1, 5)]],
    ],
  ],
  [
    "a checkpoint beyond the record",
    true,
    [
      [dead, [record(1, 5)]],
      [living, [checkpoint(1, 9)]],
    ],
  ],
  [
    "a checkpoint that came before the record was known",
    true,
    [
      [living, [checkpoint(1, 5)]],
      [dead, [record(1, 5)]],
    ],
  ],
  [
    "a later record of the living instead of a checkpoint",
    false,
    [
      [dead, [record(1, 5)]],
      [living, [record(1, 9)]],
    ],
  ],
  [
    "a lower checkpoint after a higher one",
    true,
    [
      [dead, [record(1, 5)]],
      [living, [checkpoint(1, 9), checkpoint(1, 3)]],
    ],
  ],
  [
    "a lower record after a higher one",
    false,
    [
      [dead, [record(1, 9), record(1, 3)]],
      [living, [checkpoint(1, 5)]],
    ],
  ],
  [
    "only a checkpoint, and a lower one of the living",
    false,
    [
      [dead, [checkpoint(1, 8)]],
      [living, [checkpoint(1, 7)]],
    ],
  ],
  [
    "only a checkpoint, and one at it",
    true,
    [
      [dead, [checkpoint(1, 8)]],
      [living, [checkpoint(1, 8)]],
    ],
  ],
  ["only a gap, which says nothing to keep", true, [[dead, [gap(1, 3, 8)]]]],
  [
    "one of two targets",
    false,
    [
      [dead, [record(1, 5), record(3, 5)]],
      [living, [checkpoint(1, 5)]],
    ],
  ],
  [
    "both of two targets",
    true,
    [
      [dead, [record(1, 5), record(3, 5)]],
      [living, [checkpoint(3, 9), checkpoint(1, 9)]],
    ],
  ],
  [
    "the checkpoint of another epoch",
    false,
    [
      [dead, [record(1, 5)]],
      [living, [checkpoint(2, 900)]],
    ],
  ],
  ["entries of feeds that are not declared, or have no epoch", true, [[dead, [record(9, 5), record(4, 5)]]]],
])("%s", (_what, expected, said) => {
  expect(isCovered(said)).toBe(expected);
});

test("records of an epoch that has ended, or of a target that nobody knows, need no checkpoint", () => {
  const said: Said = [[dead, [record(1, 5)]]];
  expect(isCovered(said, { engine: 2 })).toBe(true);
  expect(isCovered(said, { engine: 9 })).toBe(true);
  expect(isCovered(said, { engine: 1 })).toBe(false);
});

test("of a journal that goes from one epoch to the next only the next one counts", () => {
  const said: Said = [[dead, [record(1, 5), record(2, 501)]]];
  expect(isCovered(said, { engine: 2 })).toBe(false);
  expect(isCovered([...said, [living, [checkpoint(2, 501)]]], { engine: 2 })).toBe(true);
});

test("checkpoints count of those only who are said to live", () => {
  const said: Said = [
    [dead, [record(1, 5)]],
    [living, [checkpoint(1, 5)]],
  ];
  expect(isCovered(said, {}, [])).toBe(false);
  expect(isCovered(said, {}, [originOf("living", 2)])).toBe(false);
  expect(isCovered(said, {}, [originOf("c"), living])).toBe(true);
});

test("a journal that is gone neither needs cover nor gives it", () => {
  expect(isCovered([[dead, [record(1, 5)]]])).toBe(false);
  expect(isCovered([[living, [checkpoint(1, 5)]]])).toBe(true);
});
