import { type Cancel, type Clock, counterBy, gaugeOf, type Meter } from "@espalier/core";
import {
  callAll,
  isLater,
  LeasedPlane,
  type Origin,
  type Outcome,
  originKey,
  PeerRows,
  PeerTable,
  type PlaneOptions,
  type RelayFrame,
  subscribe,
} from "@espalier/mesh";
import {
  maxNoteBytes,
  maxNoteKeyBytes,
  type NoteFrame,
  readNoteFrame,
  splitNotes,
  type WrittenNote,
  writeNoteFrame,
} from "./note-frame.ts";

/** A message of a router, in a form that only its writers and readers know. */
export interface Note {
  readonly origin: Origin;
  /** The subject. A later note of the same router with the same key replaces it. */
  readonly key: string;
  readonly bytes: Uint8Array;
  /** Milliseconds since it was written, without the time on the way. */
  readonly ageMs: number;
}

/** Where routers leave notes for each other. */
export type NoteChannel = Pick<NotePlane, "post" | "onNote">;

/** Bounds and times of notes; see also `HeldNoteLimits`. Times in milliseconds on the monotonic clock. */
export type NoteLimits = Readonly<typeof defaultNoteLimits>;

export const defaultNoteLimits = {
  maxNotes: 256,
  maxKinds: 16,
  /** Kinds that are kept beyond that bound: other routers' spending is money. */
  keptKinds: ["overflow"] as readonly string[],
  maxOrigins: 256,
  maxHeldBytes: 16 * 1_024 * 1_024,
  /** Period in which own notes are sent again, for routers that missed them. */
  refreshMs: 30_000,
  /** A note is forgotten so long after it was written. */
  forgetMs: 1_800_000,
};

export interface NotePlaneOptions extends PlaneOptions {
  readonly limits?: Partial<NoteLimits>;
}

interface OwnNote {
  readonly bytes: Uint8Array;
  /** It is true until it is replaced, however long ago it was posted. */
  readonly isLasting: boolean;
  writtenMs: number;
  counter: number;
}

/** What a note is about: its key up to the first slash. `times/a` and `times/b` are two notes of one kind. */
const kindOf = (key: string): string => key.split("/", 1)[0]!;

const encoder = new TextEncoder();

/**
 * Notes among routers: few, slowly changing, and only the latest of each counts. They outlive their writers, because
 * what a router learned stays true for a while.
 *
 * Each kind has bounds of its own, so that one with many notes takes no place from another: a kind with one key is never
 * refused.
 *
 * Sends own notes again from `start` on. Before that it takes and posts notes all the same.
 */
export class NotePlane {
  readonly exchange: LeasedPlane<NoteFrame>;
  readonly #options: NotePlaneOptions;
  readonly #limits: NoteLimits;
  readonly #meters: ReturnType<typeof createNoteMeters>;
  readonly #own = new Map<string, OwnNote>();
  /** Keys of own notes that were not sent yet. */
  #posted: string[] = [];
  /** By kind. */
  readonly #held = new Map<string, HeldNotes>();
  /** Own notes that found no place, by kind. */
  readonly #refused = new Map<string, number>();
  readonly #listeners = new Set<(note: Note) => void>();

