import type { Cancel, Clock, Meter, Scheduler } from "@espalier/common";
import type { Origin } from "../origin.ts";
import { subscribe } from "../subscribe.ts";
import { type HeldNote, HeldNotes } from "./held-notes.ts";
import type { Note, NoteBoard, NoteExchange } from "./note-exchange.ts";
import {
  maxNoteBytes,
  maxNoteKeyBytes,
  type NoteFrame,
  readNoteFrame,
  splitNotes,
  type WrittenNote,
  writeNoteFrame,
} from "./note-frame.ts";
import { defaultNoteLimits, type NoteLimits } from "./note-limits.ts";
import { createNoteMeters, type NoteMeters } from "./note-meters.ts";

export interface NotePlaneOptions {
  /** This life of this router. */
  readonly self: () => Origin;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly meter: Meter;
  readonly limits?: Partial<NoteLimits>;
}

/**
 * Notes among routers: a few, that change slowly, and of which only the latest counts. They outlive who wrote them, for what
 * was learned stays true for a while.
 */
export interface NotePlane extends NoteBoard {
  readonly exchange: NoteExchange;
  start(): void;
  stop(): void;
}

interface OwnNote {
  readonly bytes: Uint8Array;
  readonly writtenMs: number;
  counter: number;
}

const encoder = new TextEncoder();

/** Tells own notes again from the start on; before that, notes are taken and posted all the same. */
export function createNotePlane(options: NotePlaneOptions): NotePlane {
  return new Plane(options);
}

class Plane implements NotePlane {
  readonly exchange: NoteExchange;
  readonly #options: NotePlaneOptions;
  readonly #limits: NoteLimits;
  readonly #meters: NoteMeters;
  readonly #own = new Map<string, OwnNote>();
  readonly #held: HeldNotes;
  readonly #frameListeners = new Set<(frame: Uint8Array) => void>();
  readonly #noteListeners = new Set<(note: Note) => void>();
  #counter = 0;
  #cancelRefresh: Cancel = () => {};

  constructor(options: NotePlaneOptions) {
    this.#options = options;
    this.#limits = { ...defaultNoteLimits, ...options.limits };
    this.#meters = createNoteMeters(options.meter);
    this.#held = new HeldNotes(this.#limits);
    this.exchange = {
      onFrame: (listener) => subscribe(this.#frameListeners, listener),
      fullFrames: () => this.#framesOf([...this.#own.keys()]),
      relayFrames: () => this.#relayFrames(),
      receive: (frame) => this.#receive(frame),
    };
  }

  post(key: string, bytes: Uint8Array): boolean {
    if (encoder.encode(key).length > maxNoteKeyBytes) throw new RangeError(`the key of a note is too long: ${key}`);
    if (bytes.length > maxNoteBytes) throw new RangeError(`a note of ${bytes.length} bytes is too long`);
    if (!this.#own.has(key) && this.#own.size >= this.#limits.maxNotes) return false;
    this.#own.set(key, { bytes, writtenMs: this.#options.clock.nowMs(), counter: ++this.#counter });
    this.#tell([key]);
    return true;
  }

  onNote(listener: (note: Note) => void): Cancel {
    for (const notes of this.#held.byRouter()) for (const note of notes) listener(this.#aged(note));
    return subscribe(this.#noteListeners, listener);
  }

  start(): void {
    this.#cancelRefresh = this.#options.scheduler.every(this.#limits.refreshMs, () => this.#refresh());
  }

  stop(): void {
    this.#cancelRefresh();
  }

  /** A note that is told again is a new one, or those would not hear of it who hear this router by another one. */
  #refresh(): void {
    for (const note of this.#own.values()) note.counter = ++this.#counter;
    this.#tell([...this.#own.keys()]);
    this.#held.forget(this.#options.clock.nowMs() - this.#limits.forgetMs);
    this.#meters.held(this.#held.count);
  }

  #tell(keys: readonly string[]): void {
    for (const frame of this.#framesOf(keys)) for (const listener of this.#frameListeners) listener(frame);
  }

  #framesOf(keys: readonly string[]): readonly Uint8Array[] {
    const notes = keys.map((key) => ({ key, ...this.#own.get(key)! })).map((note) => this.#aged(note));
    return this.#written({ origin: this.#options.self(), notes });
  }

  #relayFrames(): readonly { readonly origin: Origin; readonly frame: Uint8Array }[] {
    const frames: { origin: Origin; frame: Uint8Array }[] = [];
    for (const held of this.#held.byRouter()) {
      // Lives of a router that have told of different things have a frame each.
      for (const epoch of new Set(held.map(({ origin }) => origin.epoch))) {
        const ofLife = held.filter(({ origin }) => origin.epoch === epoch);
        const { origin } = ofLife[0]!;
        const notes = ofLife.map((note) => this.#aged(note));
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

  #receive(bytes: Uint8Array): { origin: Origin; isNews: boolean } {
    const { origin, notes } = this.#read(bytes);
    let outcome: "news" | "stale" | "refused" = "stale";
    if (origin.router !== this.#options.self().router) {
      for (const note of notes) {
        const as = this.#take(origin, note);
        if (outcome === "stale" || as === "news") outcome = as;
      }
    }
    this.#meters.received(outcome);
    this.#meters.held(this.#held.count);
    return { origin, isNews: outcome === "news" };
  }

  #take(origin: Origin, note: WrittenNote): "news" | "stale" | "refused" {
    if (note.ageMs > this.#limits.forgetMs) return "stale";
    const held: HeldNote = { ...note, origin, writtenMs: this.#options.clock.nowMs() - note.ageMs };
    const outcome = this.#held.add(held);
    if (outcome === "news") for (const listener of this.#noteListeners) listener(held);
    return outcome;
  }

  #read(bytes: Uint8Array): NoteFrame {
    try {
      return readNoteFrame(bytes);
    } catch (error) {
      this.#meters.received("invalid");
      throw error;
    }
  }
}
