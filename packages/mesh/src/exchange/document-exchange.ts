import { ByteWriter, type Cancel, type Clock, type Logger, type Random, type Scheduler } from "@espalier/common";
import type { ReplicatedDocuments } from "@espalier/replication";
import type { Link } from "../link/link.ts";
import type { BulkReceiver } from "./bulk-receiver.ts";
import type { BulkSender } from "./bulk-sender.ts";
import type { OpenMessage, UpdateMessage, VectorMessage, WantMessage } from "./document-frames.ts";
import { DocumentIntake } from "./document-intake.ts";
import { markOf } from "./document-marks.ts";
import { DocumentTeller } from "./document-teller.ts";
import { DocumentWants } from "./document-wants.ts";
import type { ExchangeLimits } from "./exchange-limits.ts";
import type { ExchangeMeter } from "./exchange-meter.ts";
import { type HeldUpdate, HeldUpdates } from "./held-updates.ts";
import type { MeshPeers } from "./mesh-peers.ts";
import { createPeerDocuments, type PeerDocument, type PeerDocuments } from "./peer-documents.ts";

/** Stands for the mark of a shared document of which a peer has something that it has not told the mark of. */
const unheardMark = -1;
/** What came by a diff is told to those who depend on this router after so long, together with what else came. */
const tellDelayMs = 20;

export interface DocumentExchangeDeps {
  readonly documents: ReplicatedDocuments;
  readonly peers: MeshPeers;
  readonly sender: BulkSender;
  readonly receiver: BulkReceiver;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly logger: Logger;
  readonly limits: ExchangeLimits;
  readonly meter: ExchangeMeter;
  canServe(): boolean;
}

/**
 * Keeps documents equal over links. Own changes go to every peer at once; those of others only to peers that have no
 * link to their writer. Who lacks something, by a gap or by what a peer tells, asks for a diff.
 */
export class DocumentExchange {
  readonly #deps: DocumentExchangeDeps;
  readonly #peers = new Map<Link, PeerDocuments>();
  readonly #teller: DocumentTeller;
  readonly #wants: DocumentWants;
  readonly #held: HeldUpdates;
  readonly #intake: DocumentIntake;
  #unlisten: Cancel = () => {};
  #cancelTell: Cancel | undefined;