  constructor(options: NotePlaneOptions) {
    const limits = { ...defaultNoteLimits, ...options.limits };
    const meters = createNoteMeters(options.meter);
    this.#options = options;
    this.#limits = limits;
    this.#meters = meters;
    this.exchange = new LeasedPlane<NoteFrame>(options, {
      name: "shared_estimate",
      frames: "frames of shared estimates",
      read: readNoteFrame,
      take: (frame) => this.#take(frame),
      refusedAs: "stale",
      changes: () => this.#framesOf(this.#posted.splice(0)),
      gatherMs: () => 0,
      full: () => this.#framesOf([...this.#own.keys()]),
      relay: () => this.#relayFrames(),
      upkeep: [[limits.refreshMs, () => this.#refresh()]],
    });
  }

  /**
   * Posts a note to all other routers, and sends it again from time to time, until it is too old to be of use.
   *
   * @param isLasting whether it never gets too old: it is true until it is replaced
   * @returns false, and counts it, when there are as many other notes of its kind as there may be
   * @throws RangeError for a note or a key that is too long
   */
  post(key: string, bytes: Uint8Array, { isLasting = false }: { readonly isLasting?: boolean } = {}): boolean {
    if (encoder.encode(key).length > maxNoteKeyBytes) throw new RangeError(`the key of a note is too long: ${key}`);
    if (bytes.length > maxNoteBytes) throw new RangeError(`a note of ${bytes.length} bytes is too long`);
    const kind = kindOf(key);
    const isOfKind = (other: string): boolean => kindOf(other) === kind;
    if (!this.#own.has(key) && [...this.#own.keys()].filter(isOfKind).length >= this.#limits.maxNotes) {
      this.#refused.set(kind, (this.#refused.get(kind) ?? 0) + 1);
      this.#meters.refused(kind);
      return false;
    }
    const counter = this.exchange.nextCounter();
    this.#own.set(key, { bytes, isLasting, writtenMs: this.#options.clock.nowMs(), counter });
    this.#posted.push(key);
    this.exchange.changed();
    return true;
  }

  /** Calls the listener with every note that is new here, first with those that are here already. */
  onNote(listener: (note: Note) => void): Cancel {
    for (const note of this.#allHeld()) listener(this.#aged(note));
    return subscribe(this.#listeners, listener);
  }

  /** How many posts were refused, by kind; only kinds with any. */
  refused(): readonly { readonly kind: string; readonly count: number }[] {
    return [...this.#refused].map(([kind, count]) => ({ kind, count }));
  }

  start(): void {
    this.exchange.start();
  }

  stop(): void {
    this.exchange.stop();
  }

  /** A repeated note gets a new counter, or routers that hear this one only by a relay would not get it. */
  #refresh(): void {
    const nowMs = this.#options.clock.nowMs();
    const writtenBeforeMs = nowMs - this.#limits.forgetMs;
    for (const [key, note] of this.#own) {
      if (note.isLasting) note.writtenMs = nowMs;
      if (note.writtenMs < writtenBeforeMs) this.#own.delete(key);
      else note.counter = this.exchange.nextCounter();
    }
    this.exchange.tell(this.#framesOf([...this.#own.keys()]));
    for (const [kind, held] of this.#held) {
      held.forget(writtenBeforeMs);
      if (held.count === 0) this.#held.delete(kind);
    }
    this.#countHeld();
  }

  #countHeld(): void {
    this.#meters.held([...this.#held.values()].reduce((sum, { count }) => sum + count, 0));
  }

  *#allHeld(): Generator<HeldNote, void, undefined> {
    for (const held of this.#held.values()) yield* held.all();
  }

  #framesOf(keys: readonly string[]): readonly Uint8Array[] {
    const notes = keys.map((key) => ({ key, ...this.#own.get(key)! })).map((note) => this.#aged(note));
    return this.#written({ origin: this.#options.self(), notes });
  }

  #relayFrames(): readonly RelayFrame[] {
    const byOrigin = Map.groupBy(this.#allHeld(), ({ origin }) => originKey(origin));
    const frames: RelayFrame[] = [];
    for (const held of byOrigin.values()) {
      const { origin } = held[0]!;
      const notes = held.map((note) => this.#aged(note));
      for (const frame of this.#written({ origin, notes })) frames.push({ origin, frame });
    }
    return frames;
  }

  #written({ origin, notes }: NoteFrame): readonly Uint8Array[] {
    return splitNotes(notes).map((some) => writeNoteFrame({ origin, notes: some }));
  }

  #aged<Written extends { readonly writtenMs: number }>(note: Written): Written & { readonly ageMs: number } {
    return { ...note, ageMs: Math.max(0, this.#options.clock.nowMs() - note.writtenMs) };
  }

  #take({ origin, notes }: NoteFrame): Outcome {
    let outcome: Outcome = "stale";
    const news: Note[] = [];
    for (const written of notes) {
      const note = { ...written, origin, writtenMs: this.#options.clock.nowMs() - written.ageMs };
      const as = this.#keep(note);
      if (as === "news") news.push(note);
      if (outcome === "stale" || as === "news") outcome = as;
    }
    this.#countHeld();
    callAll(news.flatMap((note) => [...this.#listeners].map((listener) => () => listener(note))));
    return outcome;
  }

  #keep(note: HeldNote): Outcome {
    if (note.ageMs > this.#limits.forgetMs) return "stale";
    return this.#heldOf(kindOf(note.key))?.add(note) ?? "refused";
  }

  /** @returns undefined beyond the bound on kinds */
  #heldOf(kind: string): HeldNotes | undefined {
    let held = this.#held.get(kind);
    const { maxKinds, keptKinds } = this.#limits;
    if (!held && (this.#held.size < maxKinds || keptKinds.includes(kind))) {
      held = new HeldNotes(this.#limits, this.#options.clock);
      this.#held.set(kind, held);
    }
    return held;
  }
}

function createNoteMeters(meter: Meter) {
  return {
    refused: counterBy(
      meter,
      "kind",
      "espalier_shared_estimates_dropped_total",
      "Shared estimates of this router dropped at the limit of their kind.",
    ),
    held: gaugeOf(meter, "espalier_shared_estimates", "Shared estimates of other routers in memory."),
  };
}

/** Bounds of what is kept of one kind. */
interface HeldNoteLimits {
  /** Notes of one router. */
  readonly maxNotes: number;
  /** Other routers whose notes are kept. */
  readonly maxOrigins: number;
  /** Bytes of all these notes, with their keys. */
  readonly maxHeldBytes: number;
}

/** A note of another router. */
interface HeldNote extends WrittenNote {
  readonly origin: Origin;
  /** When it was written, on the monotonic clock. */
  readonly writtenMs: number;
}

/**
 * The notes of other routers of one kind: per router and key the note with the latest version, and of each router the
 * latest ones. So the result does not depend on the order in which notes arrive, nor on how often. As a router repeats
 * its notes with new counters, the earliest is one that it has ended.
 */
class HeldNotes {
  readonly #limits: HeldNoteLimits;
  readonly #routers: PeerTable<PeerRows<string, HeldNote>>;
  #bytes = 0;
  count = 0;

  constructor(limits: HeldNoteLimits, clock: Clock) {
    this.#limits = limits;
    this.#routers = new PeerTable({
      // Notes outlive their writers; the router that wrote longest ago gives its place to another one.
      ...{ clock, maxPeers: limits.maxOrigins, leaseMs: Number.NEGATIVE_INFINITY, laterEpochReplaces: "key" },
      begin: (origin) =>
        new PeerRows(origin, (note) => {
          this.#bytes -= sizeOf(note);
          this.count -= 1;
        }),
    });
  }

  /** @returns whether it is new; `refused` when there is no capacity */
  add(note: HeldNote): Outcome {
    const router = this.#routers.of(note.origin);
    if (!router) return "refused";
    const { rows } = router;
    const known = rows.get(note.key);
    if (known && !isLater(note, known)) return "stale";
    const replaced = known ?? (rows.size < this.#limits.maxNotes ? undefined : earliestOf(rows.values()));
    if (replaced && !isLater(note, replaced)) return "refused";
    const more = sizeOf(note) - (replaced ? sizeOf(replaced) : 0);
    while (this.#bytes + more > this.#limits.maxHeldBytes) if (!this.#routers.evict(router)) return "refused";
    if (replaced) router.remove(replaced);
    router.heardMs = Math.max(router.heardMs, note.writtenMs);
    rows.set(note.key, note);
    this.#bytes += sizeOf(note);
    this.count += 1;
    return "news";
  }

  forget(writtenBeforeMs: number): void {
    for (const router of this.#routers) {
      for (const note of router.rows.values()) if (note.writtenMs < writtenBeforeMs) router.remove(note);
    }
  }

  /** In the order in which the routers came. */
  *all(): Generator<HeldNote, void, undefined> {
    for (const { rows } of this.#routers) yield* rows.values();
  }
}

function earliestOf(notes: Iterable<HeldNote>): HeldNote {
  return [...notes].reduce((earliest, note) => (isLater(earliest, note) ? note : earliest));
}

/** Approximate bytes in memory: a UTF-16 unit of a key is two bytes. */
const sizeOf = ({ key, bytes }: HeldNote): number => bytes.length + 2 * key.length;
