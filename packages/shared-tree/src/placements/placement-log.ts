import type { Clock, Meter, RouterId } from "@espalier/core";
import type { HybridClock, Origin } from "@espalier/mesh";
import type { PrefixIndex } from "@espalier/prefix-index";
import type { OwnJournal } from "../documents/own-journal.ts";
import type { EngineEpoch } from "../facts/engine-epoch.ts";
import type { DeclarationOf, FeedDeclaration } from "../facts/feed-declaration.ts";
import type { TargetSlots } from "../facts/target-slots.ts";
import type { Bindings } from "./bindings.ts";
import { maxPlacementTtlMs, maxRunBlocks, PlacementItemWriter, type PlacementRecord } from "./placement-item.ts";
import {
  createPlacementMeters,
  createRouterNumbers,
  maxRunBytes,
  type PlacementMeters,
  PlacementReader,
} from "./placement-reader.ts";
import { type LogItem, WrittenRuns } from "./written-runs.ts";

export interface PlacementLogOptions {
  /** This epoch of this router. */
  readonly self: () => Origin;
  /** The present own journal. */
  readonly journal: PlacementJournal;
  readonly bindings: Bindings;
  readonly index: PrefixIndex;
  readonly slots: TargetSlots;
  readonly clock: Clock;
  readonly hlc: HybridClock;
  readonly meter: Meter;
  /** The newest known epoch of a target. */
  readonly epochOf: (target: string) => EngineEpoch | undefined;
  /** Called when something waits for `flush` that others should soon know. */
  readonly touch: () => void;
  /** Bytes of other routers' chains to which their later placements may refer. Default: `maxRunBytes`. */
  readonly maxRunBytes?: number;
}

export interface PlacementUse {
  /** At most an hour. */
  readonly ttlMs: number;
  /** The engine itself has said that it holds the chain. */
  readonly isConfirmed: boolean;
}

/** A refutation matters only to routers that know of the placement, and they hear of it soon. */
const refutationTtlMs = 60_000;

/**
 * Predicted contents of targets, by this router and all others, in one index. Chains are chain hashes of two words
 * each, low word first.
 */
export class PlacementLog {
  readonly #options: PlacementLogOptions;
  readonly #reader: PlacementReader;
  readonly #numbers = createRouterNumbers();
  readonly #meters: PlacementMeters;
  #writer: LogWriter;
  #epoch: number;

  constructor(options: PlacementLogOptions) {
    this.#options = options;
    this.#meters = createPlacementMeters(options.meter);
    this.#reader = new PlacementReader({
      ...options,
      meters: this.#meters,
      numbers: this.#numbers,
      maxRunBytes: options.maxRunBytes ?? maxRunBytes,
    });
    this.#epoch = options.self().epoch;
    this.#writer = this.#begin();
  }

  /**
   * Notes that a chain is sent to a target. This router's index has it at once, others' after the next flush and
   * commit.
   *
   * @throws RangeError when `words` is shorter than `blockCount` says
   */
  place(target: string, words: Uint32Array, blockCount: number, use: PlacementUse): void {
    const { slots, index, clock } = this.#options;
    const ttlMs = Math.min(Math.ceil(use.ttlMs), maxPlacementTtlMs);
    if (blockCount * 2 > words.length) throw new RangeError(`${words.length} words are no ${blockCount} blocks`);
    if (blockCount <= 0 || ttlMs <= 0) return;
    const slot = slots.find(target);
    const time = { nowMs: clock.nowMs(), ttlMs };
    if (slot >= 0 && use.isConfirmed) index.confirm(slot, words, blockCount, time);
    else if (slot >= 0) index.place(slot, words, blockCount, time);
    this.#write(use.isConfirmed ? "confirm" : "place", target, { words, blockCount }, ttlMs);
  }

  /**
   * Notes that a target turned out not to hold the block at depth `from` of a chain, nor what continues it.
   *
   * @throws RangeError when `words` is shorter than `blockCount` says
   */
  refute(target: string, words: Uint32Array, blocks: { readonly from: number; readonly blockCount: number }): void {
    const { slots, index, clock } = this.#options;
    const { from, blockCount } = blocks;
    if (blockCount * 2 > words.length) throw new RangeError(`${words.length} words are no ${blockCount} blocks`);
    if (from < 0 || from >= blockCount) return;
    const slot = slots.find(target);
    if (slot >= 0) index.refute(slot, words, { from, blockCount, nowMs: clock.nowMs() });
    // A chain too long for one record is cut where no other router has it.
    if (from < maxRunBlocks) this.#write("refute", target, { words, blockCount: from + 1 }, refutationTtlMs);
  }

  /** Writes pending records to the journal; a commit makes them visible to others. */
  flush(): void {
    this.#noticeNewEpoch();
    this.#writer.flush();
  }

  /** Takes an item of another router's placement log. An unreadable one is counted and skipped. */
  receive(origin: Origin, item: Uint8Array, declarationOf: DeclarationOf): void {
    this.#reader.receive(origin, item, declarationOf);
  }

  journalDropped(origin: Origin): void {
    this.#reader.drop(origin);
  }

  /** The router of a number in the index; undefined if it is not known any more. */
  routerOf(number: number): RouterId | undefined {
    return number === 0 ? this.#options.self().router : this.#numbers.routerOf(number);
  }

  #write(
    kind: "place" | "confirm" | "refute",
    target: string,
    chain: { readonly words: Uint32Array; readonly blockCount: number },
    ttlMs: number,
  ): void {
    this.#noticeNewEpoch();
    this.#writer.add(kind, { target, epoch: this.#options.epochOf(target) ?? null }, chain, ttlMs);
    // What an engine confirms was placed before. The confirmation only prolongs it, and may go with the next commit.
    if (kind !== "confirm") this.#options.touch();
  }

  /** A later epoch of this router has a journal of its own, with other numbers in it. */
  #noticeNewEpoch(): void {
    const { epoch } = this.#options.self();
    if (epoch === this.#epoch) return;
    this.#epoch = epoch;
    this.#writer = this.#begin();
  }

  #begin(): LogWriter {
    return new LogWriter({ ...this.#options, meters: this.#meters });
  }
}

