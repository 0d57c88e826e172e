import { type Origin, originKey } from "@espalier/mesh";
import { createVirtualTime, type VirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { type JournalFeed, noteEntry } from "../../src/documents/journal.ts";
import type { FactEntry } from "../../src/facts/fact-item.ts";
import { createDeadJournals, maxDeadJournals } from "../../src/replica/dead-journals.ts";
import { checkpoint, feedOf, originOf, record } from "../documents/journal-fixtures.ts";
import { chainOf, createNode, join, type Node, store, tellMembers } from "./replica-pair.ts";

/** Longer than any placement of these replicas is believed, and than upkeep takes to see it. */
const longAfterMs = 605_000;
const nobodyToAsk = (): void => {};

function journalsOf({ replica }: Node): readonly string[] {
  return replica.store.origins().map(originKey).sort();
}

/** Two or more replicas that do their upkeep. */
function started(names: readonly string[], time: VirtualTime): Node[] {
  const nodes = names.map((name) => createNode(name, time));
  join(nodes);
  for (const { replica } of nodes) void replica.start();
  return nodes;
}

/** The node owns the engine's feed and has written some messages of it. */
function readerOf({ replica }: Node, sequences: readonly number[], target = "engine") {
  const reader = replica.openFeed(target, nobodyToAsk);
  reader.setQuality("complete", "live", "complete", null);
  reader.setRole("owner");
  for (const sequence of sequences) store(reader, sequence, chainOf(sequence, 3));
  return reader;
}

describe("the journal of a router that died", () => {
  // Symptom: of two routers the one that took a feed over kept the dead one's journal for ever, though it had checkpoints
  // beyond it. Mechanism: checkpoints were counted as observers of the store are told of them, and nobody is told of the own.
  test("goes once this router itself has checkpoints of all its feeds beyond it", () => {
    const time = createVirtualTime();
    const [a, b] = started(["a", "b"], time) as [Node, Node];
    readerOf(a, [0, 1, 2]);
    time.advance(20);
    tellMembers([a, b], [b]);
    readerOf(b, [0, 1, 2, 3]);
    time.advance(longAfterMs);
    expect(journalsOf(b)).toEqual([]);
    for (const sequence of [0, 1, 2, 3]) expect(b.heldBlocks("engine", chainOf(sequence, 3))).toBe(3);
  });

  test("goes with a third one too once another has a checkpoint beyond it, and not before", () => {
    const time = createVirtualTime();
    const [a, b, c] = started(["a", "b", "c"], time) as [Node, Node, Node];
    readerOf(a, [0, 1, 2]);
    time.advance(20);
    tellMembers([a, b, c], [b, c]);
    time.advance(longAfterMs);
    expect(journalsOf(c)).toEqual([originKey(a.replica.ports.origin)]);
    readerOf(b, [0, 1, 2, 3]);
    time.advance(longAfterMs);
    expect(journalsOf(c)).toEqual([originKey(b.replica.ports.origin)]);
  });

  test("stays while its placements may be believed, though nothing in it is a fact", () => {
    const time = createVirtualTime();
    const [a, b] = started(["a", "b"], time) as [Node, Node];
    b.slots.slotOf("engine");
    a.replica.placements.place("engine", chainOf(1, 4), 4, { ttlMs: 600_000, isConfirmed: false });
    time.advance(20);
    tellMembers([a, b], [b]);
    time.advance(599_000);
    expect(journalsOf(b)).toHaveLength(1);
    expect(b.placedBlocks("engine", chainOf(1, 4))).toBe(4);
    time.advance(6_000);
    expect(journalsOf(b)).toEqual([]);
  });
});

interface Rig {
  readonly time: VirtualTime;
  /** A journal tells of feed 1, which is `engine`. */
  note(origin: Origin, ...entries: readonly FactEntry[]): void;
  readonly dropped: string[];
  readonly origins: Origin[];
  readonly living: Set<string>;
  collect(): void;
}

/** The rule by itself: journals are names, and what is in them is what was noted. */
function rigOf(origins: Origin[]): Rig {
  const time = createVirtualTime();
  const feeds = new Map<string, JournalFeed>();
  const dropped: string[] = [];
  const living = new Set<string>();
  const rig: Rig = {
    ...{ time, dropped, origins, living },
    note(origin, ...entries) {
      const key = originKey(origin);
      const declaration = feedOf("engine");
      const feed = feeds.get(key) ?? { number: 1, declaration, lastSequence: -1, lastCheckpoint: -1 };
      feeds.set(key, feed);
      for (const entry of entries) noteEntry(feed, entry);
    },
    collect: () => collectDead((origin) => living.has(originKey(origin))),
  };
  const collectDead = createDeadJournals({
    ...{ clock: time.clock, placementTtlMs: 1_000, self: () => originOf("self") },
    store: {
      origins: () => rig.origins,
      feedsOf: (origin) => [feeds.get(originKey(origin)) ?? []].flat(),
      drop(gone) {
        dropped.push(originKey(gone));
        const stays = rig.origins.filter(({ router, epoch }) => router !== gone.router || epoch > gone.epoch);
        rig.origins.splice(0, rig.origins.length, ...stays);
      },
    },
    fold: {
      state: (target) => ({
        target,
        epoch: feedOf(target).epoch!,
        last: undefined,
        isComplete: true,
        progress: "current",
      }),
    },
  });
  return rig;
}

describe("which journals go", () => {
  test("an empty one that is dead for just the time that placements are believed stays, a millisecond more and it goes", () => {
    const rig = rigOf([originOf("a")]);
    rig.collect();
    rig.time.advance(1_000);
    rig.collect();
    expect(rig.dropped).toEqual([]);
    rig.time.advance(1);
    rig.collect();
    expect(rig.dropped).toEqual(["a@1"]);
  });

  test("one whose writer lives again in between begins to count anew", () => {
    const rig = rigOf([originOf("a")]);
    rig.collect();
    rig.time.advance(900);
    rig.living.add("a@1");
    rig.collect();
    rig.living.clear();
    rig.collect();
    rig.time.advance(900);
    rig.collect();
    expect(rig.dropped).toEqual([]);
    rig.time.advance(101);
    rig.collect();
    expect(rig.dropped).toEqual(["a@1"]);
  });

  // Symptom: a router that crashed again soon after it came back took records along that nobody had covered yet.
  // Mechanism: its second journal was empty and so of no use, and to drop an epoch is to drop those before it.
  test("a useless one stays while an earlier epoch of its router has records that nobody has a checkpoint beyond", () => {
    const rig = rigOf([originOf("a", 1), originOf("a", 2), originOf("b")]);
    rig.note(originOf("a", 1), record(1, 7));
    rig.living.add("b@1");
    rig.collect();
    rig.time.advance(1_001);
    rig.collect();
    expect(rig.dropped).toEqual([]);
    rig.note(originOf("b"), checkpoint(1, 7));
    rig.collect();
    expect(rig.origins).toEqual([originOf("b")]);
  });

  test("a covered earlier epoch goes alone while the later one is needed", () => {
    const rig = rigOf([originOf("a", 2), originOf("a", 1)]);
    rig.note(originOf("a", 2), record(1, 7));
    rig.collect();
    rig.time.advance(1_001);
    rig.collect();
    expect(rig.dropped).toEqual(["a@1"]);
  });

  test("one more than are kept makes the one go that is dead for longest, needed or not", () => {
    const rig = rigOf(Array.from({ length: maxDeadJournals }, (_, number) => originOf(`r${number}`)));
    for (const origin of rig.origins) rig.note(origin, record(1, 7));
    rig.collect();
    rig.time.advance(2_000);
    rig.collect();
    expect(rig.dropped).toEqual([]);
    rig.origins.unshift(originOf("late"));
    rig.note(originOf("late"), record(1, 7));
    rig.collect();
    expect(rig.dropped).toEqual(["r0@1"]);
    rig.collect();
    expect(rig.dropped).toHaveLength(1);
  });

  test("earlier epochs that go along make room too", () => {
    const epochs = Array.from({ length: 6 }, (_, epoch) => originOf("a", 6 - epoch));
    const others = Array.from({ length: maxDeadJournals - 5 }, (_, number) => originOf(`r${number}`));
    const rig = rigOf([...epochs, ...others]);
    for (const origin of rig.origins) rig.note(origin, record(1, 7));
    rig.collect();
    expect(rig.dropped).toEqual(["a@6"]);
    expect(rig.origins).toEqual(others);
  });

  test("the own checkpoints count, those of a dead router do not", () => {
    const rig = rigOf([originOf("a"), originOf("b")]);
    rig.note(originOf("a"), record(1, 7));
    rig.note(originOf("b"), record(1, 8), checkpoint(1, 8));
    rig.collect();
    rig.time.advance(1_001);
    rig.collect();
    expect(rig.dropped).toEqual([]);
    rig.note(originOf("self"), checkpoint(1, 7));
    rig.collect();
    expect(rig.dropped).toEqual(["a@1"]);
    rig.note(originOf("self"), checkpoint(1, 8));
    rig.collect();
    expect(rig.dropped).toEqual(["a@1", "b@1"]);
  });
});
