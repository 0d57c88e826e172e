import {
  applyUpdate,
  ContentAny,
  ContentBinary,
  type ContentDeleted,
  createID,
  Doc,
  findIndexSS,
  type GC,
  getItemCleanEnd,
  getItemCleanStart,
  Item,
  type Transaction,
} from "yjs";
import type { Origin } from "../origin.ts";
import { type LogValue, logName } from "./journal-log.ts";
import { journalClient } from "./journal-name.ts";
import type { ClockRange, JournalUpdate } from "./read-journal-update.ts";

/** Memory that an item takes besides its content, about: what Yjs keeps for it, measured on Node 20. */
export const itemOverheadBytes = 420;

/**
 * The Yjs document of one journal: a single array to whose end one client adds. Because nothing else is in it, deleted
 * items that stand together merge into one struct, so its size depends on what is live and not on what has been.
 */
export class JournalDocument {
  readonly name: string;
  readonly origin: Origin;
  readonly client: number;
  readonly doc: Doc;
  liveItems = 0;
  /** Bytes of the values of live items. */
  #contentBytes = 0;
  /** Rises with every deletion, so that whoever sends the document in pieces knows of deletions between two of them. */
  deletionCount = 0;

  /** @param isOwn whether this replica writes it; another client's number would look to Yjs like a second writer */
  constructor(name: string, origin: Origin, isOwn: boolean) {
    this.name = name;
    this.origin = origin;
    this.client = journalClient(name);
    this.doc = new Doc({ gc: true });
    this.doc.clientID = isOwn ? this.client : (this.client + 1) >>> 0;
    this.doc.getArray(logName);
  }

  get clock(): number {
    const last = this.structs.at(-1);
    return last === undefined ? 0 : last.id.clock + last.length;
  }

  /** In the order of their clocks, without holes. */
  get structs(): readonly (Item | GC)[] {
    return this.doc.store.clients.get(this.client) ?? [];
  }

  get byteLength(): number {
    return this.#contentBytes + this.liveItems * itemOverheadBytes;
  }

  /** The struct that has a clock, and those after it. */
  *structsFrom(clock: number): Generator<Item | GC, void, undefined> {
    for (let next = clock; next < this.clock; ) {
      const struct = this.structs[findIndexSS(this.doc.store.clients.get(this.client)!, next)]!;
      yield struct;
      next = struct.id.clock + struct.length;
    }
  }

  /** Live binary items; what is added meanwhile is among them. */
  *binaryItems(): Generator<{ readonly clock: number; readonly bytes: Uint8Array }, void, undefined> {
    for (const struct of this.structsFrom(0)) {
      if (struct instanceof Item && struct.content instanceof ContentBinary) {
        yield { clock: struct.id.clock, bytes: struct.content.content };
      }
    }
  }

  /**
   * Adds values at the end and deletes items, in one transaction.
   *
   * @param deletions clocks of live items
   * @returns the Yjs update
   */
  write(values: readonly LogValue[], deletions: readonly number[]): Uint8Array {
    let update: Uint8Array = new Uint8Array();
    const listener = (bytes: Uint8Array): void => {
      update = bytes;
    };
    const before = this.clock;
    for (const clock of deletions) this.#discount({ from: clock, to: clock + 1 });
    this.doc.on("update", listener);
    try {
      this.doc.transact((transaction) => {
        for (const clock of deletions) deleteItem(transaction, this.client, clock);
        for (const content of contentsOf(values)) this.#push(transaction, content);
      });
    } finally {
      this.doc.off("update", listener);
    }
    this.#count(before);
    return update;
  }

  /** Takes an update that `readJournalUpdate` has found good, and that goes on where this replica is. */
  apply(update: JournalUpdate, bytes: Uint8Array): void {
    const before = this.clock;
    for (const range of update.deletions) this.#discount(range);
    applyUpdate(this.doc, bytes);
    this.#count(before);
    const { store } = this.doc;
    if (this.clock !== Math.max(before, update.to) || store.pendingStructs !== null || store.pendingDs !== null) {
      throw new Error(`${this.name} did not take an update as it was read`);
    }
  }

  destroy(): void {
    this.doc.destroy();
  }

  /** What `Y.Array.push` does, without its walk along the whole array to find the end. */
  #push(transaction: Transaction, content: ContentBinary | ContentAny): void {
    const log = this.doc.getArray(logName);
    const last = this.structs.at(-1);
    const left = last instanceof Item ? last : null;
    const id = createID(this.client, this.clock);
    new Item(id, left, left === null ? null : left.lastId, null, null, log, null, content).integrate(transaction, 0);
  }

  /** Takes account of live items from a clock on. */
  #count(clock: number): void {
    for (const struct of this.structsFrom(clock)) {
      if (!struct.deleted) this.#addContent(struct as Item, clock, Number.POSITIVE_INFINITY, 1);
    }
  }

  /** Takes account of live items that are about to be deleted. */
  #discount({ from, to }: ClockRange): void {
    this.deletionCount += 1;
    for (const struct of this.structsFrom(from)) {
      if (struct.id.clock >= to) return;
      if (!struct.deleted) this.#addContent(struct as Item, from, to, -1);
    }
  }

  #addContent(item: Item, from: number, to: number, sign: 1 | -1): void {
    const { content } = item;
    if (content instanceof ContentBinary) {
      this.#countValue(content.content.length, sign);
      return;
    }
    const values = (content as ContentAny | ContentDeleted).getContent() as unknown[];
    for (const [offset, value] of values.entries()) {
      const clock = item.id.clock + offset;
      if (clock >= from && clock < to) this.#countValue(Buffer.byteLength(JSON.stringify(value)), sign);
    }
  }

  #countValue(sizeBytes: number, sign: 1 | -1): void {
    this.liveItems += sign;
    this.#contentBytes += sign * sizeBytes;
  }
}

/** Statements that stand together are one item: Yjs would merge them into one, in time quadratic in their number. */
function* contentsOf(values: readonly LogValue[]): Generator<ContentBinary | ContentAny, void, undefined> {
  let statements: LogValue[] = [];
  for (const value of values) {
    if (!(value instanceof Uint8Array)) {
      statements.push(value);
      continue;
    }
    if (statements.length > 0) yield new ContentAny(statements);
    statements = [];
    yield new ContentBinary(value);
  }
  if (statements.length > 0) yield new ContentAny(statements);
}

function deleteItem(transaction: Transaction, client: number, clock: number): void {
  const id = createID(client, clock);
  getItemCleanStart(transaction, id);
  getItemCleanEnd(transaction, transaction.doc.store, id).delete(transaction);
}
