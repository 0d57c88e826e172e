import type { Clock } from "@espalier/common";
import type { DocumentState, DocumentUpdate, ReplicatedDocuments } from "@espalier/replication";
import { type DocumentKind, encodeDocumentMessage } from "./document-frames.ts";
import { markOf } from "./document-marks.ts";
import { DocumentNumbers } from "./document-numbers.ts";
import type { ExchangeLimits } from "./exchange-limits.ts";
import type { ExchangeMeter } from "./exchange-meter.ts";
import type { MeshPeers } from "./mesh-peers.ts";
import type { PeerDocuments } from "./peer-documents.ts";

export interface DocumentTellerDeps {
  readonly documents: ReplicatedDocuments;
  readonly peers: MeshPeers;
  readonly clock: Clock;
  readonly limits: ExchangeLimits;
  readonly meter: ExchangeMeter;
  canServe(): boolean;
}

/**
 * Tells peers of changes as they happen, and of how far this router has documents that they may not hear of otherwise.
 * What a peer is known to have is not sent to it; what was dropped for want of room is made up by a vector.
 */
export class DocumentTeller {
  readonly #deps: DocumentTellerDeps;
  readonly #numbers: DocumentNumbers;

  constructor(deps: DocumentTellerDeps) {
    this.#deps = deps;
    this.#numbers = new DocumentNumbers(deps.limits.maxDocumentNumbers);
  }

  /** Sends one change to these peers, unless they are known to have it. */
  send(update: DocumentUpdate & { readonly committedWallMs: number }, to: Iterable<PeerDocuments>, isRelay: boolean) {
    const { documents, limits, meter } = this.#deps;
    const mark = update.to > 0 ? update.to : markOf(documents, update.name);
    const kind = isRelay ? "relay" : "update";
    let frame: Uint8Array | undefined;
    for (const peer of to) {
      if (peer.isDirty || this.#hasAlready(peer, update)) continue;
      if (update.bytes.length > limits.maxLiveUpdateBytes) {
        this.tell(peer, "changed");
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
      peer.told.set(update.name, mark);
    }
  }

  /**
   * Tells a peer how far this router has documents.
   *
   * @param what `first`: everything, as the first message on a link; `whole`: everything that the peer may not hear of
   * otherwise; `changed`: of that, what it was not told yet
   */
  tell(peer: PeerDocuments, what: "first" | "whole" | "changed"): void {
    const { canServe, clock, documents, limits, meter } = this.#deps;
    if (peer.isDirty) return;
    if (what !== "changed") peer.wholeVectorAtMs = clock.nowMs();
    const entries: { number: number; mark: number; name: string }[] = [];
    for (const state of documents.list()) {
      if (entries.length >= limits.maxDocumentNumbers) break;
      const { name } = state;
      if (what !== "first" && !this.#concerns(peer, state)) continue;
      const mark = markOf(documents, name);
      if (mark === 0) continue;
      if (what === "changed" && (peer.told.get(name) === mark || peer.known.get(name) === mark)) continue;
      const number = this.#open(peer, name);
      if (peer.isDirty) return;
      if (number !== undefined) entries.push({ number, mark, name });
    }
    const serves = canServe();
    if (what !== "first" && entries.length === 0 && peer.toldCanServe === serves) return;
    const frame = encodeDocumentMessage({ kind: "vector", isFirst: what === "first", canServe: serves, entries });
    if (!this.#put(peer, frame)) {
      meter.dropped("vector");
      return;
    }
    meter.sent("vector", frame.length);
    peer.toldCanServe = serves;
    for (const { name, mark } of entries) peer.told.set(name, mark);
  }

  /** Forgets documents that are gone, so that their numbers can be used again. */
  prune(peers: Iterable<PeerDocuments>): void {
    const isThere = (name: string): boolean => this.#deps.documents.state(name) !== undefined;
    const freed = this.#numbers.retain(isThere);
    for (const { opened, told } of peers) {
      for (const number of freed) opened.delete(number);
      for (const name of [...told.keys()]) if (!isThere(name)) told.delete(name);
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
    return update.to > 0 && (peer.known.get(update.name) ?? 0) >= update.to;
  }

  /** The number of a document, whose name the peer is told before; undefined when there is no room for it. */
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
