import { attention, type EngineEventBatch, eventKind, tier } from "@espalier/prefix-index";
import type { DecodeLimits, RefusalReason } from "./event-decoder.ts";
import { DetailReader } from "./event-detail.ts";
import { readHashes, readTokens } from "./hashes-and-tokens.ts";
import type { MsgpackCursor } from "./msgpack-cursor.ts";
import {
  attentionOfSpecKind,
  eventKeys,
  eventTags,
  field,
  isStoreOnlyMedium,
  removedPositions,
  tierOfMedium,
} from "./wire-names.ts";

/** Largest signed 32-bit integer; a larger number of an event is invalid. */
const maxInt32 = 0x7fff_ffff;
/** Elements of `BlockStored` in its first version: up to `block_size`. */
const minStoredElements = 5;
const minRemovedElements = 2;

/** A tag was read but is unknown. -1 means that no tag was read. */
const unknownKind = -2;

/** The outcome of one event. */
type EventOutcome = "decoded" | "unknown" | "malformed";

/** Reads events one by one into a batch. Fields of maps may come in any order. */
export class EventReader {
  readonly #cursor: MsgpackCursor;
  readonly #batch: EngineEventBatch;
  readonly #limits: DecodeLimits;
  /** The limit that an event exceeded; the message must then be refused. */
  exceeded: RefusalReason | undefined;
  unknownMedia = 0;
  readonly #detail: DetailReader;
  readonly #removal = new RemovalTemplate();
  #hashes = 0;
  #tokens = 0;
  // The remaining fields are about one event.
  #seen = 0;
  #kind = -1;
  /** Position in the message where the event's hashes begin. */
  #hashesAt = 0;
  #hashesEnd = 0;
  #tokensEnd = 0;
  #hasParent = 0;
  #blockSize = 0;
  #tier = 0;
  #knownMedium = true;
  #isStoreOnly = false;
  #group = -1;
  #attention: number = attention.full;
  #window = 0;

  constructor(cursor: MsgpackCursor, batch: EngineEventBatch, limits: DecodeLimits) {
    this.#cursor = cursor;
    this.#batch = batch;
    this.#limits = limits;
    this.#detail = new DetailReader(cursor);
  }

  /** Starts a message. */
  reset(): void {
    this.exceeded = undefined;
    this.unknownMedia = 0;
    this.#hashes = 0;
    this.#tokens = 0;
  }