/** Pending records are written as an item of their own before they grow beyond this. */
export const flushPlacementBytes = 262_144;

export type PlacementJournal = Pick<
  OwnJournal,
  "placingFeed" | "writePlacements" | "keepPlacements" | "holdsPlacements"
>;

interface LogWriterOptions extends Pick<PlacementLogOptions, "journal" | "bindings" | "clock" | "hlc"> {
  readonly meters: PlacementMeters;
}

/** What to write of one chain. */
interface ChainWords {
  readonly words: Uint32Array;
  readonly blockCount: number;
}

/** The placement log of one epoch of this router. */
class LogWriter {
  readonly #options: LogWriterOptions;
  readonly #runs: WrittenRuns;
  readonly #placed = new PlacementItemWriter();
  readonly #bound = new PlacementItemWriter();
  #item: LogItem = { number: undefined };
  #expiresMs = 0;
  #nextRun = 1;

  constructor(options: LogWriterOptions) {
    this.#options = options;
    this.#runs = new WrittenRuns(options.journal);
  }

  /** Queues a record; it is written with `flush`. */
  add(kind: PlacementRecord["kind"], declaration: FeedDeclaration, chain: ChainWords, ttlMs: number): void {
    const { journal, clock, hlc } = this.#options;
    const { words } = chain;
    const blockCount = Math.min(chain.blockCount, maxRunBlocks);
    if (this.#placed.byteLength + blockCount * 8 > flushPlacementBytes) this.#flushPlaced();
    const nowMs = clock.nowMs();
    const stamp = hlc.now();
    const found = this.#runs.find(words, blockCount, nowMs);
    const shared = found?.shared ?? 0;
    const feed = journal.placingFeed(declaration);
    const record = { kind, feed, stamp, ttlMs };
    const run = { parent: found?.run, shared, words, blockCount };
    const number = this.#placed.addRun(record, run, this.#nextRun);
    // No later record may refer to a refuted run, but a reader must know it until it has read this item.
    const untilMs = nowMs + ttlMs;
    this.#expiresMs = Math.max(this.#expiresMs, untilMs);
    if (number !== undefined) {
      this.#nextRun = number + 1;
      this.#runs.add(words, blockCount, { number, item: this.#item, nowMs, parent: found?.run, shared });
    }
    this.#runs.keep(number ?? found!.run, untilMs);
  }

  /** Writes pending records to the journal, where the next commit makes them visible. */
  flush(): void {
    this.#flushPlaced();
    this.#flushBindings();
  }

  #flushPlaced(): void {
    const records = this.#placed.records;
    if (records === 0) return;
    const bytes = this.#placed.take();
    this.#item.number = this.#options.journal.writePlacements(bytes, this.#expiresMs);
    this.#item = { number: undefined };
    this.#expiresMs = 0;
    this.#options.meters.written(bytes.length, records);
  }

  /** Bindings live longer than placements, so the two do not share items. */
  #flushBindings(): void {
    const nowMs = this.#options.clock.nowMs();
    let untilMs = 0;
    const write = (): void => {
      const records = this.#bound.records;
      if (records === 0) return;
      const bytes = this.#bound.take();
      this.#options.journal.writePlacements(bytes, untilMs);
      this.#options.meters.written(bytes.length, records);
      untilMs = 0;
    };
    for (const record of this.#options.bindings.takePending()) {
      this.#bound.addBinding(record);
      untilMs = Math.max(untilMs, nowMs + record.ttlMs);
      if (this.#bound.byteLength > flushPlacementBytes) write();
    }
    write();
  }
}
