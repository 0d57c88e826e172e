import { type Cancel, counterBy, counterOf, gaugeOf, type Meter, type RouterId } from "@espalier/common";
import { LeasedPlane, type PlaneOptions } from "../leased/leased-plane.ts";
import type { RelayFrame } from "../leased/plane-exchange.ts";
import type { Origin } from "../origin.ts";
import { subscribe } from "../subscribe.ts";
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
  maxNotes: 64,
  maxOrigins: 256,
  maxHeldBytes: 16 * 1_024 * 1_024,
  /** Period in which own notes are sent again, for routers that missed them. */
  refreshMs: 30_000,
  /** A note that was not sent again for so long is forgotten. */
  forgetMs: 1_800_000,
};

export interface NotePlaneOptions extends PlaneOptions {
  readonly limits?: Partial<NoteLimits>;
}

/** `stale`: nothing new in it, or of this router itself; `refused`: one router or one note too many. */
type Outcome = "stale" | "refused";

interface OwnNote {
  readonly bytes: Uint8Array;
  readonly writtenMs: number;
  counter: number;
}

const encoder = new TextEncoder();

/**
 * Notes among routers: few, slowly changing, and only the latest of each counts. They outlive their writers, because
 * what a router learned stays true for a while.
 *
 * Sends own notes again from `start` on. Before that it takes and posts notes all the same.
 */
export class NotePlane {
  readonly exchange: LeasedPlane<NoteFrame, Outcome>;
  readonly #options: NotePlaneOptions;
  readonly #limits: NoteLimits;
  readonly #meters: ReturnType<typeof createNoteMeters>;
  readonly #own = new Map<string, OwnNote>();
  /** Keys of own notes that were not sent yet. */
  #posted: string[] = [];
  readonly #held: HeldNotes;
  readonly #listeners = new Set<(note: Note) => void>();

