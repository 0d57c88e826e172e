import type { RouterId } from "@espalier/common";
import type { Origin } from "../origin.ts";
import type { WrittenNote } from "./note-frame.ts";

/** Bounds of what is held. */
export interface HeldNoteLimits {
  /** Notes of one router. */
  readonly maxNotes: number;
  /** Other routers whose notes are kept. */
  readonly maxOrigins: number;
  /** Bytes of the notes of all of them, keys counted in. */
  readonly maxHeldBytes: number;
}

/** A note of another router. */
export interface HeldNote extends WrittenNote {
  readonly origin: Origin;
  /** When it was written, on the monotonic clock. */
  readonly writtenMs: number;
}

/**
 * The notes of other routers: of each router and key the one of the latest life, and of that the latest. So what is held does
 * not depend on the order in which notes come, nor on how often.
 */
export class HeldNotes {
  readonly #limits: HeldNoteLimits;
  readonly #routers = new Map<RouterId, Map<string, HeldNote>>();
  #bytes = 0;
  count = 0;

  constructor(limits: HeldNoteLimits) {
    this.#limits = limits;
  }

  /** @returns whether it is new; `refused` when there is no room */
  add(note: HeldNote): "news" | "stale" | "refused" {
    const { origin, key } = note;
    const known = this.#routers.get(origin.router)?.get(key);
    if (known && !isLater(note, known)) return "stale";
    const more = sizeOf(note) - (known ? sizeOf(known) : 0);
    if (!this.#makeRoom(origin.router, known === undefined, more)) return "refused";
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

  /** Those of each router, in the order in which the routers came. */
  *byRouter(): Generator<readonly HeldNote[], void, undefined> {
    for (const notes of this.#routers.values()) yield [...notes.values()];
  }

  /** Forgets the routers that wrote longest ago, as far as it must; never the one whose note comes. */
  #makeRoom(router: RouterId, isAnother: boolean, more: number): boolean {
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

/** In memory, about: a UTF-16 unit of a key is two bytes. */
const sizeOf = ({ key, bytes }: HeldNote): number => bytes.length + 2 * key.length;