  constructor(deps: DocumentExchangeDeps) {
    this.#deps = deps;
    this.#teller = new DocumentTeller(deps);
    this.#held = new HeldUpdates(deps.limits);
    this.#intake = new DocumentIntake(deps);
    this.#wants = new DocumentWants({
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
      this.#teller.send({ ...update, committedWallMs }, this.#peers.values(), false);
    });
  }

  stop(): void {
    this.#unlisten();
    this.#cancelTell?.();
  }

  linkUp(link: Link): void {
    const peer = createPeerDocuments(link, this.#deps.clock.nowMs());
    this.#peers.set(link, peer);
    this.#teller.tell(peer, "first");
  }

  linkDown(link: Link): void {
    this.#peers.delete(link);
  }

  /** Journals are not asked for while this is set. */
  set isHeld(isHeld: boolean) {
    this.#wants.isHeld = isHeld;
    if (!isHeld) this.#wants.pump();
  }

  /** Whether all that the peers had when their links came up is here. */
  get hasReachedGoals(): boolean {
    for (const peer of this.#peers.values()) {
      if (peer.goals === undefined) return false;
      for (const [name, mark] of peer.goals) {
        const state = this.#deps.documents.state(name);
        const isPast = state?.origin !== undefined && state.clock >= mark;
        if (!isPast && this.#lacks(peer, name)) return false;
        peer.goals.delete(name);
      }
    }
    return true;
  }

  peer(link: Link): PeerDocuments | undefined {
    return this.#peers.get(link);
  }

  /** Asks for what may be asked for again by now. */
  retry(): void {
    for (const peer of this.#peers.values()) {
      for (const name of peer.goals?.keys() ?? []) if (this.#lacks(peer, name)) this.#wants.note(name, "retry");
    }
    this.#wants.pump();
  }

  /** Tells peers what they may lack; now and then everything. */
  tell(): void {
    const { clock, limits } = this.#deps;
    const wholeBeforeMs = clock.nowMs() - limits.wholeVectorPeriodMs;
    this.#teller.prune(this.#peers.values());
    for (const peer of this.#peers.values()) {
      this.#teller.tell(peer, peer.wholeVectorAtMs <= wholeBeforeMs ? "whole" : "changed");
    }
  }

  drained(link: Link): void {
    const peer = this.#peers.get(link);
    if (!peer?.isDirty) return;
    peer.isDirty = false;
    this.#teller.tell(peer, "changed");
  }

  /** @throws RangeError for a number that is out of bounds */
  open(link: Link, { number, name, documentKind }: OpenMessage): void {
    const peer = this.#peers.get(link);
    if (peer === undefined) return;
    if (number >= this.#deps.limits.maxDocumentNumbers) throw new RangeError("a document's number is too large");
    const before = peer.names.get(number);
    if (before !== undefined && before.name !== name) {
      for (const marks of [peer.known, peer.taken, peer.goals]) marks?.delete(before.name);
    }
    peer.names.set(number, { name, kind: documentKind });
    if (documentKind === "own") peer.ownName = name;
  }

  /** @throws RangeError for a number without a name */
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
    if ((peer.known.get(name) ?? 0) < to) peer.known.set(name, to);
    if (to <= (this.#deps.documents.state(name)?.clock ?? 0)) return;
    const outcome = this.#intake.take(peer, update);
    if (outcome === "applied") this.#relay(update);
    if (outcome !== "gap") return;
    this.#held.hold(update);
    this.#wants.note(name, "gap");
  }

  /** @throws RangeError for a number without a name */
  vector(link: Link, { entries, isFirst, canServe }: VectorMessage): void {
    const peer = this.#peers.get(link);
    if (peer === undefined) return;
    peer.canServe = canServe;
    const lacking: string[] = [];
    if (isFirst) peer.goals = new Map();
    for (const { number, mark } of entries) {
      const { name, kind } = nameOf(peer, number);
      const isShared = kind === "shared";
      peer.known.set(name, isShared ? mark : Math.max(mark, peer.known.get(name) ?? 0));
      if (!this.#lacks(peer, name)) continue;
      if (isFirst) peer.goals?.set(name, mark);
      lacking.push(name);
    }
    for (const name of lacking) this.#wants.note(name, "vector");
  }

  want(link: Link, { request, name, stateVector }: WantMessage): void {
    const { documents, sender } = this.#deps;
    const peer = this.#peers.get(link);
    if (peer === undefined) return;
    if (documents.state(name) === undefined) sender.refuse(link, request, "none");
    else sender.answer(link, { request, kind: "piece", messages: this.#pieces(name, stateVector) });
  }

  *#pieces(name: string, stateVector: Uint8Array): Generator<Uint8Array, void, undefined> {
    const { documents, limits } = this.#deps;
    const writer = new ByteWriter();
    for (const { from, to, bytes } of documents.diff(name, stateVector, limits.bulkFrameBytes)) {
      writer.reset();
      writer.varint(from);
      writer.varint(to - from);
      writer.raw(bytes);
      yield writer.copy();
    }
  }

  #updateShared(peer: PeerDocuments, update: HeldUpdate): void {
    const { documents, peers } = this.#deps;
    const before = markOf(documents, update.name);
    const outcome = this.#intake.take(peer, update);
    if (outcome === "gap") {
      peer.known.set(update.name, unheardMark);
      peer.taken.delete(update.name);
      this.#wants.note(update.name, "gap");
    }
    if (outcome !== "applied" || markOf(documents, update.name) === before) return;
    const from = peer.link.peer.origin.router;
    const others = [...this.#peers.values()].filter(
      ({ link }) => link !== peer.link && !peers.hears(link.peer.origin.router, from),
    );
    this.#teller.send(update, others, true);
  }

  /** Passes on what its writer cannot tell a peer itself. Where it came from is known to have it. */
  #relay(update: HeldUpdate): void {
    const { documents, peers } = this.#deps;
    const writer = documents.state(update.name)?.origin?.router;
    if (writer === undefined) return;
    const others = [...this.#peers.values()].filter(({ link }) => {
      const { router } = link.peer.origin;
      return router !== writer && !peers.hears(router, writer);
    });
    this.#teller.send(update, others, true);
  }

  #lacks(peer: PeerDocuments, name: string): boolean {
    const { documents, peers } = this.#deps;
    const mark = peer.known.get(name);
    if (mark === undefined || this.#intake.isRefused(name)) return false;
    const state = documents.state(name);
    const isShared = state === undefined ? isSharedName(peer, name) : state.origin === undefined;
    if (isShared) {
      if (mark === markOf(documents, name)) peer.taken.set(name, mark);
      return peer.taken.get(name) !== mark;
    }
    const { self } = peers;
    if (state?.origin?.router === self.router && state.origin.epoch === self.epoch) return false;
    return mark > (state?.clock ?? 0);
  }

  /** Applies what was held, as far as it follows on. */
  #drain(name: string): void {
    const [anyPeer] = this.#peers.values();
    let isFollowing = anyPeer !== undefined;
    for (const update of this.#held.take(name)) {
      if (isFollowing && update.to > (this.#deps.documents.state(name)?.clock ?? 0)) {
        const sender = [...this.#peers.values()].find(({ known }) => (known.get(name) ?? 0) >= update.to);
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
    this.#cancelTell ??= this.#deps.scheduler.after(tellDelayMs, () => {
      this.#cancelTell = undefined;
      for (const peer of this.#peers.values()) this.#teller.tell(peer, "changed");
    });
  }
}

function nameOf(peer: PeerDocuments, number: number): PeerDocument {
  const document = peer.names.get(number);
  if (document === undefined) throw new RangeError(`a document's number ${number} has no name`);
  return document;
}

function isSharedName(peer: PeerDocuments, name: string): boolean {
  for (const document of peer.names.values()) if (document.name === name) return document.kind === "shared";
  return false;
}
