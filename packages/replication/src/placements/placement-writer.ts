import type { Clock } from "@espalier/common";
import type { FeedDeclaration } from "../documents/journal.ts";
import type { OwnJournal } from "../documents/own-journal.ts";
import type { Bindings } from "./bindings.ts";
import type { HybridClock } from "./hybrid-clock.ts";
import { maxRunBlocks, PlacementItemWriter, type PlacementRecord } from "./placement-item.ts";
import type { PlacementMeters } from "./placement-reader.ts";
import { type LogItem, WrittenRuns } from "./written-runs.ts";

/** Pending records are written as an item of their own before they grow beyond this. */
export const flushPlacementBytes = 262_144;

export type PlacementJournal = Pick<
  OwnJournal,
  "placingFeed" | "writePlacements" | "keepPlacements" | "holdsPlacements"
>;

export interface PlacementWriterOptions {
  readonly journal: PlacementJournal;
  readonly bindings: Bindings;
  readonly clock: Clock;
  readonly hlc: HybridClock;
  readonly meters: PlacementMeters;
}

/** What to write of one chain. */
export interface ChainWords {
  readonly words: Uint32Array;
  readonly blockCount: number;
}

/** The placement log of one epoch of this router. */
export class PlacementWriter {
  readonly #options: PlacementWriterOptions;
  readonly #runs: WrittenRuns;
  readonly #placed = new PlacementItemWriter();
  readonly #bound = new PlacementItemWriter();
  #item: LogItem = { number: undefined };
  #expiresMs = 0;
  #nextRun = 1;

  constructor(options: PlacementWriterOptions) {
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