  constructor(options: NotePlaneOptions) {
    const limits = { ...defaultNoteLimits, ...options.limits };
    const meters = createNoteMeters(options.meter);
    this.#options = options;
    this.#limits = limits;
    this.#meters = meters;
    this.#held = new HeldNotes(limits);
    this.exchange = new LeasedPlane<NoteFrame, Outcome>(options, {
      read: readNoteFrame,
      take: (frame) => this.#take(frame),
      refusedAs: "stale",
      changes: () => this.#framesOf(this.#posted.splice(0)),
      gatherMs: () => 0,
      full: () => this.#framesOf([...this.#own.keys()]),
      relay: () => this.#relayFrames(),
      received: meters.received,
      upkeep: [[limits.refreshMs, () => this.#refresh()]],
    });
  }

  /**
   * Posts a note to all other routers, and sends it again from time to time.
   *
   * @returns false when there is no capacity for a note about something else
   * @throws RangeError for a note or a key that is too long
   */
  post(key: string, bytes: Uint8Array): boolean {
    if (encoder.encode(key).length > maxNoteKeyBytes) throw new RangeError(`the key of a note is too long: ${key}`);
    if (bytes.length > maxNoteBytes) throw new RangeError(`a note of ${bytes.length} bytes is too long`);
    if (!this.#own.has(key) && this.#own.size >= this.#limits.maxNotes) return false;
    const counter = this.exchange.nextCounter();
    this.#own.set(key, { bytes, writtenMs: this.#options.clock.nowMs(), counter });
    this.#posted.push(key);
    this.exchange.changed();
    return true;
  }

  /** Calls the listener with every note that is new here, first with those that are here already. */
  onNote(listener: (note: Note) => void): Cancel {
    for (const notes of this.#held.byRouter()) for (const note of notes) listener(this.#aged(note));
    return subscribe(this.#listeners, listener);
  }

  start(): void {
    this.exchange.start();
  }

  stop(): void {
    this.exchange.stop();
  }

  /** A repeated note gets a new counter, or routers that hear this one only by a relay would not get it. */
  #refresh(): void {
    for (const note of this.#own.values()) note.counter = this.exchange.nextCounter();
    this.exchange.tell(this.exchange.fullFrames());
    this.#held.forget(this.#options.clock.nowMs() - this.#limits.forgetMs);
    this.#meters.held(this.#held.count);
  }

  #framesOf(keys: readonly string[]): readonly Uint8Array[] {
    const notes = keys.map((key) => ({ key, ...this.#own.get(key)! })).map((note) => this.#aged(note));
    return this.#written({ origin: this.#options.self(), notes });
  }

  #relayFrames(): readonly RelayFrame[] {
    const frames: RelayFrame[] = [];
    for (const held of this.#held.byRouter()) {
      // Epochs of a router that have notes on different keys get a frame each.
      for (const epoch of new Set(held.map(({ origin }) => origin.epoch))) {
        const ofEpoch = held.filter(({ origin }) => origin.epoch === epoch);
        const { origin } = ofEpoch[0]!;
        const notes = ofEpoch.map((note) => this.#aged(note));
        for (const frame of this.#written({ origin, notes })) frames.push({ origin, frame });
      }
    }
    return frames;
  }

  #written({ origin, notes }: NoteFrame): readonly Uint8Array[] {
    const frames = splitNotes(notes).map((some) => writeNoteFrame({ origin, notes: some }));
    for (const { length } of frames) this.#meters.sent(length);
    return frames;
  }

  #aged<Written extends { readonly writtenMs: number }>(note: Written): Written & { readonly ageMs: number } {
    return { ...note, ageMs: Math.max(0, this.#options.clock.nowMs() - note.writtenMs) };
  }

  #take({ origin, notes }: NoteFrame): Outcome | "news" {
    let outcome: Outcome | "news" = "stale";
    for (const note of notes) {
      const as = this.#takeNote(origin, note);
      if (outcome === "stale" || as === "news") outcome = as;
    }
    this.#meters.held(this.#held.count);
    return outcome;
  }

  #takeNote(origin: Origin, note: WrittenNote): Outcome | "news" {
    if (note.ageMs > this.#limits.forgetMs) return "stale";
    const held: HeldNote = { ...note, origin, writtenMs: this.#options.clock.nowMs() - note.ageMs };
    const outcome = this.#held.add(held);
    if (outcome === "news") for (const listener of this.#listeners) listener(held);
    return outcome;
  }
}

function createNoteMeters(meter: Meter) {
  return {
    received: counterBy<Outcome | "news" | "invalid">(
      meter,
      "outcome",
      "espalier_note_frames_received_total",
      "Frames of shared estimates from other routers, by outcome.",
    ),
    sent: counterOf(
      meter,
      "espalier_note_sent_bytes_total",
      "Bytes of frames of shared estimates from this router, each counted once for all peers.",
    ),
    held: gaugeOf(meter, "espalier_notes", "Notes of other routers that this one remembers."),
  };
}

/** Bounds of what is kept. */
export interface HeldNoteLimits {
  /** Notes of one router. */
  readonly maxNotes: number;
  /** Other routers whose notes are kept. */
  readonly maxOrigins: number;
  /** Bytes of all these notes, with their keys. */
  readonly maxHeldBytes: number;
}

/** A note of another router. */
export interface HeldNote extends WrittenNote {
  readonly origin: Origin;
  /** When it was written, on the monotonic clock. */
  readonly writtenMs: number;
}

/**
 * The notes of other routers: per router and key the latest note of the latest epoch. So the result does not depend on
 * the order in which notes arrive, nor on how often.
 */
export class HeldNotes {
  readonly #limits: HeldNoteLimits;
  readonly #routers = new Map<RouterId, Map<string, HeldNote>>();
  #bytes = 0;
  count = 0;

  constructor(limits: HeldNoteLimits) {
    this.#limits = limits;
  }

  /** @returns whether it is new; `refused` when there is no capacity */
  add(note: HeldNote): "news" | "stale" | "refused" {
    const { origin, key } = note;
    const known = this.#routers.get(origin.router)?.get(key);
    if (known && !isLater(note, known)) return "stale";
    const more = sizeOf(note) - (known ? sizeOf(known) : 0);
    if (!this.#evictFor(origin.router, known === undefined, more)) return "refused";
    const notes = this.#routers.get(origin.router) ?? new Map<string, HeldNote>();
    this.#routers.set(origin.router, notes);
    notes.set(key, note);
    this.#bytes += more;
    if (!known) this.count += 1;
    return "news";
  }

  forget(writtenBeforeMs: number): void {
    for (const [router, notes] of this.#routers) {
      for (const [key, note] of notes) {
        if (note.writtenMs >= writtenBeforeMs) continue;
        notes.delete(key);
        this.#bytes -= sizeOf(note);
        this.count -= 1;
      }
      if (notes.size === 0) this.#routers.delete(router);
    }
  }

  /** The notes of each router, in the order in which the routers came. */
  *byRouter(): Generator<readonly HeldNote[], void, undefined> {
    for (const notes of this.#routers.values()) yield [...notes.values()];
  }

  /** Forgets the routers that wrote longest ago, as far as it must; never the one whose note arrives. */
  #evictFor(router: RouterId, isAnother: boolean, more: number): boolean {
    const { maxNotes, maxOrigins, maxHeldBytes } = this.#limits;
    const own = this.#routers.get(router);
    if (isAnother && own && own.size >= maxNotes) return false;
    while ((!own && this.#routers.size >= maxOrigins) || this.#bytes + more > maxHeldBytes) {
      const oldest = this.#oldestBut(router);
      if (oldest === undefined) return false;
      this.#drop(oldest);
    }
    return true;
  }

  #oldestBut(router: RouterId): RouterId | undefined {
    let oldest: RouterId | undefined;
    let oldestMs = Number.POSITIVE_INFINITY;
    for (const [other, notes] of this.#routers) {
      const latestMs = Math.max(...[...notes.values()].map(({ writtenMs }) => writtenMs));
      if (other === router || latestMs >= oldestMs) continue;
      oldest = other;
      oldestMs = latestMs;
    }
    return oldest;
  }

  #drop(router: RouterId): void {
    for (const note of this.#routers.get(router)!.values()) {
      this.#bytes -= sizeOf(note);
      this.count -= 1;
    }
    this.#routers.delete(router);
  }
}

function isLater(one: HeldNote, other: HeldNote): boolean {
  const { epoch } = other.origin;
  return one.origin.epoch === epoch ? one.counter > other.counter : one.origin.epoch > epoch;
}

/** Approximate bytes in memory: a UTF-16 unit of a key is two bytes. */
const sizeOf = ({ key, bytes }: HeldNote): number => bytes.length + 2 * key.length;
