import { type Cancel, EspalierError, RecencyMap } from "@espalier/core";
import type { Link } from "../link/link.ts";
import { originKey } from "../origin.ts";
import { type ApplyOutcome, DocumentFullError, type DocumentUpdate } from "../replicated-documents.ts";
import type { BulkReceiver, BulkSender } from "./bulk-transfer.ts";
import {
  createPeerDocuments,
  DocumentBroadcaster,
  type PeerDocument,
  type PeerDocuments,
  versionOf,
} from "./document-broadcaster.ts";
import { DocumentFetcher } from "./document-fetcher.ts";
import {
  documentPiece,
  type OpenMessage,
  type UpdateMessage,
  type VectorMessage,
  type WantMessage,
} from "./document-frames.ts";
import type { ExchangeLimits, ExchangeParts } from "./exchange-parts.ts";
import { PeerFault } from "./peer-fault.ts";

/** The version of a shared document of which a peer has something, but has not sent its version. */
const unheardVersion = -1;
/** How long what a diff brought is gathered before it is advertised to those who depend on this router. */
const advertiseDelayMs = 20;

export interface DocumentExchangeDeps extends ExchangeParts {
  readonly sender: BulkSender;
  readonly receiver: BulkReceiver;
  canServe(): boolean;
}

/**
 * Keeps documents equal over links. Own changes go to every peer at once; those of others only to peers that have no
 * link to their writer. A router that lacks something, by a gap or by a peer's version, asks for a diff.
 */
export class DocumentExchange {
  readonly #deps: DocumentExchangeDeps;
  readonly #peers = new Map<Link, PeerDocuments>();
  readonly #broadcaster: DocumentBroadcaster;
  readonly #fetcher: DocumentFetcher;
  readonly #held: HeldUpdates;
  readonly #intake: DocumentIntake;
  #unlisten: Cancel = () => {};
  #cancelAdvertise: Cancel | undefined;

