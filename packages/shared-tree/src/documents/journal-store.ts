import { type Cancel, type Clock, EspalierError } from "@espalier/core";
import {
  type ApplyOutcome,
  DocumentFullError,
  type DocumentState,
  type DocumentUpdate,
  type Origin,
} from "@espalier/mesh";
import { type Doc, encodeStateVector } from "yjs";
import type { JournalFeed, JournalObserver, JournalStats, OwnJournalObserver } from "./journal.ts";
import { diffJournal, JournalDocument, readStateVector } from "./journal-document.ts";
import { journalName, maxDocumentNameLength, parseJournalName } from "./journal-log.ts";
import { OwnJournal } from "./own-journal.ts";
import { type JournalUpdate, readJournalUpdate } from "./read-journal-update.ts";
import { ReplicaJournal } from "./replica-journal.ts";
import { SharedDocuments } from "./shared-documents.ts";

const mebibyte = 1_048_576;

/** Bounds of a journal store. An update that would exceed one is refused whole. */
export type JournalLimits = Readonly<typeof defaultJournalLimits>;

export const defaultJournalLimits = {
  /** One update in bytes. */
  maxUpdateBytes: 4 * mebibyte,
  /** Journals of other routers, kept ones of dead routers included. */
  maxDocuments: 512,
  /** Bytes of one journal of another router. */
  maxDocumentBytes: 256 * mebibyte,
  /** Size in bytes at which the own journal has all feeds checkpointed, which shortens it. */
  maxOwnBytes: 128 * mebibyte,
  /** Bytes of the own journal at most. Beyond it the oldest facts go; routers that lack them ask for a state. */
  maxHeldBytes: 192 * mebibyte,
  /** Feeds that one journal declares at a time, and likewise claims. */
  maxFeeds: 16_384,
  /** Bytes of memory for the own journal's placement items. Beyond it the oldest go. */
  maxPlacementBytes: 16 * mebibyte,
  /** How many routers with dropped journals are remembered. Beyond it the oldest are forgotten. */
  maxDroppedRouters: 4_096,
};

/** The error for updates of others that cannot be applied. */
function refused(message: string, cause?: unknown): EspalierError {
  return new EspalierError("mesh_update_refused", message, { cause });
}

/**
 * @param failed called before it throws
 * @throws EspalierError `mesh_update_refused` when `read` throws anything
 */
function readOrRefuse<Read>(name: string, read: () => Read, failed = (): void => {}): Read {
  try {
    return read();
  } catch (cause) {
    failed();
    throw refused(`${name}: ${cause instanceof Error ? cause.message : "unreadable"}`, cause);
  }
}

export interface JournalStoreOptions {
  /** This epoch of this router. */
  readonly origin: Origin;
  readonly clock: Clock;
  /** Journals of other pools are ignored. Default: `default`. */
  readonly pool?: string;
  readonly limits?: Partial<JournalLimits>;
  readonly ownObserver?: OwnJournalObserver;
}

type UpdateListener = (update: DocumentUpdate, isOwn: boolean) => void;

/**
 * All journals that this router has, as Yjs documents: its own, those of living routers, and those of dead ones that
 * are still needed. Other documents are shared along with them.
 *
 * @throws RangeError for an origin that makes no name
 */
export class Journals {
  readonly #pool: string;
  readonly #limits: JournalLimits;
  readonly #replicas = new Map<string, ReplicaJournal>();
  readonly #dropped: DroppedJournals;
  readonly #shared = new SharedDocuments((update, isOwn) => this.#tell(update, isOwn));
  readonly #updateListeners = new Set<UpdateListener>();
  readonly #unknownListeners = new Set<(name: string) => void>();
  readonly #observers = new Set<JournalObserver>();
  readonly #own: OwnJournal;

