import type { Cancel } from "@espalier/common";
import type { Origin } from "../origin.ts";

/** Something that a router has to say, in a form that only those know who write and read it. */
export interface Note {
  readonly origin: Origin;
  /** What it is about. A later note of the same router about the same thing takes its place. */
  readonly key: string;
  readonly bytes: Uint8Array;
  /** Milliseconds since it was written, the time on the way left out. */
  readonly ageMs: number;
}

/** Where routers leave notes for each other. */
export interface NoteBoard {
  /**
   * Tells all others. What is said again from time to time need not be posted again.
   *
   * @returns false when there is no room for a note about something else
   * @throws RangeError for a note or a key that is too long
   */
  post(key: string, bytes: Uint8Array): boolean;
  /** Told of every note that is new here, first of those that are here already. */
  onNote(listener: (note: Note) => void): Cancel;
}

/** The notes of a replica as those see them who carry them to other replicas. */
export interface NoteExchange {
  /** Told of every frame of own notes that is to go to all peers. */
  onFrame(listener: (frame: Uint8Array) => void): Cancel;
  /** All own notes, for a peer that has just come. */
  fullFrames(): readonly Uint8Array[];
  /** The notes of all other origins that are known, for a peer that cannot hear them itself. */
  relayFrames(): readonly { readonly origin: Origin; readonly frame: Uint8Array }[];
  /**
   * Takes a frame of another origin.
   *
   * @returns the origin it speaks for, and whether it told anything new, so that it is worth passing on; undefined for a kind
   * that is not known
   * @throws EspalierError `mesh_frame_invalid`
   */
  receive(frame: Uint8Array): { readonly origin: Origin; readonly isNews: boolean } | undefined;
}