  /**
   * Reads the event at the cursor and adds a decoded one to the batch, whose arrays are large enough. After any other
   * outcome the cursor is somewhere in the event.
   */
  read(): EventOutcome {
    if (this.#readLikeLast()) return "decoded";
    this.#beginEvent();
    const cursor = this.#cursor;
    const start = cursor.at;
    const elements = cursor.readArrayHeader();
    const known = elements >= 0 ? this.#readArray(elements) : this.#readMap(cursor.readMapHeader());
    if (!known) return this.#kind === unknownKind ? "unknown" : "malformed";
    return this.#finish(start);
  }

  /** Reads a removal that differs from the last one only in its hash. */
  #readLikeLast(): boolean {
    const hashAt = this.#hashes < this.#limits.maxHashes ? this.#removal.match(this.#cursor) : -1;
    if (hashAt < 0) return false;
    const batch = this.#batch;
    reserveHashes(batch, this.#hashes + 1);
    const { view } = this.#cursor;
    batch.hashes[2 * this.#hashes] = view.getInt32(hashAt + 5);
    batch.hashes[2 * this.#hashes + 1] = view.getInt32(hashAt + 1);
    this.#hashes += 1;
    const { tier, group, knownMedium } = this.#removal;
    this.#commit(eventKind.removed, tier, group, knownMedium);
    return true;
  }

  #beginEvent(): void {
    this.#seen = 0;
    this.#kind = -1;
    this.#hashesEnd = this.#hashes;
    this.#tokensEnd = this.#tokens;
    this.#hasParent = 0;
    this.#blockSize = 0;
    this.#tier = tier.gpu;
    this.#knownMedium = true;
    this.#isStoreOnly = false;
    this.#group = -1;
    this.#attention = attention.full;
    this.#window = 0;
    this.#detail.reset();
  }

  #readArray(elements: number): boolean {
    if (elements === 0 || !this.#readTag()) return false;
    const kind = this.#kind;
    if (kind === eventKind.stored && elements < minStoredElements) return false;
    if (kind === eventKind.removed && elements < minRemovedElements) return false;
    for (let position = 1; position < elements; position++) {
      if (!this.#readField(fieldAt(kind, position))) return false;
    }
    return true;
  }

  #readMap(pairs: number): boolean {
    if (pairs < 0) return false;
    const cursor = this.#cursor;
    for (let pair = 0; pair < pairs; pair++) {
      if (!cursor.readText()) return false;
      const found = eventKeys.find(cursor.view, cursor.spanStart, cursor.spanEnd);
      if (!this.#readField(found < 0 ? field.ignored : found)) return false;
    }
    return true;
  }

  /** Also remembers a string that is no known tag. */
  #readTag(): boolean {
    const cursor = this.#cursor;
    if (!cursor.readText()) return false;
    const kind = eventTags.find(cursor.view, cursor.spanStart, cursor.spanEnd);
    this.#kind = kind < 0 ? unknownKind : kind;
    return kind >= 0;
  }

  #readField(id: number): boolean {
    if (id === field.ignored) return this.#cursor.skip();
    // A field that occurs twice has no meaning.
    const bit = 1 << id;
    if ((this.#seen & bit) !== 0) return false;
    this.#seen |= bit;
    switch (id) {
      case field.type:
        return this.#readTag();
      case field.blockHashes:
        return this.#readBlockHashes();
      case field.parentBlockHash:
        return this.#readParent();
      case field.tokenIds:
        return this.#readTokenIds();
      case field.blockSize:
        this.#blockSize = this.#readCount(0);
        return this.#blockSize >= 0;
      case field.groupIndex:
        this.#group = this.#readCount(-1);
        return this.#group >= -1;
      case field.medium:
        return this.#readMedium();
      case field.specKind:
        return this.#readSpecKind();
      case field.slidingWindow:
        this.#window = this.#readCount(0);
        return this.#window >= 0;
      default:
        return this.#detail.readField(id);
    }
  }

  #readBlockHashes(): boolean {
    const count = this.#cursor.readArrayHeader();
    if (count < 0) return false;
    const end = this.#hashes + count;
    if (end > this.#limits.maxHashes) {
      this.exceeded = "too-many-hashes";
      return false;
    }
    reserveHashes(this.#batch, end);
    this.#hashesEnd = end;
    this.#hashesAt = this.#cursor.at;
    return readHashes(this.#cursor, this.#batch.hashes, 2 * this.#hashes, count);
  }

  #readTokenIds(): boolean {
    if (this.#cursor.readNil()) return true;
    const count = this.#cursor.readArrayHeader();
    if (count < 0) return false;
    const end = this.#tokens + count;
    if (end > this.#limits.maxTokens) {
      this.exceeded = "too-many-tokens";
      return false;
    }
    reserveTokens(this.#batch, end);
    this.#tokensEnd = end;
    return readTokens(this.#cursor, this.#batch.tokens, this.#tokens, count);
  }

  #readParent(): boolean {
    if (this.#cursor.readNil()) return true;
    this.#hasParent = 1;
    return readHashes(this.#cursor, this.#batch.parent, 2 * this.#batch.count, 1);
  }

  /** @returns the number, `absent` for nil, or -2 for anything else or a number out of range */
  #readCount(absent: number): number {
    if (this.#cursor.readNil()) return absent;
    const value = this.#cursor.readInteger();
    return value >= 0 && value <= maxInt32 ? value : -2;
  }

  #readMedium(): boolean {
    const cursor = this.#cursor;
    if (cursor.readNil()) return true;
    if (!cursor.readText()) return false;
    const known = tierOfMedium(cursor.view, cursor.spanStart, cursor.spanEnd);
    this.#tier = known ?? tier.external;
    this.#knownMedium = known !== undefined;
    this.#isStoreOnly = isStoreOnlyMedium(cursor.view, cursor.spanStart, cursor.spanEnd);
    return true;
  }

  #readSpecKind(): boolean {
    const cursor = this.#cursor;
    if (cursor.readNil()) return true;
    if (!cursor.readText()) return false;
    this.#attention = attentionOfSpecKind(cursor.view, cursor.spanStart, cursor.spanEnd);
    return true;
  }

  /** @param start where the event begins */
  #finish(start: number): EventOutcome {
    const kind = this.#kind;
    if (kind < 0) return kind === unknownKind ? "unknown" : "malformed";
    if (kind === eventKind.cleared) {
      this.#commit(kind, tier.gpu, -1, true);
      return "decoded";
    }
    if ((this.#seen & (1 << field.blockHashes)) === 0) return "malformed";
    // What is never removed would be believed for ever. A pool that names keys without tokens does announce removals.
    if (kind === eventKind.stored && this.#isStoreOnly && this.#tokensEnd > this.#tokens) return "unknown";
    const detail = kind === eventKind.stored ? this.#detail.finish(this.#hasParent === 0) : undefined;
    if (detail === "malformed") return "malformed";
    const isOne = this.#hashesEnd === this.#hashes + 1;
    this.#hashes = this.#hashesEnd;
    if (kind === eventKind.stored) {
      this.#tokens = this.#tokensEnd;
      const { count, hasParent, blockSize, detail: details } = this.#batch;
      hasParent[count] = this.#hasParent;
      blockSize[count] = this.#blockSize;
      this.#batch.attention[count] = this.#attention;
      this.#batch.window[count] = this.#window;
      details[count] = detail;
    } else if (isOne) this.#rememberRemoval(start);
    this.#commit(kind, this.#tier, this.#group, this.#knownMedium);
    return "decoded";
  }

  #rememberRemoval(start: number): void {
    if (!this.#removal.remember(this.#cursor, start, this.#hashesAt)) return;
    this.#removal.tier = this.#tier;
    this.#removal.group = this.#group;
    this.#removal.knownMedium = this.#knownMedium;
  }

  /** Adds an event whose hashes and tokens are in the batch already. Fields of stored events are set before. */
  #commit(kind: number, tierOfEvent: number, group: number, knownMedium: boolean): void {
    const batch = this.#batch;
    const index = batch.count;
    batch.kind[index] = kind;
    batch.hashStart[index + 1] = this.#hashes;
    batch.tokenStart[index + 1] = this.#tokens;
    batch.tier[index] = tierOfEvent;
    batch.group[index] = group;
    if (kind !== eventKind.stored) {
      batch.hasParent[index] = 0;
      batch.blockSize[index] = 0;
      batch.attention[index] = attention.full;
      batch.window[index] = 0;
      batch.detail[index] = undefined;
    }
    batch.count = index + 1;
    if (!knownMedium) this.unknownMedia += 1;
  }
}

function fieldAt(kind: number, position: number): number {
  if (kind === eventKind.stored) return position <= field.slidingWindow ? position : field.ignored;
  if (kind === eventKind.removed) return removedPositions[position] ?? field.ignored;
  return field.ignored;
}

/** A removal of one block takes 40 (array) to 70 bytes (map). */
const maxTemplateBytes = 128;
/** The head and the 64 bits of an integer hash. */
const hashBytes = 9;

/**
 * Remembers the bytes of the last removal of one block. vLLM sends one such event per block, and an engine's events
 * differ only in the hash. Comparing four bytes at a time costs a fraction of reading the fields again.
 */
class RemovalTemplate {
  /** The bytes before and after the hash, four to a word; then the remaining bytes of each part. */
  readonly #words = new Int32Array(maxTemplateBytes / 4 + 1);
  readonly #bytes = new Uint8Array(maxTemplateBytes);
  #length = 0;
  #hashAt = 0;
  tier = 0;
  group = -1;
  knownMedium = true;

  /**
   * @param start where the event begins; it ends at the cursor
   * @param hashAt where its only hash begins
   * @returns false when it is too long or its hash is no 64-bit integer
   */
  remember(cursor: MsgpackCursor, start: number, hashAt: number): boolean {
    const length = cursor.at - start;
    const head = cursor.bytes[hashAt]!;
    if (length > maxTemplateBytes || (head !== 0xcf && head !== 0xd3)) return false;
    const hashEnd = hashAt - start + hashBytes;
    this.#copy(cursor, start, 0, hashAt - start);
    this.#copy(cursor, start, hashEnd, length);
    this.#length = length;
    this.#hashAt = hashAt - start;
    return true;
  }

  /**
   * @returns where the hash begins if the next event is like the last one, with the cursor moved past the hash; else -1
   */
  match(cursor: MsgpackCursor): number {
    const { view, at } = cursor;
    const length = this.#length;
    if (length === 0 || at + length > cursor.end) return -1;
    const hashAt = this.#hashAt;
    if (!this.#equal(view, at, 0, hashAt)) return -1;
    const head = view.getUint8(at + hashAt);
    if (head !== 0xcf && head !== 0xd3) return -1;
    if (!this.#equal(view, at, hashAt + hashBytes, length)) return -1;
    cursor.at = at + length;
    return at + hashAt;
  }

  #copy({ view }: MsgpackCursor, base: number, from: number, to: number): void {
    let at = from;
    for (let word = (from + 3) >> 2; at + 4 <= to; at += 4, word++) this.#words[word] = view.getInt32(base + at, true);
    for (; at < to; at++) this.#bytes[at] = view.getUint8(base + at);
  }

  #equal(view: DataView, base: number, from: number, to: number): boolean {
    const words = this.#words;
    let at = from;
    for (let word = (from + 3) >> 2; at + 4 <= to; at += 4, word++) {
      if (view.getInt32(base + at, true) !== words[word]) return false;
    }
    const bytes = this.#bytes;
    for (; at < to; at++) if (view.getUint8(base + at) !== bytes[at]) return false;
    return true;
  }
}

const firstEvents = 64;
const firstHashes = 256;
const firstTokens = 4_096;

/** An empty batch. Its arrays grow by `reserveEvents`, `reserveHashes` and `reserveTokens`. */
export function createEventBatch(): EngineEventBatch {
  return {
    timestampS: Number.NaN,
    rank: -1,
    count: 0,
    kind: new Uint8Array(firstEvents),
    hashes: new Uint32Array(2 * firstHashes),
    hashStart: new Uint32Array(firstEvents + 1),
    parent: new Uint32Array(2 * firstEvents),
    hasParent: new Uint8Array(firstEvents),
    tokens: new Uint32Array(firstTokens),
    tokenStart: new Uint32Array(firstEvents + 1),
    blockSize: new Uint32Array(firstEvents),
    tier: new Uint8Array(firstEvents),
    group: new Int32Array(firstEvents),
    attention: new Uint8Array(firstEvents),
    window: new Uint32Array(firstEvents),
    detail: new Array<undefined>(firstEvents).fill(undefined),
  };
}

/** Grows the arrays to `count` events. Called before the first event of a message, so it drops their contents. */
export function reserveEvents(batch: EngineEventBatch, count: number): void {
  if (count <= batch.kind.length) return;
  const capacity = capacityFor(count);
  batch.kind = new Uint8Array(capacity);
  batch.hashStart = new Uint32Array(capacity + 1);
  batch.parent = new Uint32Array(2 * capacity);
  batch.hasParent = new Uint8Array(capacity);
  batch.tokenStart = new Uint32Array(capacity + 1);
  batch.blockSize = new Uint32Array(capacity);
  batch.tier = new Uint8Array(capacity);
  batch.group = new Int32Array(capacity);
  batch.attention = new Uint8Array(capacity);
  batch.window = new Uint32Array(capacity);
  batch.detail = new Array<undefined>(capacity).fill(undefined);
}

/** Grows the array to `count` hashes in total and keeps its contents. */
function reserveHashes(batch: EngineEventBatch, count: number): void {
  if (2 * count > batch.hashes.length) batch.hashes = grown(batch.hashes, 2 * capacityFor(count));
}

/** Grows the array to `count` tokens in total and keeps its contents. */
function reserveTokens(batch: EngineEventBatch, count: number): void {
  if (count > batch.tokens.length) batch.tokens = grown(batch.tokens, capacityFor(count));
}

function grown(words: Uint32Array, length: number): Uint32Array {
  const larger = new Uint32Array(length);
  larger.set(words);
  return larger;
}

/** The next power of two, so that growing costs amortised constant time per entry. */
const capacityFor = (count: number): number => 2 ** Math.ceil(Math.log2(count));
