import type { Link } from "../link/link.ts";
import type { DocumentKind } from "./document-frames.ts";

/**
 * What one end of a link knows of the other's documents. A mark says how far a router has a document: the clock of a
 * journal's writer, or a hash of the state vector where many write.
 */
export interface PeerDocuments {
  readonly link: Link;
  /** Numbers of documents whose names this end has told. */
  readonly opened: Set<number>;
  /** Names behind the other end's numbers. */
  readonly names: Map<number, PeerDocument>;
  /** Marks that this end has told, by changes or by vectors. */
  readonly told: Map<string, number>;
  /** Marks that the other end has told, by name. */
  readonly known: Map<string, number>;
  /** Shared documents: the mark up to which this end has all that the other one had. */
  readonly taken: Map<string, number>;
  /** Name of the journal that the other end writes. */
  ownName: string | undefined;
  /** What the other end had when the link came up and this end has not got yet; undefined until it has told. */
  goals: Map<string, number> | undefined;
  /** The other end has state of its own to give as a snapshot. */
  canServe: boolean;
  /** A frame was dropped for want of room: nothing is sent until there is some again, then a vector. */
  isDirty: boolean;
  /** What was last told of the own ability to serve. */
  toldCanServe: boolean;
  wholeVectorAtMs: number;
  /** How long its latest change took to arrive; undefined before the first. */
  lagMs: number | undefined;
}

export interface PeerDocument {
  readonly name: string;
  readonly kind: DocumentKind;
}

export function createPeerDocuments(link: Link, nowMs: number): PeerDocuments {
  return {
    link,
    opened: new Set(),
    names: new Map(),
    told: new Map(),
    known: new Map(),
    taken: new Map(),
    ownName: undefined,
    goals: undefined,
    canServe: false,
    isDirty: false,
    toldCanServe: false,
    wholeVectorAtMs: nowMs,
    lagMs: undefined,
  };
}
