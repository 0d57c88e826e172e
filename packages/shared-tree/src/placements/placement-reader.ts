import { counterBy, counterOf, gaugeOf, type Meter, type RouterId } from "@espalier/core";
import { type Origin, originKey } from "@espalier/mesh";
import { type EngineEpoch, epochId } from "../facts/engine-epoch.ts";
import type { DeclarationOf, FeedDeclaration } from "../facts/feed-declaration.ts";
import { type LogRecord, maxRunBlocks, type PlacementRecord, readPlacementItem } from "./placement-item.ts";
import type { PlacementLogOptions } from "./placement-log.ts";
import { ReadRuns } from "./read-runs.ts";

/** Bytes of the runs of all journals. */
export const maxRunBytes = 268_435_456;
/** Journals whose runs are kept. */
export const maxPlacementJournals = 1_024;

export interface PlacementReaderOptions
  extends Pick<PlacementLogOptions, "bindings" | "index" | "slots" | "clock" | "hlc" | "epochOf"> {
  readonly meters: PlacementMeters;
  readonly maxRunBytes: number;
  readonly numbers: RouterNumbers;
}

interface ReadJournal {
  /** The router's number in the index. */
  readonly by: number;
  readonly runs: ReadRuns;
}

/** Follows the placement logs of other routers. */
export class PlacementReader {
  readonly #options: PlacementReaderOptions;
  readonly #journals = new Map<string, ReadJournal>();
  readonly #chain = new Uint32Array(maxRunBlocks * 2);
  #runBytes = 0;

  constructor(options: PlacementReaderOptions) {
    this.#options = options;
  }

  receive(origin: Origin, item: Uint8Array, declarationOf: DeclarationOf): void {
    const records = this.#read(item);
    if (!records) return;
    const journal = this.#journalOf(origin);
    for (const record of records) {
      if ("run" in record) this.#options.meters.received(this.#take(journal, record, declarationOf(record.feed)));
      else if (!this.#options.bindings.receive(record, origin.router)) this.#options.meters.received("ahead");
    }
    this.#trim();
  }

  drop(origin: Origin): void {
    const key = originKey(origin);
    this.#runBytes -= this.#journals.get(key)?.runs.byteLength ?? 0;
    this.#journals.delete(key);
    this.#options.meters.runBytes(this.#runBytes);
  }

  #read(item: Uint8Array): LogRecord[] | undefined {
    try {
      return readPlacementItem(item);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      this.#options.meters.invalidItem();
      return undefined;
    }
  }

  #take(journal: ReadJournal, record: PlacementRecord, declaration: FeedDeclaration | undefined): PlacementOutcome {
    const { clock, slots, epochOf, hlc } = this.#options;
    hlc.observe(record.stamp);
    const words = this.#chain;
    const bytesBefore = journal.runs.byteLength;
    const blockCount = journal.runs.resolve(record.run, words, clock.nowMs());
    this.#runBytes += journal.runs.byteLength - bytesBefore;
    if (blockCount === 0 || !declaration) return "unresolved";
    const newest = epochOf(declaration.target);
    if (declaration.epoch && newest && isOlderEpoch(declaration.epoch, newest)) return "older-epoch";
    const slot = slots.find(declaration.target);
    if (slot < 0) return "no-slot";
    this.#apply(record, slot, blockCount, journal.by);
    return "applied";
  }

  #apply({ kind, ttlMs }: PlacementRecord, slot: number, blockCount: number, by: number): void {
    const { index, clock } = this.#options;
    const nowMs = clock.nowMs();
    const words = this.#chain;
    if (kind === "place") index.place(slot, words, blockCount, { nowMs, ttlMs, by });
    else if (kind === "confirm") index.confirm(slot, words, blockCount, { nowMs, ttlMs, by });
    else index.refute(slot, words, { from: blockCount - 1, blockCount, nowMs });
  }

  #journalOf(origin: Origin): ReadJournal {
    const key = originKey(origin);
    let journal = this.#journals.get(key);
    if (!journal) {
      if (this.#journals.size >= maxPlacementJournals) this.#forgetOldestJournal();
      const by = this.#options.numbers.numberOf(origin.router);
      journal = { by, runs: new ReadRuns() };
      this.#journals.set(key, journal);
    }
    return journal;
  }

  #forgetOldestJournal(): void {
    for (const [key, { runs }] of this.#journals) {
      this.#runBytes -= runs.byteLength;
      this.#journals.delete(key);
      return;
    }
  }

  /** Over the bound, the journal with the most runs forgets its oldest ones. */
  #trim(): void {
    while (this.#runBytes > this.#options.maxRunBytes) {
      let largest: ReadRuns | undefined;
      for (const { runs } of this.#journals.values()) {
        if (!largest || runs.byteLength > largest.byteLength) largest = runs;
      }
      const bytesBefore = largest?.byteLength ?? 0;
      if (!largest?.forgetOldest()) return;
      this.#runBytes += largest.byteLength - bytesBefore;
    }
    this.#options.meters.runBytes(this.#runBytes);
  }
}