  constructor(deps: DocumentExchangeDeps) {
    this.#deps = deps;
    this.#broadcaster = new DocumentBroadcaster(deps);
    this.#held = new HeldUpdates(deps.limits);
    this.#intake = new DocumentIntake(deps);
    this.#fetcher = new DocumentFetcher({
      ...deps,
      peers: () => this.#peers.values(),
      lacks: (peer, name) => this.#lacks(peer, name),
      take: (peer, update) => this.#intake.take(peer, update),
      drain: (name) => this.#drain(name),
      settled: (name) => this.#settled(name),
    });
  }

  start(): void {
    this.#unlisten = this.#deps.documents.onUpdate((update, isOwn) => {
      if (!isOwn) return;
      const committedWallMs = Math.max(0, Math.floor(this.#deps.clock.wallMs()));
      this.#broadcaster.send({ ...update, committedWallMs }, this.#peers.values(), false);
    });
  }

  stop(): void {
    this.#unlisten();
    this.#cancelAdvertise?.();
  }

  linkUp(link: Link): void {
    const peer = createPeerDocuments(link, this.#deps.clock.nowMs());
    this.#peers.set(link, peer);
    this.#broadcaster.advertise(peer, "whole");
  }

  linkDown(link: Link): void {
    this.#peers.delete(link);
  }

  /** While set, journals are not asked for. */
  set isHeld(isHeld: boolean) {
    this.#fetcher.isHeld = isHeld;
    if (!isHeld) this.#fetcher.pump();
  }

  /** Whether this router has all that the peers had when their links came up. */
  get hasReachedGoals(): boolean {
    for (const peer of this.#peers.values()) {
      if (peer.goals === undefined) return false;
      for (const [name, version] of peer.goals) {
        const state = this.#deps.documents.state(name);
        const isPast = state?.origin !== undefined && state.clock >= version;
        if (!isPast && this.#lacks(peer, name)) return false;
        peer.goals.delete(name);
      }
    }
    return true;
  }

  peer(link: Link): PeerDocuments | undefined {
    return this.#peers.get(link);
  }

  /** Asks again for what is due. */
  retry(): void {
    for (const peer of this.#peers.values()) {
      for (const name of peer.goals?.keys() ?? []) if (this.#lacks(peer, name)) this.#fetcher.note(name, "retry");
    }
    this.#fetcher.pump();
  }

  /** Advertises to peers what they may lack; now and then everything. */
  advertise(): void {
    const { clock, limits } = this.#deps;
    const wholeBeforeMs = clock.nowMs() - limits.wholeVectorPeriodMs;
    this.#broadcaster.prune(this.#peers.values());
    for (const peer of this.#peers.values()) {
      this.#broadcaster.advertise(peer, peer.wholeVectorAtMs <= wholeBeforeMs ? "whole" : "changed");
    }
  }

  drained(link: Link): void {
    const peer = this.#peers.get(link);
    if (!peer?.isDirty) return;
    peer.isDirty = false;
    this.#broadcaster.advertise(peer, "changed");
  }

  /** @throws PeerFault for a number that is out of bounds */
  open(link: Link, { number, name, documentKind }: OpenMessage): void {
    const peer = this.#peers.get(link);
    if (peer === undefined) return;
    if (number >= this.#deps.limits.maxDocumentNumbers) throw new PeerFault("a document's number is too large");
    const before = peer.names.get(number);
    if (before !== undefined && before.name !== name) {
      for (const versions of [peer.peerVersions, peer.synced, peer.goals]) versions?.delete(before.name);
    }
    peer.names.set(number, { name, kind: documentKind });
    if (documentKind === "own") peer.ownName = name;
  }

  /** @throws PeerFault for a number without a name */
  update(link: Link, message: UpdateMessage): void {
    const peer = this.#peers.get(link);
    if (peer === undefined) return;
    const { name, kind } = nameOf(peer, message.number);
    const { from, to, committedWallMs, bytes } = message;
    const update = { name, from, to, bytes, committedWallMs };
    const lagMs = Math.max(0, this.#deps.clock.wallMs() - committedWallMs);
    this.#deps.meter.lag(lagMs);
    if (kind === "own") peer.lagMs = lagMs;
    if (kind === "shared") this.#updateShared(peer, update);
    else this.#updateJournal(peer, update);
  }

  #updateJournal(peer: PeerDocuments, update: HeldUpdate): void {
    const { name, to } = update;
    if ((peer.peerVersions.get(name) ?? 0) < to) peer.peerVersions.set(name, to);
    if (to <= (this.#deps.documents.state(name)?.clock ?? 0)) return;
    const outcome = this.#intake.take(peer, update);
    if (outcome === "applied") this.#relay(update);
    if (outcome !== "gap") return;
    this.#held.hold(update);
    this.#fetcher.note(name, "gap");
  }

  /** @throws PeerFault for a number without a name */
  vector(link: Link, { entries, isFirst, canServe }: VectorMessage): void {
    const peer = this.#peers.get(link);
    if (peer === undefined) return;
    peer.canServe = canServe;
    const lacking: string[] = [];
    if (isFirst) peer.goals = new Map();
    for (const { number, version } of entries) {
      const { name, kind } = nameOf(peer, number);
      const isShared = kind === "shared";
      peer.peerVersions.set(name, isShared ? version : Math.max(version, peer.peerVersions.get(name) ?? 0));
      if (!this.#lacks(peer, name)) continue;
      if (isFirst) peer.goals?.set(name, version);
      lacking.push(name);
    }
    for (const name of lacking) this.#fetcher.note(name, "vector");
  }

  /** @throws RangeError for a state vector that cannot be read */
  want(link: Link, { request, name, stateVector }: WantMessage): void {
    const { documents, limits, sender } = this.#deps;
    const peer = this.#peers.get(link);
    if (peer === undefined) return;
    if (documents.state(name) === undefined) {
      sender.refuse(link, request, "none");
      return;
    }
    const updates = documents.diff(name, stateVector, limits.bulkFrameBytes);
    sender.answer(link, { request, kind: "piece", messages: piecesOf(updates) });
  }

  #updateShared(peer: PeerDocuments, update: HeldUpdate): void {
    const { documents, peers } = this.#deps;
    const before = versionOf(documents, update.name);
    const outcome = this.#intake.take(peer, update);
    if (outcome === "gap") {
      peer.peerVersions.set(update.name, unheardVersion);
      peer.synced.delete(update.name);
      this.#fetcher.note(update.name, "gap");
    }
    if (outcome !== "applied" || versionOf(documents, update.name) === before) return;
    const from = peer.link.peer.origin.router;
    const others = [...this.#peers.values()].filter(
      ({ link }) => link !== peer.link && !peers.hears(link.peer.origin.router, from),
    );
    this.#broadcaster.send(update, others, true);
  }

  /** Relays to peers what the writer cannot send them itself. The peer that sent it is known to have it. */
  #relay(update: HeldUpdate): void {
    const { documents, peers } = this.#deps;
    const writer = documents.state(update.name)?.origin?.router;
    if (writer === undefined) return;
    const others = [...this.#peers.values()].filter(({ link }) => {
      const { router } = link.peer.origin;
      return router !== writer && !peers.hears(router, writer);
    });
    this.#broadcaster.send(update, others, true);
  }

  #lacks(peer: PeerDocuments, name: string): boolean {
    const { documents, peers } = this.#deps;
    const version = peer.peerVersions.get(name);
    if (version === undefined || this.#intake.isRefused(name)) return false;
    const state = documents.state(name);
    const isShared = state === undefined ? isSharedName(peer, name) : state.origin === undefined;
    if (isShared) {
      if (version === versionOf(documents, name)) peer.synced.set(name, version);
      return peer.synced.get(name) !== version;
    }
    const { self } = peers;
    if (state?.origin?.router === self.router && state.origin.epoch === self.epoch) return false;
    return version > (state?.clock ?? 0);
  }

  /** Applies held updates as far as they follow on. */
  #drain(name: string): void {
    const [anyPeer] = this.#peers.values();
    let isFollowing = anyPeer !== undefined;
    for (const update of this.#held.take(name)) {
      if (isFollowing && update.to > (this.#deps.documents.state(name)?.clock ?? 0)) {
        const sender = [...this.#peers.values()].find(({ peerVersions }) => (peerVersions.get(name) ?? 0) >= update.to);
        const outcome = sender === undefined ? undefined : this.#intake.take(sender, update);
        if (outcome === "applied") this.#relay(update);
        isFollowing = outcome === "applied" || outcome === "duplicate";
      }
      if (!isFollowing) this.#held.hold(update);
    }
  }

  #settled(name: string): void {
    this.#drain(name);
    this.#held.take(name);
    for (const peer of this.#peers.values()) if (!this.#lacks(peer, name)) peer.goals?.delete(name);
    this.#cancelAdvertise ??= this.#deps.scheduler.after(advertiseDelayMs, () => {
      this.#cancelAdvertise = undefined;
      for (const peer of this.#peers.values()) this.#broadcaster.advertise(peer, "changed");
    });
  }
}

function* piecesOf(updates: Iterable<DocumentUpdate>): Generator<Uint8Array, void, undefined> {
  for (const update of updates) yield documentPiece.encode(update, update.bytes.length + 16);
}

function nameOf(peer: PeerDocuments, number: number): PeerDocument {
  const document = peer.names.get(number);
  if (document === undefined) throw new PeerFault(`a document's number ${number} has no name`);
  return document;
}

function isSharedName(peer: PeerDocuments, name: string): boolean {
  for (const document of peer.names.values()) if (document.name === name) return document.kind === "shared";
  return false;
}

/** How long a document that is too large for this router is ignored: it may become smaller. */
export const fullDocumentMs = 60_000;

export interface DocumentIntakeDeps extends Pick<ExchangeParts, "clock" | "documents" | "logger" | "meter"> {
  readonly limits: Pick<ExchangeLimits, "maxRefusedDocuments">;
}

/** Passes what peers send to the replica, and remembers the documents that the replica refuses. */
export class DocumentIntake {
  readonly #deps: DocumentIntakeDeps;
  readonly #refused = new Set<string>();
  /** Documents that did not fit, and until when their updates are ignored. */
  readonly #full = new RecencyMap<string, number>();

  constructor(deps: DocumentIntakeDeps) {
    this.#deps = deps;
  }

  /** Whether a document was abandoned, or did not fit. This router may begin an abandoned one again. */
  isRefused(name: string): boolean {
    if ((this.#full.get(name) ?? 0) > this.#deps.clock.nowMs()) return true;
    return this.#refused.has(name) && this.#deps.documents.state(name) === undefined;
  }

  /** @returns undefined for an update with forbidden content: the link that it came by is closed then */
  take(peer: PeerDocuments, update: DocumentUpdate): ApplyOutcome | undefined {
    const { documents, logger, meter } = this.#deps;
    if (this.isRefused(update.name)) return "dropped";
    try {
      const outcome = documents.apply(update);
      if (outcome === "dropped") this.#refuse(update.name);
      return outcome;
    } catch (error) {
      if (!(error instanceof EspalierError && error.code === "mesh_update_refused")) throw error;
      meter.refused();
      const from = originKey(peer.link.peer.origin);
      if (error instanceof DocumentFullError) {
        logger.warn("no capacity for a document", { from, document: update.name, error: error.message });
        this.#leave(update.name);
        return "dropped";
      }
      logger.warn("update of a peer rejected", { from, document: update.name, error: error.message });
      peer.link.close("update-refused");
      return undefined;
    }
  }

  #leave(name: string): void {
    this.#full.set(name, this.#deps.clock.nowMs() + fullDocumentMs);
    if (this.#full.size > this.#deps.limits.maxRefusedDocuments) this.#full.deleteOldest();
  }

  #refuse(name: string): void {
    this.#refused.add(name);
    if (this.#refused.size <= this.#deps.limits.maxRefusedDocuments) return;
    for (const oldest of this.#refused) {
      this.#refused.delete(oldest);
      break;
    }
  }
}

export interface HeldUpdate extends DocumentUpdate {
  readonly committedWallMs: number;
}

interface Held {
  readonly updates: HeldUpdate[];
  bytes: number;
}

/** Cost of a held update next to its bytes, so that empty ones are bounded too. */
const overheadBytes = 64;

/**
 * Changes that arrived before those they follow on, while a diff for these is in progress. Without them the receiver
 * would ask again and again for what a busy writer has written meanwhile. The newest are kept, because the diff brings
 * the oldest.
 */
export class HeldUpdates {
  readonly #limits: { readonly maxHeldBytesPerDocument: number; readonly maxHeldBytes: number };
  readonly #held = new Map<string, Held>();
  #bytes = 0;

  constructor(limits: { readonly maxHeldBytesPerDocument: number; readonly maxHeldBytes: number }) {
    this.#limits = limits;
  }

  get byteLength(): number {
    return this.#bytes;
  }

  hold(update: HeldUpdate): void {
    const held = this.#held.get(update.name) ?? { updates: [], bytes: 0 };
    this.#held.set(update.name, held);
    held.updates.push(update);
    const lengthBytes = update.bytes.length + overheadBytes;
    held.bytes += lengthBytes;
    this.#bytes += lengthBytes;
    const { maxHeldBytes, maxHeldBytesPerDocument } = this.#limits;
    while (held.updates.length > 0 && (held.bytes > maxHeldBytesPerDocument || this.#bytes > maxHeldBytes)) {
      const length = held.updates.shift()!.bytes.length + overheadBytes;
      held.bytes -= length;
      this.#bytes -= length;
    }
    if (held.updates.length === 0) this.#held.delete(update.name);
  }

  /** Takes out a document's held updates, in the order of its writer. */
  take(name: string): readonly HeldUpdate[] {
    const held = this.#held.get(name);
    if (held === undefined) return [];
    this.#held.delete(name);
    this.#bytes -= held.bytes;
    return held.updates.sort((a, b) => a.from - b.from);
  }
}
