import { createSeededRandom, type Random } from "@espalier/core";
import { type DocumentUpdate, type Origin, originKey } from "@espalier/mesh";
import { fixedSeeds } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import type { JournalObserver } from "../../src/documents/journal.ts";
import type { Journals } from "../../src/documents/journal-store.ts";
import type { FeedClaim } from "../../src/feeds/feed-claim.ts";
import { journalContent } from "./journal-content.ts";
import {
  checkpoint,
  claimOf,
  claimsOf,
  entriesOf,
  feedOf,
  record,
  storeOf,
  sync,
  type TestStore,
  textOf,
} from "./journal-fixtures.ts";

/** What an observer believes by what it was told, by origin. */
interface Belief {
  readonly claims: Map<string, FeedClaim>;
  readonly facts: string[];
  readonly feeds: Set<number>;
}

/** An observer that refuses facts of feeds of which it was not told. */
function believer() {
  const beliefs = new Map<string, Belief>();
  const of = (origin: Origin): Belief => {
    const known = beliefs.get(originKey(origin)) ?? { claims: new Map(), facts: [], feeds: new Set() };
    beliefs.set(originKey(origin), known);
    return known;
  };
  const observer: JournalObserver = {
    feedDeclared: (origin, feed) => of(origin).feeds.add(feed),
    claimChanged: (origin, target, claim) => {
      if (claim === undefined) of(origin).claims.delete(target);
      else of(origin).claims.set(target, claim);
    },
    facts: (origin, entries) => {
      for (const { feed } of entries) expect(of(origin).feeds).toContain(feed);
      of(origin).facts.push(...entries.map(textOf));
    },
    placements: () => {},
    journalDropped: (origin) => beliefs.delete(originKey(origin)),
  };
  return { of, observer };
}

interface Replica extends TestStore {
  readonly beliefOf: (origin: Origin) => Belief;
  sequence: number;
  /** Updates on their way here. */
  readonly inbox: DocumentUpdate[];
}

function replicaOf(router: string): Replica {
  const made = storeOf(router);
  const { of, observer } = believer();
  made.store.observe(observer);
  return { ...made, beliefOf: of, sequence: 0, inbox: [] };
}

/** One router does something at random. */
function write(random: Random, replica: Replica): void {
  const { own } = replica.store;
  const target = `t${random.integer(4)}`;
  const sequence = ++replica.sequence;
  const feed = own.declareFeed(feedOf(target, random.integer(40) === 0 ? sequence : 0));
  switch (random.integer(8)) {
    case 0:
      own.writeFact(checkpoint(feed, sequence));
      own.settle(feed, sequence - random.integer(3));
      break;
    case 1:
      own.claim(claimOf(target, sequence));
      break;
    case 2:
      own.unclaim(target);
      break;
    case 3:
      own.writePlacements(Uint8Array.of(sequence & 255), replica.time.clock.nowMs() + random.integer(300));
      break;
    case 4:
      if (random.integer(4) === 0) own.retireFeed(feed);
      break;
    default:
      own.writeFact(record(feed, sequence, 1 + random.integer(6)));
  }
  if (random.integer(3) === 0) own.commit();
  if (random.integer(5) === 0) replica.time.advance(40);
}

/** Delivers one update, perhaps late, twice, or never; a gap is repaired at once, or left. */
function deliver(random: Random, replica: Replica, all: readonly Replica[]): void {
  if (replica.inbox.length === 0) return;
  const at = random.integer(Math.min(3, replica.inbox.length));
  const update = replica.inbox[at]!;
  if (random.integer(4) !== 0) replica.inbox.splice(at, 1);
  if (random.integer(10) === 0) return;
  if (replica.store.apply(update) !== "gap" || random.integer(2) === 0) return;
  const peer = all[random.integer(all.length)]!.store;
  const maxBytes = 100 + random.integer(3_000);
  for (const piece of peer.diff(update.name, replica.store.stateVector(update.name), maxBytes)) {
    replica.store.apply(piece);
    if (random.integer(10) === 0) return;
  }
}

const contents = (store: Journals, origin: Origin) => ({
  entries: entriesOf(store, origin),
  digest: journalContent(store, `journal/default/${origin.router}/${origin.epoch}`),
});

describe("whatever is lost, late or doubled, replicas end with the same journals", () => {
  test.each(fixedSeeds(25))("seed %i", (seed) => {
    const random = createSeededRandom(seed);
    const all = ["a", "b", "c"].map(replicaOf);
    for (const from of all) {
      from.store.onUpdate((update, isOwn) => {
        if (isOwn) for (const to of all) if (to !== from) to.inbox.push(update);
      });
    }
    for (let step = 0; step < 400; step++) {
      const replica = all[random.integer(3)]!;
      if (random.integer(2) === 0) write(random, replica);
      else deliver(random, replica, all);
      if (random.integer(300) === 0) replica.store.restart(replica.store.own.origin.epoch + 1);
    }
    for (const { store } of all) {
      store.own.claim(claimOf("last"));
      store.own.commit();
    }
    for (const from of all) {
      for (const to of all)
        if (to !== from) sync(from.store, to.store, from.store.own.name, 50 + random.integer(5_000));
    }
    for (const { store } of all) {
      const { origin, claims } = store.own;
      for (const other of all) {
        expect(contents(other.store, origin)).toEqual(contents(store, origin));
        if (other.store === store) continue;
        expect(claimsOf(other.store, origin)).toEqual(claims);
        expect(other.beliefOf(origin).claims).toEqual(claims);
        const reported = other.beliefOf(origin).facts;
        expect(new Set(reported).size).toBe(reported.length);
        for (const entry of contents(store, origin).entries) expect(reported).toContain(textOf(entry));
      }
    }
  });
});