/** Whether a declared epoch ended before the newest one that is known here began. */
function isOlderEpoch(declared: EngineEpoch, newest: EngineEpoch): boolean {
  const declaredId = epochId(declared);
  const newestId = epochId(newest);
  if (declaredId === newestId || declared.predecessor === newestId) return false;
  if (newest.predecessor === declaredId) return true;
  if (declared.timestampUs !== newest.timestampUs) return declared.timestampUs < newest.timestampUs;
  if (declared.sequence !== newest.sequence) return declared.sequence < newest.sequence;
  return declared.checksum < newest.checksum;
}

/** Routers that have numbers of their own; further ones share one number. */
export const maxNumberedRouters = 4_096;

/** Small numbers for other routers, which the index keeps with what they placed. 0 is this router. */
export type RouterNumbers = ReturnType<typeof createRouterNumbers>;

/** @param capacity routers that get a number of their own */
export function createRouterNumbers(capacity: number = maxNumberedRouters) {
  const numbers = new Map<RouterId, number>();
  const routers: RouterId[] = [];
  return {
    /** The same for the same router, whatever its epoch. */
    numberOf(router: RouterId): number {
      const known = numbers.get(router);
      if (known !== undefined) return known;
      // The number after the last denotes all others.
      if (routers.length >= capacity) return capacity + 1;
      numbers.set(router, routers.push(router));
      return routers.length;
    },
    routerOf: (number: number): RouterId | undefined => routers[number - 1],
  };
}

/**
 * The outcome of a placement. `older-epoch`: of an epoch of the engine that has ended; `unresolved`: refers to an
 * unknown run or feed; `ahead`: a binding with a stamp by a clock that runs ahead.
 */
export type PlacementOutcome = "applied" | "older-epoch" | "unresolved" | "no-slot" | "ahead";

/** The metrics of the placement log. */
export type PlacementMeters = ReturnType<typeof createPlacementMeters>;

export function createPlacementMeters(meter: Meter) {
  const records = counterOf(
    meter,
    "espalier_placements_written_total",
    "Placements and bindings written to the journal.",
  );
  const bytes = counterOf(
    meter,
    "espalier_placements_written_bytes_total",
    "Bytes of the placement log of this router.",
  );
  return {
    received: counterBy<PlacementOutcome>(
      meter,
      "outcome",
      "espalier_placements_received_total",
      "Placements of other routers, by outcome.",
    ),
    invalidItem: counterOf(
      meter,
      "espalier_placements_invalid_items_total",
      "Malformed items in other routers' placement logs.",
    ),
    written(sizeBytes: number, count: number): void {
      records(count);
      bytes(sizeBytes);
    },
    runBytes: gaugeOf(
      meter,
      "espalier_placements_chain_bytes",
      "Bytes of block chains kept for references in later placements.",
    ),
  };
}
