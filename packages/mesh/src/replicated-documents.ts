import { type Cancel, EspalierError } from "@espalier/core";
import type { Origin } from "./origin.ts";

/**
 * A part of a Yjs document for another replica. A journal has one writer, whose clock counts what it has written:
 * `bytes` holds the writer's structs from clock `from` to clock `to` (exclusive), so that duplicates and gaps are found
 * without decoding. The registry has many writers: there both are 0, and the update is always applied.
 */
export interface DocumentUpdate {
  /** Name of the document. */
  readonly name: string;
  readonly from: number;
  readonly to: number;
  /** A Yjs update, version 1. */
  readonly bytes: Uint8Array;
}

/**
 * `applied`; `duplicate`: all of it was there already; `gap`: something before it is missing, nothing was applied, and
 * the caller must ask for a diff; `dropped`: the document was abandoned for good, and the sender may give it up too.
 */
export type ApplyOutcome = "applied" | "duplicate" | "gap" | "dropped";

export interface DocumentState {
  readonly name: string;
  /** The writer of a journal; undefined for the registry. */
  readonly origin: Origin | undefined;
  /** The writer's clock, as far as it is known here; 0 for the registry. */
  readonly clock: number;
  /** Approximate bytes of the document's present content. */
  readonly byteLength: number;
}

/** The documents of a replica as their carriers to other replicas see them. */
export interface ReplicatedDocuments {
  /** Every document, the own journal first. */
  list(): readonly DocumentState[];
  state(name: string): DocumentState | undefined;
  /** State vector as in y-protocols; for an unknown document, that of an empty one. */
  stateVector(name: string): Uint8Array;
  /**
   * What a router with this state vector lacks, in pieces of about `maxBytes` at most (never less than one item),
   * oldest first. Each piece takes a few milliseconds at most; the document may change between two of them.
   *
   * @throws RangeError for a state vector that cannot be read
   */
  diff(name: string, stateVector: Uint8Array, maxBytes: number): Generator<DocumentUpdate, void, undefined>;
  /**
   * Applies an update of another replica. An unknown journal is begun.
   *
   * @throws EspalierError `mesh_update_refused` when it is no update, holds structs or deletions by others than the
   *   document's writer, or exceeds a bound. Nothing is applied then, and the link that it came by should be closed.
   */
  apply(update: DocumentUpdate): ApplyOutcome;
  /**
   * Calls the listener with every update, after it was applied.
   *
   * @param listener `isOwn`: this replica wrote it
   */
  onUpdate(listener: (update: DocumentUpdate, isOwn: boolean) => void): Cancel;
}

/** A document would exceed what this replica keeps of one. The sender is not at fault. */
export class DocumentFullError extends EspalierError {
  constructor(message: string) {
    super("mesh_update_refused", message);
  }
}
