import type { DocumentUpdate, Origin } from "@espalier/mesh";
import { writeVarUint } from "lib0/encoding";
import {
  applyUpdate,
  ContentAny,
  ContentBinary,
  type ContentDeleted,
  createID,
  Doc,
  decodeStateVector,
  findIndexSS,
  type GC,
  getItemCleanEnd,
  getItemCleanStart,
  Item,
  type Transaction,
  UpdateEncoderV1,
} from "yjs";
import { journalClient, type LogValue, logName } from "./journal-log.ts";
import type { ClockRange, JournalUpdate } from "./read-journal-update.ts";

/** Approximate memory of an item next to its content: what Yjs keeps for it, measured on Node 20. */
export const itemOverheadBytes = 420;

/**
 * The Yjs document of one journal: a single array, to whose end one client adds. It has nothing else in it, so adjacent
 * deleted items merge into one struct, and its size depends on what is live, not on what has been.
 */
export class JournalDocument {
  readonly name: string;
  readonly origin: Origin;
  readonly client: number;
  readonly doc: Doc;
  liveItems = 0;
  /** Bytes of the values of live items. */
  #contentBytes = 0;
  /** Rises with every deletion. A sender in pieces sees by it that items were deleted between two pieces. */
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

  /** Applies an update that `readJournalUpdate` has accepted and that follows on this replica's state. */
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

  /** Counts live items from a clock on. */
  #count(clock: number): void {
    for (const struct of this.structsFrom(clock)) {
      if (!struct.deleted) this.#addContent(struct as Item, clock, Number.POSITIVE_INFINITY, 1);
    }
  }

  /** Subtracts live items that are about to be deleted. */
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

/** Adjacent statements are one item: Yjs would merge them into one, in time quadratic in their number. */
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

/** Upper bound of a struct's wire bytes without its content. */
const structOverheadBytes = 24;

/** @throws RangeError for bytes that are no state vector */
export function readStateVector(bytes: Uint8Array): Map<number, number> {
  try {
    return decodeStateVector(bytes);
  } catch (cause) {
    throw new RangeError("a state vector that cannot be read", { cause });
  }
}

/**
 * A journal from a clock on, in updates of about `maxBytes`, cut between items. A receiver of one update has everything
 * before its end, deletions included. The first update brings all deletions up to its end. A later one brings them
 * again if the document lost items meanwhile, and otherwise only those within it. Deletions repeat what deleted structs
 * say, for receivers that skip these structs because they got the items another way since they asked.
 *
 * @param current the document, or undefined once it is gone: the updates end then
 */
export function* diffJournal(
  current: () => JournalDocument | undefined,
  fromClock: number,
  maxBytes: number,
): Generator<DocumentUpdate, void, undefined> {
  let from = fromClock;
  let deletionsSent = -1;
  for (;;) {
    const journal = current();
    if (journal === undefined || from >= journal.clock) return;
    const deletionsFrom = journal.deletionCount === deletionsSent ? from : 0;
    deletionsSent = journal.deletionCount;
    const update = encodePiece(journal, from, maxBytes, deletionsFrom);
    from = update.to;
    yield update;
  }
}

function encodePiece(journal: JournalDocument, from: number, maxBytes: number, deletionsFrom: number): DocumentUpdate {
  const { structs, client, name } = journal;
  const begin = findIndexSS(structs as (Item | GC)[], from);
  let end = begin;
  let sizeBytes = 0;
  do {
    sizeBytes += encodedBytes(structs[end]!);
    end += 1;
  } while (end < structs.length && sizeBytes + encodedBytes(structs[end]!) <= maxBytes);
  const encoder = new UpdateEncoderV1();
  const rest = encoder.restEncoder;
  writeVarUint(rest, 1);
  writeVarUint(rest, end - begin);
  encoder.writeClient(client);
  writeVarUint(rest, from);
  for (let index = begin; index < end; index++) {
    const struct = structs[index]!;
    struct.write(encoder, Math.max(0, from - struct.id.clock));
  }
  const last = structs[end - 1]!;
  const to = last.id.clock + last.length;
  const deletions = deletionsWithin(structs, deletionsFrom, to);
  writeVarUint(rest, deletions.length === 0 ? 0 : 1);
  if (deletions.length > 0) {
    writeVarUint(rest, client);
    writeVarUint(rest, deletions.length);
    for (const range of deletions) {
      writeVarUint(rest, range.from);
      writeVarUint(rest, range.to - range.from);
    }
  }
  return { name, from, to, bytes: encoder.toUint8Array() };
}

/** Clocks from `begin` to `end` (exclusive) that are deleted. */
function deletionsWithin(structs: readonly (Item | GC)[], begin: number, end: number): ClockRange[] {
  const ranges: { from: number; to: number }[] = [];
  for (let index = findIndexSS(structs as (Item | GC)[], begin); index < structs.length; index++) {
    const struct = structs[index]!;
    if (struct.id.clock >= end) break;
    if (!struct.deleted) continue;
    const from = Math.max(begin, struct.id.clock);
    const to = Math.min(end, struct.id.clock + struct.length);
    const last = ranges.at(-1);
    if (last !== undefined && last.to === from) last.to = to;
    else ranges.push({ from, to });
  }
  return ranges;
}

function encodedBytes(struct: Item | GC): number {
  if (!(struct instanceof Item)) return structOverheadBytes;
  const { content } = struct;
  if (content instanceof ContentBinary) return structOverheadBytes + content.content.length;
  if (content instanceof ContentAny) return structOverheadBytes + JSON.stringify(content.arr).length;
  return structOverheadBytes;
}
