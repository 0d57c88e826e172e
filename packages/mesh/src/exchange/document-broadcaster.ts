import { fnv1aOf } from "@espalier/core";
import type { Link } from "../link/link.ts";
import type { DocumentState, DocumentUpdate, ReplicatedDocuments } from "../replicated-documents.ts";
import { type DocumentKind, encodeDocumentMessage } from "./document-frames.ts";
import type { ExchangeParts } from "./exchange-parts.ts";

/**
 * What one end of a link knows of the other's documents. A version says how far a router has a document: the clock of a
 * journal's writer, or a hash of the state vector where many write.
 */
export interface PeerDocuments {
  readonly link: Link;
  /** Numbers of documents whose names this end has sent. */
  readonly opened: Set<number>;
  /** Names of the other end's numbers. */
  readonly names: Map<number, PeerDocument>;
  /** Versions that this end has sent, by changes or by vectors. */
  readonly advertised: Map<string, number>;
  /** Versions that the other end has sent, by name. */
  readonly peerVersions: Map<string, number>;
  /** Shared documents: the version up to which this end has all that the other one had. */
  readonly synced: Map<string, number>;
  /** Name of the journal that the other end writes. */
  ownName: string | undefined;
  /**
   * What the other end had when the link came up and this end still lacks; undefined until the other end has said it.
   */
  goals: Map<string, number> | undefined;
  /** The other end has state of its own to give as a snapshot. */
  canServe: boolean;
  /** A frame was dropped for lack of capacity: nothing is sent until there is capacity again, then a vector. */
  isDirty: boolean;
  /** The first vector, from which the other end learns its goals, has gone out; until then each vector is the first. */
  hasSentFirst: boolean;
  /** What this end last said of its own ability to serve. */
  advertisedCanServe: boolean;
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
    advertised: new Map(),
    peerVersions: new Map(),
    synced: new Map(),
    ownName: undefined,
    goals: undefined,
    canServe: false,
    isDirty: false,
    hasSentFirst: false,
    advertisedCanServe: false,
    wholeVectorAtMs: nowMs,
    lagMs: undefined,
  };
}

/**
 * How far this router has a document: the clock of its writer, or for a shared document the FNV-1a hash of its state
 * vector, which is equal in two routers with the same changes. 0 for a document it does not have.
 */
export function versionOf(documents: ReplicatedDocuments, name: string): number {
  const state = documents.state(name);
  if (state === undefined) return 0;
  if (state.origin !== undefined) return state.clock;
  return fnv1aOf(documents.stateVector(name));
}

export interface DocumentBroadcasterDeps
  extends Pick<ExchangeParts, "documents" | "peers" | "clock" | "limits" | "meter"> {
  canServe(): boolean;
}

/**
 * Sends changes to peers as they happen, and advertises how far this router has documents that peers may not hear of
 * otherwise. It does not send what a peer is known to have. A vector makes up for what was dropped for lack of
 * capacity.
 */
export class DocumentBroadcaster {
  readonly #deps: DocumentBroadcasterDeps;
  readonly #numbers: DocumentNumbers;

  constructor(deps: DocumentBroadcasterDeps) {
    this.#deps = deps;
    this.#numbers = new DocumentNumbers(deps.limits.maxDocumentNumbers);
  }

