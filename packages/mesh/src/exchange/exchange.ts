import { type Cancel, EspalierError } from "@espalier/core";
import type { Link, ProcessPorts } from "../link/link.ts";
import { type Origin, originKey } from "../origin.ts";
import type { FoldStatement, ReplicaPorts } from "../replica-ports.ts";
import type { Channel } from "../wire/link-frames.ts";
import { BulkReceiver, BulkSender, decodeBulkMessage } from "./bulk-transfer.ts";
import { DocumentExchange } from "./document-exchange.ts";
import {
  type DocumentMessage,
  decodeDocumentMessage,
  encodeDocumentMessage,
  type StatementsMessage,
  type WantMessage,
} from "./document-frames.ts";
import {
  createExchangeMeter,
  defaultExchangeLimits,
  type ExchangeLimits,
  type ExchangeParts,
  type MeshPeers,
} from "./exchange-parts.ts";
import { PeerFault, readFromPeer } from "./peer-fault.ts";
import { noteCapability, RelayCarrier } from "./relay-carrier.ts";
import { SnapshotExchange } from "./snapshot-exchange.ts";

/** How often requests without an answer are checked. */
const sweepPeriodMs = 250;

interface ExchangeDeps extends ProcessPorts {
  readonly replica: ReplicaPorts;
  readonly peers: MeshPeers;
  readonly limits?: Partial<ExchangeLimits>;
  /** Whether more peers may still be found, or come back. */
  mayComeMore(): boolean;
}

/**
 * Carries what a replica shares over links, and passes what arrives to the replica.
 *
 * A router whose replica knows no journal but its own joins: it asks one peer for everything before it asks for
 * journals.
 */
export class Exchange {
  readonly #deps: ExchangeDeps;
  readonly #limits: ExchangeLimits;
  readonly #meter;
  readonly #sender: BulkSender;
  readonly #receiver: BulkReceiver;
  readonly #documents: DocumentExchange;
  readonly #snapshots: SnapshotExchange;
  readonly #statements: StatementExchange;
  readonly #load: RelayCarrier;
  readonly #notes: RelayCarrier;
  readonly #links = new Set<Link>();
  /** Links of which the log has said that their requests cannot be read. */
  readonly #unreadable = new WeakSet<Link>();
  #timers: Cancel[] = [];

