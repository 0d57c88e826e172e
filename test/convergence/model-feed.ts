import type { Cancel, Random, Scheduler } from "@espalier/core";
import { type LedgerSink, tier } from "@espalier/prefix-index";
import type { FeedQuality, FeedReader } from "@espalier/shared-tree";
import { type ModelEngine, wordsOf } from "./model-engine.ts";

export interface ModelFeedOptions {
  readonly engine: ModelEngine;
  readonly scheduler: Scheduler;
  readonly random: Random;
  /** The longest time that a message is on its way to the reader. */
  readonly maxDelayMs: number;
  /** Whether the engine tells a reader that comes late everything that it has said in this epoch. */
  readonly canReplay: boolean;
  readonly open: (tellAll: (sink: LedgerSink) => void) => FeedReader;
  readonly onQuality: (quality: FeedQuality) => void;
}

/** A router's subscription to an engine, with a ledger of what it was told. */
export class ModelFeed {
  readonly reader: FeedReader;
  readonly #options: ModelFeedOptions;
  readonly #ledger = new Set<number>();
  readonly #unlisten: Cancel;
  #epoch: number;
  /** Messages of this epoch that were read or lost. */
  #next: number;
  /** The first message that was lost since the last one that was read. */
  #lostFrom: number | undefined;
  #isComplete: boolean;
  #cancelRead: Cancel | undefined;
  isStopped = false;

  constructor(options: ModelFeedOptions) {
    const { engine, canReplay } = options;
    this.#options = options;
    this.#epoch = engine.epochs;
    this.#next = canReplay ? 0 : engine.messages.length;
    this.#isComplete = this.#next === 0;
    this.reader = options.open((sink) => this.#tellAll(sink));
    this.#unlisten = engine.onMessage(() => this.#readSoon());
    this.#tellQuality();
    this.#readSoon();
  }

  /** Reads everything that there is at once. */
  readAll(): void {
    if (this.isStopped) return;
    const { engine } = this.#options;
    if (engine.epochs !== this.#epoch) this.#begin();
    while (this.#next < engine.messages.length) this.#read();
  }

  /** The next messages never reach this reader, though they may reach others. */
  lose(count: number): void {
    const { engine } = this.#options;
    const left = engine.messages.length - this.#next;
    if (engine.epochs !== this.#epoch || this.#next === 0 || left === 0) return;
    this.#lostFrom ??= this.#next;
    this.#next += Math.min(count, left);
  }

  stop(): void {
    this.isStopped = true;
    this.#unlisten();
    this.#cancelRead?.();
    this.reader.stop();
  }

  #readSoon(): void {
    const { scheduler, random, maxDelayMs } = this.#options;
    this.#cancelRead ??= scheduler.after(random.float() * maxDelayMs, () => {
      this.#cancelRead = undefined;
      this.readAll();
    });
  }

  /** The engine is another process. */
  #begin(): void {
    this.#epoch = this.#options.engine.epochs;
    this.#next = 0;
    this.#lostFrom = undefined;
    this.#isComplete = true;
    this.#ledger.clear();
    this.reader.newEpoch();
    this.#tellQuality();
  }

  #read(): void {
    const { stored, removed, ...mark } = this.#options.engine.messages[this.#next]!;
    this.#next++;
    if (this.#lostFrom !== undefined) {
      this.reader.gap(this.#lostFrom, mark.sequence - 1);
      this.#lostFrom = undefined;
      this.#isComplete = false;
      this.#tellQuality();
    }
    const news = stored.filter((block) => !this.#ledger.has(block));
    const gone = removed.filter((block) => this.#ledger.has(block));
    for (const block of news) this.#ledger.add(block);
    for (const block of gone) this.#ledger.delete(block);
    const { sink } = this.reader;
    if (news.length > 0) sink.stored(tier.gpu, wordsOf(news), 0, news.length);
    if (gone.length > 0) sink.removed(tier.gpu, wordsOf(gone), 0, gone.length);
    if (gone.length < removed.length) this.reader.unknownRemovals(removed.length - gone.length);
    this.reader.batch(mark, this.#isComplete);
  }

  #tellAll(sink: LedgerSink): void {
    const blocks = [...this.#ledger];
    if (blocks.length > 0) sink.stored(tier.gpu, wordsOf(blocks), 0, blocks.length);
  }

  #tellQuality(): void {
    this.#options.onQuality(this.#isComplete ? "complete" : "partial");
    if (this.#isComplete) this.reader.setQuality("complete", "live", "complete", null);
    else this.reader.setQuality("partial", "partial", "incomplete", null);
  }
}
