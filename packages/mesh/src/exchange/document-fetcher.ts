import { backoffDelayMs } from "@espalier/core";
import type { ApplyOutcome, DocumentUpdate } from "../replicated-documents.ts";
import type { BulkOutcome, BulkReceiver } from "./bulk-transfer.ts";
import type { PeerDocuments } from "./document-broadcaster.ts";
import { documentPiece, encodeDocumentMessage } from "./document-frames.ts";
import type { ExchangeParts, ResyncReason } from "./exchange-parts.ts";
import { readFromPeer } from "./peer-fault.ts";

interface Fetch {
  readonly name: string;
  why: ResyncReason;
  active: { readonly peer: PeerDocuments; readonly request: number; readonly version: number } | undefined;
  hasProgressed: boolean;
  attempts: number;
  notBeforeMs: number;
  /** The peer that failed last is asked again only when no other can be. */
  failed: PeerDocuments | undefined;
}

export interface DocumentFetcherDeps
  extends Pick<ExchangeParts, "documents" | "clock" | "random" | "limits" | "meter"> {
  readonly receiver: BulkReceiver;
  peers(): Iterable<PeerDocuments>;
  /** Whether the peer has something of a document that this router lacks. */
  lacks(peer: PeerDocuments, name: string): boolean;
  /** Takes a piece; undefined when it was refused and the link is closed. */
  take(peer: PeerDocuments, update: DocumentUpdate): ApplyOutcome | undefined;
  /** An answer has ended: held updates of the document may follow on now. */
  drain(name: string): void;
  /** Nothing more is asked of this document for now. */
  settled(name: string): void;
}

/** Asks peers for what this router lacks: for each document one peer at a time, its writer first. */
export class DocumentFetcher {
  readonly #deps: DocumentFetcherDeps;
  readonly #fetches = new Map<string, Fetch>();
  readonly #loads = new Map<PeerDocuments, number>();
  /** While a snapshot is awaited, journals wait: their records below its stamps are useless. */
  isHeld = false;

  constructor(deps: DocumentFetcherDeps) {
    this.#deps = deps;
  }

  /** A peer has something that this router lacks. */
  note(name: string, why: ResyncReason): void {
    if (this.#fetches.has(name) || this.#fetches.size >= this.#deps.limits.maxLackingDocuments) return;
    const fetch: Fetch = {
      name,
      why,
      active: undefined,
      hasProgressed: false,
      attempts: 0,
      notBeforeMs: 0,
      failed: undefined,
    };
    this.#fetches.set(name, fetch);
    this.#ask(fetch);
  }

  /** Sends the requests that are due. */
  pump(): void {
    for (const fetch of [...this.#fetches.values()]) this.#ask(fetch);
  }

  #ask(fetch: Fetch): void {
    const { clock, documents, limits, meter, receiver } = this.#deps;
    if (this.isHeld || fetch.active !== undefined || fetch.notBeforeMs > clock.nowMs()) return;
    const having = [...this.#deps.peers()].filter((peer) => this.#deps.lacks(peer, fetch.name));
    if (having.length === 0) {
      this.#settle(fetch);
      return;
    }
    const peer = this.#choose(fetch, having);
    if (peer === undefined) return;
    const version = peer.peerVersions.get(fetch.name) ?? 0;
    const request = receiver.expect(peer.link, {
      message: (bytes) => this.#piece(fetch, peer, bytes),
      end: (outcome) => this.#ended(fetch, peer, outcome),
    });
    if (request === undefined) return;
    const stateVector = documents.stateVector(fetch.name);
    const frame = encodeDocumentMessage({ kind: "want", request, name: fetch.name, stateVector });
    if (!peer.link.send("documents", frame)) {
      receiver.abandon(peer.link, request);
      meter.dropped("want");
      fetch.notBeforeMs = clock.nowMs() + limits.retryFirstMs;
      return;
    }
    meter.sent("want", frame.length);
    meter.resync(fetch.why);
    fetch.active = { peer, request, version };
    fetch.hasProgressed = false;
    this.#loads.set(peer, this.#loadOf(peer) + 1);
  }

  #choose(fetch: Fetch, having: readonly PeerDocuments[]): PeerDocuments | undefined {
    const free = having.filter((peer) => this.#loadOf(peer) < this.#deps.limits.maxFetchesPerLink);
    const writer = free.find((peer) => peer.ownName === fetch.name && peer !== fetch.failed);
    if (writer !== undefined) return writer;
    const others = free.filter((peer) => peer !== fetch.failed);
    const candidates = others.length > 0 ? others : free;
    candidates.sort((a, b) => this.#loadOf(a) - this.#loadOf(b));
    return candidates[0];
  }

  #piece(fetch: Fetch, peer: PeerDocuments, bytes: Uint8Array): void {
    const piece = readFromPeer(() => documentPiece.decode(bytes));
    const outcome = this.#deps.take(peer, { name: fetch.name, ...piece });
    if (outcome === "applied") fetch.hasProgressed = true;
    if (outcome === "dropped") {
      this.#abandon(fetch);
      this.#settle(fetch);
      this.pump();
    } else if (outcome === "gap") {
      this.#abandon(fetch);
      this.#retry(fetch, peer);
    }
  }

  #abandon(fetch: Fetch): void {
    const active = this.#release(fetch);
    if (active === undefined) return;
    const { peer, request } = active;
    this.#deps.receiver.abandon(peer.link, request);
    peer.link.send("documents", encodeDocumentMessage({ kind: "cancel", request }));
  }

  #release(fetch: Fetch): Fetch["active"] {
    const active = fetch.active;
    fetch.active = undefined;
    if (active !== undefined) {
      const load = this.#loadOf(active.peer) - 1;
      if (load > 0) this.#loads.set(active.peer, load);
      else this.#loads.delete(active.peer);
    }
    return active;
  }

  #loadOf(peer: PeerDocuments): number {
    return this.#loads.get(peer) ?? 0;
  }

  #ended(fetch: Fetch, peer: PeerDocuments, outcome: BulkOutcome | "lost" | "silent"): void {
    const version = this.#release(fetch)?.version ?? 0;
    if (outcome === "none") peer.peerVersions.delete(fetch.name);
    // Meanwhile the peer may have sent a later version, of which this end had everything already.
    if (outcome === "whole" && peer.synced.get(fetch.name) !== peer.peerVersions.get(fetch.name))
      peer.synced.set(fetch.name, version);
    this.#deps.drain(fetch.name);
    if (![...this.#deps.peers()].some((other) => this.#deps.lacks(other, fetch.name))) this.#settle(fetch);
    else if (outcome !== "whole" || !fetch.hasProgressed) this.#retry(fetch, peer);
    else fetch.attempts = 0;
    this.pump();
  }

  #retry(fetch: Fetch, failed: PeerDocuments): void {
    const { clock, limits, random } = this.#deps;
    fetch.failed = failed;
    fetch.why = "retry";
    const backoff = { firstDelayMs: limits.retryFirstMs, maxDelayMs: limits.retryMaxMs };
    fetch.notBeforeMs = clock.nowMs() + backoffDelayMs(fetch.attempts, backoff, random);
    fetch.attempts += 1;
  }

  #settle(fetch: Fetch): void {
    this.#fetches.delete(fetch.name);
    this.#deps.settled(fetch.name);
  }
}
