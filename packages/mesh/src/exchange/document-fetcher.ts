import { ByteReader, backoffDelayMs, type Clock, type Random } from "@espalier/common";
import type { ApplyOutcome, DocumentUpdate, ReplicatedDocuments } from "@espalier/replication";
import type { BulkOutcome, BulkReceiver } from "./bulk-transfer.ts";
import type { PeerDocuments } from "./document-broadcaster.ts";
import { encodeDocumentMessage } from "./document-frames.ts";
import type { ExchangeLimits, ExchangeMeter, ResyncReason } from "./exchange-parts.ts";

interface Want {
  readonly name: string;
  why: ResyncReason;
  active: { readonly peer: PeerDocuments; readonly request: number; readonly version: number } | undefined;
  hasProgressed: boolean;
  attempts: number;
  notBeforeMs: number;
  /** Whoever failed last is asked again only when nobody else can be. */
  failed: PeerDocuments | undefined;
}

export interface DocumentFetcherDeps {
  readonly documents: ReplicatedDocuments;
  readonly receiver: BulkReceiver;
  readonly clock: Clock;
  readonly random: Random;
  readonly limits: ExchangeLimits;
  readonly meter: ExchangeMeter;
  peers(): Iterable<PeerDocuments>;
  /** Whether the peer has something of a document that this router has not. */
  lacks(peer: PeerDocuments, name: string): boolean;
  /** Takes a piece; undefined when it was refused and the link is closed. */
  take(peer: PeerDocuments, update: DocumentUpdate): ApplyOutcome | undefined;
  /** An answer has ended: what was held of the document may follow on now. */
  drain(name: string): void;
  /** Nothing more is asked of this document for now. */
  settled(name: string): void;
}

/** Asks peers for what this router lacks: of each document one peer at a time, its writer first. */
export class DocumentFetcher {
  readonly #deps: DocumentFetcherDeps;
  readonly #wants = new Map<string, Want>();
  readonly #loads = new Map<PeerDocuments, number>();
  /** While a snapshot is awaited, journals wait: the records below its stamps are of no use. */
  isHeld = false;

  constructor(deps: DocumentFetcherDeps) {
    this.#deps = deps;
  }

  /** A peer has something that this router lacks. */
  note(name: string, why: ResyncReason): void {
    if (this.#wants.has(name) || this.#wants.size >= this.#deps.limits.maxLackingDocuments) return;
    const want: Want = {
      name,
      why,
      active: undefined,
      hasProgressed: false,
      attempts: 0,
      notBeforeMs: 0,
      failed: undefined,
    };
    this.#wants.set(name, want);
    this.#ask(want);
  }

  /** Asks for what waits and may be asked for now. */
  pump(): void {
    for (const want of [...this.#wants.values()]) this.#ask(want);
  }

  #ask(want: Want): void {
    const { clock, documents, limits, meter, receiver } = this.#deps;
    if (this.isHeld || want.active !== undefined || want.notBeforeMs > clock.nowMs()) return;
    const having = [...this.#deps.peers()].filter((peer) => this.#deps.lacks(peer, want.name));
    if (having.length === 0) {
      this.#settle(want);
      return;
    }
    const peer = this.#choose(want, having);
    if (peer === undefined) return;
    const version = peer.peerVersions.get(want.name) ?? 0;
    const request = receiver.expect(peer.link, {
      message: (bytes) => this.#piece(want, peer, bytes),
      end: (outcome) => this.#ended(want, peer, outcome),
    });
    if (request === undefined) return;
    const stateVector = documents.stateVector(want.name);
    const frame = encodeDocumentMessage({ kind: "want", request, name: want.name, stateVector });
    if (!peer.link.send("documents", frame)) {
      receiver.abandon(peer.link, request);
      meter.dropped("want");
      want.notBeforeMs = clock.nowMs() + limits.retryFirstMs;
      return;
    }
    meter.sent("want", frame.length);
    meter.resync(want.why);
    want.active = { peer, request, version };
    want.hasProgressed = false;
    this.#loads.set(peer, this.#loadOf(peer) + 1);
  }

  #choose(want: Want, having: readonly PeerDocuments[]): PeerDocuments | undefined {
    const free = having.filter((peer) => this.#loadOf(peer) < this.#deps.limits.maxWantsPerLink);
    const writer = free.find((peer) => peer.ownName === want.name && peer !== want.failed);
    if (writer !== undefined) return writer;
    const others = free.filter((peer) => peer !== want.failed);
    const candidates = others.length > 0 ? others : free;
    candidates.sort((a, b) => this.#loadOf(a) - this.#loadOf(b));
    return candidates[0];
  }

  #piece(want: Want, peer: PeerDocuments, bytes: Uint8Array): void {
    const reader = new ByteReader(bytes);
    const from = reader.varint();
    const to = from + reader.varint();
    const update = { name: want.name, from, to, bytes: reader.raw(reader.remaining) };
    const outcome = this.#deps.take(peer, update);
    if (outcome === "applied") want.hasProgressed = true;
    if (outcome === "dropped") {
      this.#abandon(want);
      this.#settle(want);
      this.pump();
    } else if (outcome === "gap") {
      this.#abandon(want);
      this.#retry(want, peer);
    }
  }

  #abandon(want: Want): void {
    const active = this.#release(want);
    if (active === undefined) return;
    const { peer, request } = active;
    this.#deps.receiver.abandon(peer.link, request);
    peer.link.send("documents", encodeDocumentMessage({ kind: "cancel", request }));
  }

  #release(want: Want): Want["active"] {
    const active = want.active;
    want.active = undefined;
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

  #ended(want: Want, peer: PeerDocuments, outcome: BulkOutcome | "lost" | "silent"): void {
    const version = this.#release(want)?.version ?? 0;
    if (outcome === "none") peer.peerVersions.delete(want.name);
    // The peer may have told a later version meanwhile, of which this end had everything already.
    if (outcome === "whole" && peer.synced.get(want.name) !== peer.peerVersions.get(want.name))
      peer.synced.set(want.name, version);
    this.#deps.drain(want.name);
    if (![...this.#deps.peers()].some((other) => this.#deps.lacks(other, want.name))) this.#settle(want);
    else if (outcome !== "whole" || !want.hasProgressed) this.#retry(want, peer);
    else want.attempts = 0;
    this.pump();
  }

  #retry(want: Want, failed: PeerDocuments): void {
    const { clock, limits, random } = this.#deps;
    want.failed = failed;
    want.why = "retry";
    const backoff = { firstDelayMs: limits.retryFirstMs, maxDelayMs: limits.retryMaxMs };
    want.notBeforeMs = clock.nowMs() + backoffDelayMs(want.attempts, backoff, random);
    want.attempts += 1;
  }

  #settle(want: Want): void {
    this.#wants.delete(want.name);
    this.#deps.settled(want.name);
  }
}
