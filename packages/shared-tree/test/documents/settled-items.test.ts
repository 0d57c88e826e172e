import { createSeededRandom, type Random } from "@espalier/core";
import { fixedSeeds } from "@espalier/testing";
import { expect, test } from "vitest";
import type { FactEntry } from "../../src/facts/fact-item.ts";
import { journalContent } from "./journal-content.ts";
import {
  checkpoint,
  claimOf,
  declarationOf,
  entriesOf,
  factItemsOf,
  feedOf,
  originOf,
  record,
  storeOf,
  textOf,
} from "./journal-fixtures.ts";

/** The rule, said plainly: which items of the log are needed, given everything that was written and settled. */
class NaiveLog {
  readonly items: FactEntry[][] = [];
  pending: FactEntry[] = [];
  readonly #settled = new Map<number, number>();
  readonly #retired = new Set<number>();
  #written: FactEntry[] = [];

  write(entry: FactEntry): void {
    this.pending.push(entry);
    this.#written.push(entry);
  }

  settle(feed: number, sequence: number): void {
    this.#settled.set(feed, Math.max(sequence, this.#settled.get(feed) ?? -1));
  }

  retire(feed: number): void {
    this.#retired.add(feed);
  }

  /** What is left of the items before; the pending item is added whatever is in it. */
  commit(): void {
    const kept = this.items.filter((item) => item.some((entry) => this.#isNeeded(entry)));
    this.items.splice(0, this.items.length, ...kept);
    if (this.pending.length > 0) this.items.push(this.pending);
    this.pending = [];
  }

  #isNeeded(entry: FactEntry): boolean {
    if (this.#retired.has(entry.feed)) return false;
    if (entry.kind === "checkpoint") {
      return this.#written.findLast(({ kind, feed }) => kind === "checkpoint" && feed === entry.feed) === entry;
    }
    return (entry.kind === "gap" ? entry.to : entry.sequence) > (this.#settled.get(entry.feed) ?? -1);
  }
}

function randomEntry(random: Random, feed: number, sequence: number): FactEntry {
  // Records may come late: those that fill a gap have lower sequences than what was written before.
  const at = Math.max(0, sequence - random.integer(12));
  switch (random.integer(6)) {
    case 0:
      return checkpoint(feed, at);
    case 1:
      return { kind: "gap", feed, from: at, to: at + random.integer(5) };
    default:
      return record(feed, at);
  }
}

test.each(fixedSeeds(20))("a log keeps what is needed and nothing else, seed %i", (seed) => {
  const random = createSeededRandom(seed);
  const { store, updates } = storeOf("alice");
  const reader = storeOf("bob").store;
  const { own } = store;
  const naive = new NaiveLog();
  const feeds = Array.from({ length: 4 }, (_, at) => own.declareFeed(feedOf(`t${at}`)));
  let renewals = 0;
  for (let step = 1; step <= 300; step++) {
    const at = random.integer(feeds.length);
    const feed = feeds[at]!;
    const choice = random.integer(10);
    if (choice < 6) {
      const entry = randomEntry(random, feed, step);
      own.writeFact(entry);
      naive.write(entry);
    } else if (choice < 8) {
      const sequence = step - random.integer(20);
      own.settle(feed, sequence);
      naive.settle(feed, sequence);
    } else if (random.integer(8) === 0) {
      own.retireFeed(feed);
      naive.retire(feed);
      feeds[at] = own.declareFeed(feedOf(`t${at}`, ++renewals));
    }
    if (random.integer(3) > 0) continue;
    // A claim makes every commit write something, so that deletions need not wait.
    own.claim(claimOf("t", step));
    own.commit();
    naive.commit();
    reader.apply(updates.at(-1)!);
    expect(factItemsOf(reader, originOf("alice"))).toEqual(naive.items);
    expect(store.stats().ownFactItems).toBe(naive.items.length);
  }
  for (const feed of feeds) own.retireFeed(feed);
  // What was pending is written by the first of them, and deleted with the second.
  for (const stamp of [998, 999]) {
    own.claim(claimOf("t", stamp));
    own.commit();
    reader.apply(updates.at(-1)!);
  }
  expect(entriesOf(reader, originOf("alice")).map(textOf)).toEqual([]);
  for (let feed = 1; feed <= 4 + renewals; feed++) {
    expect(declarationOf(reader, originOf("alice"), feed)).toBeUndefined();
  }
  expect(journalContent(reader, own.name)).toEqual(journalContent(store, own.name));
});
