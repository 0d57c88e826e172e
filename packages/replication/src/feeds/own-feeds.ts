import type { CutEntry, FactEntry } from "../facts/fact-entry.ts";
import type { FactFold } from "../facts/fact-fold.ts";
import { type BatchMark, type Life, lifeId } from "../facts/life.ts";
import type { FeedJournal } from "./feed-reader.ts";
import type { KeptEntry } from "./kept-records.ts";
import { isSameMessage } from "./mark-history.ts";

/** Lives of one target that this router may have entries of in its journal. */
export const maxOwnFeeds = 4;

interface OwnFeed {
  readonly life: Life;
  readonly number: number;
  /** Numbers of further declarations, by the life that each says it follows. */
  readonly further: Map<string, number>;
  /** The last message that anything was written of; -1 for none. */
  last: number;
}

/** What this router's journal holds of one target, life by life. Everything that is written goes to the fold as well. */
export class OwnFeeds {
  readonly #target: string;
  readonly #journal: FeedJournal;
  readonly #fold: Pick<FactFold, "declare" | "apply" | "outranking">;
  /** By life, the latest declared last. */
  readonly #feeds = new Map<string, OwnFeed>();
  #epoch: number;
  /** The one that was used last. */
  #recent: OwnFeed | undefined;

  constructor(target: string, journal: FeedJournal, fold: Pick<FactFold, "declare" | "apply" | "outranking">) {
    this.#target = target;
    this.#journal = journal;
    this.#fold = fold;
    this.#epoch = journal.origin.epoch;
  }

  /** Makes a life one that can be written of; makes known that it is the newest, as far as it is not yet. */
  declare(life: Life): void {
    this.#outrank(this.#feedOf(life));
  }

  /** Writes entries of a life in one go. */
  write(life: Life, entries: readonly KeptEntry[]): void {
    if (entries.length === 0) return;
    const feed = this.#feedOf(life);
    const numbered = entries.map((entry) => numberedEntry(entry, feed.number));
    for (const entry of numbered) {
      feed.last = Math.max(feed.last, entry.kind === "gap" ? entry.to : entry.sequence);
      this.#journal.writeFact(entry);
    }
    this.#fold.apply(this.#journal.origin, numbered);
  }

  /** Writes a cut, after which nothing up to it is needed. */
  cut(life: Life, mark: BatchMark, stated: Pick<CutEntry, "isComplete" | "blocks" | "digest">): void {
    const feed = this.#feedOf(life);
    const { sequence, timestampUs, checksum } = mark;
    const { isComplete, blocks, digest } = stated;
    const entry: CutEntry = {
      kind: "cut",
      feed: feed.number,
      sequence,
      timestampUs,
      checksum,
      isComplete,
      blocks,
      digest,
    };
    feed.last = Math.max(feed.last, sequence);
    this.#journal.writeFact(entry);
    this.#fold.apply(this.#journal.origin, [entry]);
    this.#journal.settle(feed.number, sequence);
  }

  opsSinceCut(life: Life): number {
    const feed = this.#known(life);
    return feed ? this.#journal.opsSinceCut(feed.number) : 0;
  }

  /** Another router has made a cut: nothing up to it is needed of this one's. */
  settle(life: Life, sequence: number): void {
    const feed = this.#known(life);
    if (!feed) return;
    if (sequence >= feed.last) this.#retire(lifeId(life));
    else this.#journal.settle(feed.number, sequence);
  }

  /** Only this life matters any more. */
  retireOthers(current: Life): void {
    for (const [id, { life }] of this.#feeds) if (!isSameMessage(life, current)) this.#retire(id);
  }

  #retire(id: string): void {
    const feed = this.#feeds.get(id);
    if (!feed) return;
    for (const number of [feed.number, ...feed.further.values()]) this.#journal.retireFeed(number);
    this.#feeds.delete(id);
    this.#recent = undefined;
  }

  #known(life: Life): OwnFeed | undefined {
    const { epoch } = this.#journal.origin;
    // The own journal was begun anew, and its numbers mean nothing any more.
    if (epoch !== this.#epoch) {
      this.#feeds.clear();
      this.#recent = undefined;
      this.#epoch = epoch;
    }
    if (this.#recent && isSameMessage(this.#recent.life, life)) return this.#recent;
    this.#recent = this.#feeds.get(lifeId(life));
    return this.#recent;
  }

  #feedOf(life: Life): OwnFeed {
    const known = this.#known(life);
    if (known) return known;
    const declaration = { target: this.#target, life };
    const feed: OwnFeed = { life, number: this.#journal.declareFeed(declaration), further: new Map(), last: -1 };
    this.#feeds.set(lifeId(life), feed);
    this.#fold.declare(declaration);
    const [oldest] = this.#feeds.keys();
    if (this.#feeds.size > maxOwnFeeds && oldest !== undefined) this.#retire(oldest);
    this.#outrank(feed);
    return feed;
  }

  /**
   * Declares that the life follows every one that is dated later. The journal has to say so by itself: those that named the
   * lives between may be gone for a router that comes after them.
   */
  #outrank({ life, further }: OwnFeed): void {
    for (const predecessor of this.#fold.outranking(this.#target, life)) {
      if (predecessor === life.predecessor || further.has(predecessor)) continue;
      const declaration = { target: this.#target, life: { ...life, predecessor } };
      further.set(predecessor, this.#journal.declareFeed(declaration));
      this.#fold.declare(declaration);
    }
  }
}

function numberedEntry(entry: KeptEntry, feed: number): FactEntry {
  if (entry.kind === "gap") return { kind: "gap", feed, from: entry.from, to: entry.to };
  const { sequence, timestampUs, checksum, isComplete, ops } = entry;
  return { kind: "record", feed, sequence, timestampUs, checksum, isComplete, ops };
}
