import {
  type Cancel,
  type Clock,
  capped,
  converted,
  list,
  readOrUndefined,
  type Scheduler,
  struct,
  u32,
  varint,
  versioned,
} from "@espalier/core";
import type { Note, NoteChannel } from "@espalier/shared-tree";

/** First requests in a note. */
const maxNoteBeginnings = 128;
/** Notes of a router, which it writes one after the other, again and again. */
const maxBeginningNotes = 64;
/** Most notes of other routers that are kept, the latest ones. */
const maxPeerNotes = 1_024;
/** First requests of its own that a router knows: the latest. */
export const maxBeginnings = maxNoteBeginnings * maxBeginningNotes;
/** Interval at which beginnings are published: about as long as the shortest answers. */
export const publishBeginningsMs = 100;
/** A note is forgotten when nothing in it has changed for this time. */
export const forgetBeginningsMs = 1_800_000;

const noteKind = "beginnings";

const signed = converted(u32, { from: (digest: number) => digest >>> 0, to: (word) => word | 0 });

/** `requests` is 0 for the conversation of another router's first request, which goes on at this router. */
const beginningNote = versioned(
  1,
  list(struct({ digest: signed, requests: capped(varint, 1_000_000) }), maxNoteBeginnings),
);

export const beginningNoteLayout = beginningNote.layout;

interface OwnNote {
  readonly beginnings: Map<number, number>;
  changedMs: number;
  isChanged: boolean;
}

interface ConversationsOptions {
  readonly notes: NoteChannel | undefined;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** A conversation that began here goes on at another router. */
  readonly onContinued: (digest: number) => void;
}

/**
 * The first requests of conversations, as digests that all routers know. A request whose prompt begins with one of them
 * and an answer continues its program. Where several requests began alike, what continues them begins programs of its
 * own: samples of one prompt, and users who say the same first.
 */
export class Conversations {
  readonly #options: ConversationsOptions;
  readonly #own: (OwnNote | undefined)[] = [];
  /** The note that a beginning is in. */
  readonly #places = new Map<number, number>();
  #writing = 0;
  readonly #peers = new Map<string, { readonly beginnings: ReadonlyMap<number, number>; writtenMs: number }>();
  /** Sums over the notes of other routers. */
  readonly #others = new Map<number, number>();
  #cancels: readonly Cancel[] = [];

  constructor(options: ConversationsOptions) {
    this.#options = options;
  }

  /** Whether exactly one request began like this, at any router. */
  isBeginning(digest: number): boolean {
    return this.#requestsOf(digest) + (this.#others.get(digest) ?? 0) === 1;
  }

  /** A request begins a conversation. */
  begun(digest: number): void {
    this.#write(digest, this.#requestsOf(digest) + 1);
  }

  /** It was not answered: its client may send it again. */
  failed(digest: number): void {
    const requests = this.#requestsOf(digest);
    if (requests > 1) this.#write(digest, requests - 1);
    else if (requests === 1) this.#drop(digest);
  }

  /** A request continues a conversation. */
  continued(digest: number): void {
    if (!this.#places.has(digest)) this.#write(digest, 0);
  }

  start(): void {
    const { scheduler, notes } = this.#options;
    this.#cancels = [
      scheduler.every(publishBeginningsMs, () => this.#publish()),
      notes?.onNote((note) => this.#hear(note)) ?? (() => {}),
    ];
  }

  stop(): void {
    for (const cancel of this.#cancels) cancel();
  }

  #requestsOf(digest: number): number {
    const place = this.#places.get(digest);
    return place === undefined ? 0 : this.#own[place]!.beginnings.get(digest)!;
  }

  #write(digest: number, requests: number): void {
    const place = this.#places.get(digest) ?? this.#place();
    const note = this.#own[place]!;
    note.beginnings.set(digest, requests);
    note.changedMs = this.#options.clock.nowMs();
    note.isChanged = true;
    this.#places.set(digest, place);
  }

  #drop(digest: number): void {
    const note = this.#own[this.#places.get(digest)!]!;
    note.beginnings.delete(digest);
    note.isChanged = true;
    this.#places.delete(digest);
  }

  /** A note with room for one more. */
  #place(): number {
    if (this.#own[this.#writing]?.beginnings.size === maxNoteBeginnings) {
      this.#writing = (this.#writing + 1) % maxBeginningNotes;
      this.#clear(this.#writing);
    }
    this.#own[this.#writing] ??= { beginnings: new Map(), changedMs: 0, isChanged: false };
    return this.#writing;
  }

  #clear(place: number): void {
    for (const digest of this.#own[place]?.beginnings.keys() ?? []) this.#places.delete(digest);
    this.#own[place] = undefined;
  }

  #publish(): void {
    const beforeMs = this.#options.clock.nowMs() - forgetBeginningsMs;
    for (const [place, note] of this.#own.entries()) {
      if (note && note.changedMs <= beforeMs) this.#clear(place);
      else if (note?.isChanged) this.#post(place, note);
    }
    for (const [key, { writtenMs }] of this.#peers) if (writtenMs <= beforeMs) this.#forget(key);
  }

  #post(place: number, note: OwnNote): void {
    note.isChanged = false;
    const beginnings = [...note.beginnings].map(([digest, requests]) => ({ digest, requests }));
    this.#options.notes?.post(`${noteKind}/${place}`, beginningNote.encode(beginnings));
  }

  #hear({ key, origin, bytes, ageMs }: Note): void {
    if (!key.startsWith(`${noteKind}/`)) return;
    const heard = readOrUndefined(() => beginningNote.decode(bytes));
    if (!heard) return;
    const from = `${origin.router}/${key}`;
    const known = this.#peers.get(from)?.beginnings;
    this.#forget(from);
    if (this.#peers.size >= maxPeerNotes) this.#forget(this.#peers.keys().next().value!);
    const beginnings = new Map(heard.map(({ digest, requests }) => [digest, requests]));
    this.#peers.set(from, { beginnings, writtenMs: this.#options.clock.nowMs() - ageMs });
    for (const [digest, requests] of beginnings) {
      if (requests > 0) this.#others.set(digest, (this.#others.get(digest) ?? 0) + requests);
      else if (!known?.has(digest) && this.#requestsOf(digest) > 0) this.#options.onContinued(digest);
    }
  }

  #forget(from: string): void {
    for (const [digest, requests] of this.#peers.get(from)?.beginnings ?? []) {
      const others = (this.#others.get(digest) ?? 0) - requests;
      if (others > 0) this.#others.set(digest, others);
      else this.#others.delete(digest);
    }
    this.#peers.delete(from);
  }
}