  constructor(deps: ExchangeDeps) {
    this.#deps = deps;
    this.#limits = { ...defaultExchangeLimits, ...deps.limits };
    this.#meter = createExchangeMeter(deps.meter);
    const { replica } = deps;
    const parts = { ...deps, limits: this.#limits, meter: this.#meter };
    this.#sender = new BulkSender({ ...parts, failed: (link, error) => this.#answerFailed(link, error) });
    this.#receiver = new BulkReceiver(parts);
    const bulk = { ...parts, sender: this.#sender, receiver: this.#receiver };
    const canServe = (): boolean => this.#snapshots.hasJoined;
    this.#documents = new DocumentExchange({ ...bulk, documents: replica.documents, canServe });
    const isJoining = replica.documents.list().every(({ origin }) => isOwn(deps.peers, origin));
    const join = {
      offer: (link: Link) => this.#offer(link),
      mayComeMore: () => this.#mayComeMore(),
      joined: () => this.#joined(),
    };
    this.#snapshots = new SnapshotExchange({ ...bulk, ...join, snapshots: replica.snapshots }, isJoining);
    this.#documents.isHeld = isJoining;
    this.#statements = new StatementExchange(parts);
    this.#load = new RelayCarrier({ ...parts, plane: replica.load, channel: "load", kind: "load" });
    const notes = { channel: "notes", kind: "note", capability: noteCapability, outlivesWriters: true } as const;
    this.#notes = new RelayCarrier({ ...parts, ...notes, plane: replica.notes });
  }

  /** What a router that has just come waits for, by name; each is true once it is here. */
  readonly conditions = {
    snapshot: (): boolean => this.#snapshots.hasJoined,
    journals: (): boolean => this.#documents.hasReachedGoals,
    gauges: (): boolean => {
      const { load } = this.#deps.replica;
      return [...this.#links].every(({ peer }) => load.hasAllOf(peer.origin));
    },
  };

  start(): void {
    const { scheduler } = this.#deps;
    this.#documents.start();
    this.#load.start();
    this.#notes.start();
    this.#snapshots.start();
    this.#timers = [
      scheduler.every(sweepPeriodMs, () => this.#sweep()),
      scheduler.every(this.#limits.vectorPeriodMs, () => this.#documents.advertise()),
      scheduler.every(this.#limits.statementPeriodMs, () => this.#statements.tell()),
    ];
  }

  stop(): void {
    for (const cancel of this.#timers.splice(0)) cancel();
    this.#documents.stop();
    this.#load.stop();
    this.#notes.stop();
    this.#snapshots.stop();
    this.#sender.stop();
  }

  linkUp(link: Link): void {
    this.#links.add(link);
    this.#sender.linkUp(link);
    this.#receiver.linkUp(link);
    this.#load.linkUp(link);
    this.#notes.linkUp(link);
    this.#documents.linkUp(link);
    this.#statements.linkUp(link);
    this.#snapshots.linkUp(link);
  }

  /** First no more is asked of the link; then those that wait for answers learn that none will come. */
  linkDown(link: Link): void {
    if (!this.#links.delete(link)) return;
    this.#load.linkDown(link);
    this.#notes.linkDown(link);
    this.#statements.linkDown(link);
    this.#documents.linkDown(link);
    this.#sender.linkDown(link);
    this.#receiver.linkDown(link);
    this.#snapshots.linkDown(link);
  }

  drained(link: Link, channel: Channel): void {
    if (!this.#links.has(link)) return;
    if (channel === "load") this.#load.drained(link);
    if (channel === "notes") this.#notes.drained(link);
    if (channel === "documents") this.#documents.drained(link);
    if (channel !== "bulk") return;
    this.#sender.drained(link);
    this.#receiver.drained(link);
  }

  /**
   * Takes a frame of any channel but `membership`.
   *
   * @throws EspalierError `mesh_frame_invalid`: the link should be closed
   */
  frame(link: Link, channel: Exclude<Channel, "membership">, frame: Uint8Array): void {
    if (!this.#links.has(link)) return;
    try {
      if (channel === "load") this.#load.frame(link, frame);
      else if (channel === "notes") this.#notes.frame(link, frame);
      else if (channel === "documents")
        this.#document(
          link,
          readFromPeer(() => decodeDocumentMessage(frame)),
        );
      else this.#bulk(link, frame);
    } catch (error) {
      const isInvalid = error instanceof EspalierError && error.code === "mesh_frame_invalid";
      if (!isInvalid && !(error instanceof PeerFault)) throw error;
      this.#meter.invalid(channel);
      if (isInvalid) throw error;
      const message = `A frame on channel ${channel} cannot be read: ${error.message}.`;
      throw new EspalierError("mesh_frame_invalid", message, { cause: error });
    }
  }

  /**
   * A member's process is gone: it is down, has left, or was replaced by a later epoch. Its gauges count zero at once.
   */
  memberGone(origin: Origin): void {
    this.#deps.replica.load.originGone(origin);
  }

  /** How long a peer's latest change took to arrive; undefined before the first. */
  lagMs(link: Link): number | undefined {
    return this.#documents.peer(link)?.lagMs;
  }

  #document(link: Link, message: DocumentMessage): void {
    switch (message.kind) {
      case "open":
        this.#documents.open(link, message);
        break;
      case "update":
        this.#documents.update(link, message);
        break;
      case "vector":
        this.#documents.vector(link, message);
        this.#snapshots.pump();
        break;
      case "want":
        this.#want(link, message);
        break;
      case "cancel":
        this.#sender.cancel(link, message.request);
        break;
      case "snapshot-want":
        this.#snapshots.serve(link, message);
        break;
      case "statements":
        this.#statements.receive(link, message);
    }
  }

  #bulk(link: Link, frame: Uint8Array): void {
    const message = readFromPeer(() => decodeBulkMessage(frame));
    if (message.kind === "credit") this.#sender.granted(link, message.bytes);
    else this.#receiver.receive(link, message);
  }

  #sweep(): void {
    for (const { link, request } of this.#receiver.sweep()) {
      link.send("documents", encodeDocumentMessage({ kind: "cancel", request }));
    }
    this.#documents.retry();
    this.#snapshots.pump();
  }

  #offer(link: Link): { readonly canServe: boolean; readonly documents: number } {
    const peer = this.#documents.peer(link);
    return { canServe: peer?.canServe ?? false, documents: peer?.peerVersions.size ?? 0 };
  }

  /** More peers may still be found, or a peer has not said yet what it has. */
  #mayComeMore(): boolean {
    if (this.#deps.mayComeMore()) return true;
    return [...this.#links].some((link) => this.#documents.peer(link)?.goals === undefined);
  }

  #joined(): void {
    this.#documents.isHeld = false;
    this.#documents.advertise();
  }

  /**
   * Of a request that cannot be read the peer hears that it failed, and asks another router, or later. If the link ended,
   * it would ask again as soon as it has dialed.
   */
  #want(link: Link, message: WantMessage): void {
    try {
      this.#documents.want(link, message);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      this.#sender.refuse(link, message.request, "failed");
      this.#meter.invalid("documents");
      const from = originKey(link.peer.origin);
      if (!this.#unreadable.has(link)) this.#deps.logger.info("malformed request of a peer", { from, error });
      this.#unreadable.add(link);
    }
  }

  #answerFailed(link: Link, error: unknown): void {
    const from = originKey(link.peer.origin);
    this.#deps.logger.warn("answer to a peer failed", { from, error });
  }
}

function isOwn({ self }: MeshPeers, origin: { readonly router: string } | undefined): boolean {
  return origin === undefined || origin.router === self.router;
}

/** Statements in one frame, few enough that it does not hold up the frames behind it. */
const statementsPerFrame = 256;

interface StatementExchangeDeps extends Pick<ExchangeParts, "clock" | "limits" | "meter"> {
  readonly replica: Pick<ReplicaPorts, "statements" | "compareStatement">;
}

interface Sent {
  readonly statement: FoldStatement;
  readonly atMs: number;
}

/**
 * Sends statements about settled targets to peers, which compare them with their own state: the last defence against
 * replicas that differ without knowing it. Unchanged statements are repeated once a minute only.
 */
class StatementExchange {
  readonly #deps: StatementExchangeDeps;
  readonly #links = new Set<Link>();
  /** Links that have had no statement yet. */
  readonly #newLinks = new Set<Link>();
  #sent = new Map<string, Sent>();

  constructor(deps: StatementExchangeDeps) {
    this.#deps = deps;
  }

  linkUp(link: Link): void {
    this.#links.add(link);
    this.#newLinks.add(link);
  }

  linkDown(link: Link): void {
    this.#links.delete(link);
    this.#newLinks.delete(link);
  }

  /** Sends what is due. Called once per period. */
  tell(): void {
    if (this.#links.size === 0) return;
    const { clock, limits, replica } = this.#deps;
    const nowMs = clock.nowMs();
    const all = replica.statements().slice(0, limits.maxStatements);
    const due: FoldStatement[] = [];
    const sent = new Map<string, Sent>();
    for (const statement of all) {
      const before = this.#sent.get(statement.target);
      const isRepeat = before !== undefined && isSame(before.statement, statement);
      const isDue = !isRepeat || nowMs - before.atMs >= limits.statementRepeatMs;
      if (isDue) due.push(statement);
      sent.set(statement.target, isDue ? { statement, atMs: nowMs } : before);
    }
    this.#sent = sent;
    for (const link of this.#links) this.#send(link, this.#newLinks.has(link) ? all : due);
    this.#newLinks.clear();
  }

  receive(link: Link, { statements }: StatementsMessage): void {
    for (const statement of statements) {
      this.#deps.replica.compareStatement(statement, link.peer.origin);
    }
    this.#deps.meter.compared("received", statements.length);
  }

  #send(link: Link, statements: readonly FoldStatement[]): void {
    const { meter } = this.#deps;
    for (let at = 0; at < statements.length; at += statementsPerFrame) {
      const some = statements.slice(at, at + statementsPerFrame);
      const frame = encodeDocumentMessage({ kind: "statements", statements: some });
      if (!link.send("documents", frame)) {
        meter.dropped("statement");
        return;
      }
      meter.sent("statement", frame.length);
      meter.compared("sent", some.length);
    }
  }
}

function isSame(a: FoldStatement, b: FoldStatement): boolean {
  return (
    a.epoch === b.epoch &&
    a.sequence === b.sequence &&
    a.isComplete === b.isComplete &&
    a.blocks === b.blocks &&
    a.digest[0] === b.digest[0] &&
    a.digest[1] === b.digest[1]
  );
}