  /** Sends one change to these peers, unless they are known to have it. */
  send(update: DocumentUpdate & { readonly committedWallMs: number }, to: Iterable<PeerDocuments>, isRelay: boolean) {
    const { documents, limits, meter } = this.#deps;
    const version = update.to > 0 ? update.to : versionOf(documents, update.name);
    const kind = isRelay ? "relay" : "update";
    let frame: Uint8Array | undefined;
    for (const peer of to) {
      if (peer.isDirty || this.#hasAlready(peer, update)) continue;
      if (update.bytes.length > limits.maxLiveUpdateBytes) {
        this.advertise(peer, "changed");
        continue;
      }
      const number = this.#open(peer, update.name);
      if (number === undefined) continue;
      frame ??= encodeDocumentMessage({ kind: "update", ...update, number });
      if (!this.#put(peer, frame)) {
        meter.dropped(kind);
        continue;
      }
      meter.sent(kind, frame.length);
      peer.advertised.set(update.name, version);
    }
  }

  /**
   * Advertises to a peer how far this router has documents: everything, until one such vector has gone out.
   *
   * @param what `whole`: everything that the peer may not hear of otherwise; `changed`: of that, what it was not sent yet
   */
  advertise(peer: PeerDocuments, what: "whole" | "changed"): void {
    const { canServe, clock, documents, limits, meter } = this.#deps;
    if (peer.isDirty) return;
    const isFirst = !peer.hasSentFirst;
    if (what === "whole" || isFirst) peer.wholeVectorAtMs = clock.nowMs();
    const entries: { number: number; version: number; name: string }[] = [];
    for (const state of documents.list()) {
      if (entries.length >= limits.maxDocumentNumbers) break;
      const { name } = state;
      if (!isFirst && !this.#concerns(peer, state)) continue;
      const version = versionOf(documents, name);
      if (version === 0) continue;
      const isKnown = peer.advertised.get(name) === version || peer.peerVersions.get(name) === version;
      if (!isFirst && what === "changed" && isKnown) continue;
      const number = this.#open(peer, name);
      if (peer.isDirty) return;
      if (number !== undefined) entries.push({ number, version, name });
    }
    const serves = canServe();
    if (!isFirst && entries.length === 0 && peer.advertisedCanServe === serves) return;
    const frame = encodeDocumentMessage({ kind: "vector", isFirst, canServe: serves, entries });
    if (!this.#put(peer, frame)) {
      meter.dropped("vector");
      return;
    }
    meter.sent("vector", frame.length);
    peer.hasSentFirst = true;
    peer.advertisedCanServe = serves;
    for (const { name, version } of entries) peer.advertised.set(name, version);
  }

  /** Forgets documents that are gone, so that their numbers can be used again. */
  prune(peers: Iterable<PeerDocuments>): void {
    const isThere = (name: string): boolean => this.#deps.documents.state(name) !== undefined;
    const freed = this.#numbers.retain(isThere);
    for (const { opened, advertised } of peers) {
      for (const number of freed) opened.delete(number);
      for (const name of [...advertised.keys()]) if (!isThere(name)) advertised.delete(name);
    }
  }

  /** Whether the peer depends on this router for a document: it has no link to its writer, or many write it. */
  #concerns(peer: PeerDocuments, { origin }: DocumentState): boolean {
    if (origin === undefined) return true;
    const { peers } = this.#deps;
    if (origin.router === peers.self.router) return true;
    const { router } = peer.link.peer.origin;
    return origin.router !== router && !peers.hears(router, origin.router);
  }

  #hasAlready(peer: PeerDocuments, update: DocumentUpdate): boolean {
    return update.to > 0 && (peer.peerVersions.get(update.name) ?? 0) >= update.to;
  }

  /** The number of a document; sends the peer its name first. Undefined when there is no capacity for it. */
  #open(peer: PeerDocuments, name: string): number | undefined {
    const number = this.#numbers.numberOf(name);
    if (number === undefined || peer.opened.has(number)) return number;
    const frame = encodeDocumentMessage({ kind: "open", number, documentKind: this.#kindOf(name), name });
    if (!this.#put(peer, frame)) return undefined;
    this.#deps.meter.sent("vector", frame.length);
    peer.opened.add(number);
    return number;
  }

  #kindOf(name: string): DocumentKind {
    const origin = this.#deps.documents.state(name)?.origin;
    if (origin === undefined) return "shared";
    const { self } = this.#deps.peers;
    return origin.router === self.router && origin.epoch === self.epoch ? "own" : "journal";
  }

  #put(peer: PeerDocuments, frame: Uint8Array): boolean {
    if (peer.link.send("documents", frame)) return true;
    peer.isDirty = true;
    return false;
  }
}

/** Small numbers for the names of documents: the same on all links, so that a frame is written once for all of them. */
export class DocumentNumbers {
  readonly #capacity: number;
  readonly #numbers = new Map<string, number>();
  readonly #free: number[] = [];

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  /** @returns undefined when all numbers are taken */
  numberOf(name: string): number | undefined {
    const known = this.#numbers.get(name);
    if (known !== undefined) return known;
    const number = this.#free.pop() ?? (this.#numbers.size < this.#capacity ? this.#numbers.size : undefined);
    if (number !== undefined) this.#numbers.set(name, number);
    return number;
  }

  /**
   * Frees the numbers of documents that are gone. @returns them; their names must be sent again before they are used
   */
  retain(isThere: (name: string) => boolean): number[] {
    const freed: number[] = [];
    for (const [name, number] of this.#numbers) {
      if (isThere(name)) continue;
      this.#numbers.delete(name);
      freed.push(number);
    }
    this.#free.push(...freed);
    return freed;
  }
}