  constructor({ origin, clock, pool = "default", limits = {}, ownObserver: observer }: JournalStoreOptions) {
    this.#pool = pool;
    this.#limits = { ...defaultJournalLimits, ...limits };
    this.#dropped = new DroppedJournals(this.#limits.maxDroppedRouters);
    this.#own = new OwnJournal({
      ...{ document: this.#begin(origin), clock, ...this.#limits, observer },
      onCommit: (update) => this.#tell(update, true),
    });
  }

  get own(): OwnJournal {
    return this.#own;
  }

  /** Begins an own journal of a later epoch; the old one is dropped. */
  restart(epoch: number): void {
    const { origin } = this.#own;
    if (epoch <= origin.epoch) throw new RangeError(`epoch ${epoch} is not later than ${origin.epoch}`);
    this.#own.restart(this.#begin({ router: origin.router, epoch }));
    this.#dropped.add(origin);
  }

  /** The router's highest known epoch, dropped journals included; 0 for none. */
  highestEpoch(router: string): number {
    let highest = this.#dropped.epochOf(router);
    for (const origin of [this.#own.origin, ...this.origins()]) {
      if (origin.router === router) highest = Math.max(highest, origin.epoch);
    }
    return highest;
  }

  /** Origins of the journals of others. */
  origins(): readonly Origin[] {
    return Array.from(this.#replicas.values(), ({ document }) => document.origin);
  }

  /**
   * Drops a journal for good: from now on it is refused, and so is every earlier one of the same router.
   *
   * @throws RangeError for the own journal
   */
  drop(origin: Origin): void {
    if (origin.router === this.#own.origin.router && origin.epoch >= this.#own.origin.epoch) {
      throw new RangeError("the own journal cannot be dropped");
    }
    this.#dropped.add(origin);
    for (const { document } of [...this.#replicas.values()]) {
      if (this.#dropped.has(document.origin)) this.#forget(document);
    }
  }

  /** Of any journal, the own one included. */
  feedsOf(origin: Origin): Iterable<JournalFeed> {
    const name = journalName(this.#pool, origin);
    return name === this.#own.name ? this.#own.feeds() : (this.#replicas.get(name)?.feeds() ?? []);
  }

  stats(): JournalStats {
    let byteLength = this.#own.document.byteLength;
    for (const { document } of this.#replicas.values()) byteLength += document.byteLength;
    return {
      documents: 1 + this.#replicas.size,
      byteLength,
      ownFactItems: this.#own.factItems,
      ownPlacementItems: this.#own.placementItems,
      ownBytes: this.#own.document.byteLength,
    };
  }

  observe(observer: JournalObserver): Cancel {
    this.#observers.add(observer);
    return () => this.#observers.delete(observer);
  }

  onUpdate(listener: UpdateListener): Cancel {
    this.#updateListeners.add(listener);
    return () => this.#updateListeners.delete(listener);
  }

  /** Calls the listener for a document that is no journal and not attached, before it decides on an update of it. */
  onUnknown(listener: (name: string) => void): Cancel {
    this.#unknownListeners.add(listener);
    return () => this.#unknownListeners.delete(listener);
  }

  /**
   * Lets a document that is no journal be replicated and watched. Its updates have no clocks.
   *
   * @throws RangeError for the name of a journal, one that is taken, and beyond 64 documents
   */
  attachShared(name: string, doc: Doc): Cancel {
    if (name.startsWith("journal/") || name.length > maxDocumentNameLength) throw new RangeError(`${name} as a name`);
    return this.#shared.attach(name, doc);
  }

  names(): string[] {
    return [this.#own.name, ...this.#replicas.keys(), ...this.#shared.names];
  }

  list(): readonly DocumentState[] {
    return this.names().map((name) => this.state(name)!);
  }

  state(name: string): DocumentState | undefined {
    const document = this.#document(name);
    if (document === undefined) return this.#shared.state(name);
    const { origin, clock, byteLength } = document;
    return { name, origin, clock, byteLength };
  }

  stateVector(name: string): Uint8Array {
    const doc = this.#doc(name);
    return doc === undefined ? Uint8Array.of(0) : encodeStateVector(doc);
  }

  diff(name: string, stateVector: Uint8Array, maxBytes: number): Generator<DocumentUpdate, void, undefined> {
    const document = this.#document(name);
    const clocks = readStateVector(stateVector);
    if (document === undefined) return this.#shared.diff(name, stateVector);
    const from = clocks.get(document.client) ?? 0;
    return diffJournal(() => (this.#document(name) === document ? document : undefined), from, maxBytes);
  }

  /** The store takes over `update.bytes`: observers get views of them. */
  apply(update: DocumentUpdate): ApplyOutcome {
    const { name, bytes } = update;
    if (bytes.length > this.#limits.maxUpdateBytes) throw refused(`${name}: an update of ${bytes.length} bytes`);
    const origin = parseJournalName(this.#pool, name);
    if (origin === undefined) return this.#applyShared(name, bytes);
    if (this.#dropped.has(origin)) return "dropped";
    if (name === this.#own.name) return this.#checkOwn(update);
    const known = this.#replicas.get(name);
    const clock = known?.document.clock ?? 0;
    if (update.to <= clock) return "duplicate";
    if (update.from > clock) return "gap";
    if (known === undefined && this.#replicas.size >= this.#limits.maxDocuments)
      throw new DocumentFullError("too many journals");
    const replica = known ?? new ReplicaJournal(new JournalDocument(name, origin, false));
    const read = this.#check(update, replica, clock);
    // Should Yjs ever apply it otherwise than it was read, the journal is fetched again.
    readOrRefuse(
      name,
      () => replica.document.apply(read, bytes),
      () => this.#forget(replica.document),
    );
    this.#replicas.set(name, replica);
    replica.take(read, [...this.#observers]);
    this.#tell(update, false);
    return "applied";
  }

  /** @throws EspalierError `mesh_update_refused` for what its writer cannot have written, or `DocumentFullError` */
  #check({ name, from, to, bytes }: DocumentUpdate, replica: ReplicaJournal, clock: number): JournalUpdate {
    const { maxDocumentBytes, maxFeeds } = this.#limits;
    if (replica.document.byteLength + bytes.length > maxDocumentBytes)
      throw new DocumentFullError(`${name} is too large`);
    const read = readOrRefuse(name, () => readJournalUpdate(bytes, replica.document.client, clock));
    if (read.from !== from || read.to !== to) throw refused(`${name}: an update that is not what its frame says`);
    if (!replica.hasCapacityFor(read, maxFeeds)) throw new DocumentFullError(`${name} has too many feeds`);
    return read;
  }

  #forget(document: JournalDocument): void {
    document.destroy();
    if (!this.#replicas.delete(document.name)) return;
    for (const observer of [...this.#observers]) observer.journalDropped(document.origin);
  }

  /** Other routers have of the own journal only what this router has written. */
  #checkOwn({ name, to }: DocumentUpdate): ApplyOutcome {
    if (to > this.#own.document.clock) throw refused(`${name} has another writer`);
    return "duplicate";
  }

  #applyShared(name: string, bytes: Uint8Array): ApplyOutcome {
    if (this.#shared.doc(name) === undefined && name.length <= maxDocumentNameLength) {
      for (const listener of [...this.#unknownListeners]) listener(name);
    }
    if (this.#shared.doc(name) === undefined) return "dropped";
    return readOrRefuse(name, () => this.#shared.apply(name, bytes));
  }

  #begin(origin: Origin): JournalDocument {
    const name = journalName(this.#pool, origin);
    if (parseJournalName(this.#pool, name) === undefined) throw new RangeError(`${name} is not a journal name`);
    return new JournalDocument(name, origin, true);
  }

  #document(name: string): JournalDocument | undefined {
    return name === this.#own.name ? this.#own.document : this.#replicas.get(name)?.document;
  }

  #doc(name: string): Doc | undefined {
    return this.#document(name)?.doc ?? this.#shared.doc(name);
  }

  #tell(update: DocumentUpdate, isOwn: boolean): void {
    for (const listener of [...this.#updateListeners]) listener(update, isOwn);
  }
}

/** Remembers which journals were abandoned for good: the latest epoch of each router, which covers all before. */
export class DroppedJournals {
  readonly #epochs = new Map<string, number>();
  readonly #maxRouters: number;

  constructor(maxRouters: number) {
    this.#maxRouters = maxRouters;
  }

  /** The latest dropped epoch of a router; 0 for none. */
  epochOf(router: string): number {
    return this.#epochs.get(router) ?? 0;
  }

  has({ router, epoch }: Origin): boolean {
    return this.#epochs.has(router) && epoch <= this.epochOf(router);
  }

  /** When there are too many, forgets the router whose latest drop is oldest. */
  add({ router, epoch }: Origin): void {
    const latest = Math.max(epoch, this.epochOf(router));
    this.#epochs.delete(router);
    this.#epochs.set(router, latest);
    if (this.#epochs.size <= this.#maxRouters) return;
    for (const oldest of this.#epochs.keys()) {
      this.#epochs.delete(oldest);
      return;
    }
  }
}
