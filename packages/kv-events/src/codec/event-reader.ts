import { type EngineEventBatch, eventKind, tier } from "@espalier/prefix-index";
import type { DecodeLimits } from "./decode-limits.ts";
import type { RefusalReason } from "./decode-report.ts";
import { DetailReader } from "./detail-reader.ts";
import { reserveHashes, reserveTokens } from "./event-batch.ts";
import type { MsgpackCursor } from "./msgpack-cursor.ts";
import { readHashes } from "./read-hashes.ts";
import { readTokens } from "./read-tokens.ts";
import { RemovalShape } from "./removal-shape.ts";
import { eventKeys, eventTags, field, prefixSpecKinds, removedPositions, tierOfMedium } from "./wire-names.ts";

const maxInt32 = 0x7fff_ffff;
/** Elements of the first generation of `BlockStored`: up to `block_size`. */
const minStoredElements = 5;
const minRemovedElements = 2;

/** What became of one event. */
export type EventOutcome = "decoded" | "unknown" | "malformed";

/** Reads events one by one into a batch. Fields of maps may come in any order. */
export class EventReader {
  readonly #cursor: MsgpackCursor;
  readonly #batch: EngineEventBatch;
  readonly #limits: DecodeLimits;
  /** The limit that an event exceeded, after which the message is to be refused. */
  exceeded: RefusalReason | undefined;
  unknownMedia = 0;
  readonly #detail: DetailReader;
  readonly #removal = new RemovalShape();
  #hashes = 0;
  #tokens = 0;
  // The rest is about one event.
  #seen = 0;
  #kind = -1;
  /** Where in the message its hashes begin. */
  #hashesAt = 0;
  #hashesEnd = 0;
  #tokensEnd = 0;
  #hasParent = 0;
  #blockSize = 0;
  #tier = 0;
  #knownMedium = true;
  #group = -1;
  #partial = 0;

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
   * Reads the event at the cursor; a decoded one is added to the batch, whose arrays have room for it. After any other
   * outcome the cursor stands somewhere in the event.
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

  /** Reads a removal that is the last one again but for its hash. */
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
    this.#group = -1;
    this.#partial = 0;
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

  /** A string that is no known tag is remembered as such. */
  #readTag(): boolean {
    const cursor = this.#cursor;
    if (!cursor.readText()) return false;
    const kind = eventTags.find(cursor.view, cursor.spanStart, cursor.spanEnd);
    this.#kind = kind < 0 ? unknownKind : kind;
    return kind >= 0;
  }

  #readField(id: number): boolean {
    if (id === field.ignored) return this.#cursor.skip();
    // A field that comes twice has no meaning.
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

  /** @returns the number, `absent` for nil, or -2 when it is neither nil nor a number that fits */
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
    return true;
  }

  #readSpecKind(): boolean {
    const cursor = this.#cursor;
    if (cursor.readNil()) return true;
    if (!cursor.readText()) return false;
    this.#partial = prefixSpecKinds.find(cursor.view, cursor.spanStart, cursor.spanEnd) < 0 ? 1 : 0;
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
    const detail = kind === eventKind.stored ? this.#detail.finish(this.#hasParent === 0) : undefined;
    if (detail === "malformed") return "malformed";
    const isOne = this.#hashesEnd === this.#hashes + 1;
    this.#hashes = this.#hashesEnd;
    if (kind === eventKind.stored) {
      this.#tokens = this.#tokensEnd;
      const { count, hasParent, blockSize, partial, detail: details } = this.#batch;
      hasParent[count] = this.#hasParent;
      blockSize[count] = this.#blockSize;
      partial[count] = this.#partial;
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

  /** Adds an event whose hashes and tokens are in the batch; what only stored events have is set before. */
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
      batch.partial[index] = 0;
      batch.detail[index] = undefined;
    }
    batch.count = index + 1;
    if (!knownMedium) this.unknownMedia += 1;
  }
}

/** Told apart from -1, which says that no tag was read. */
const unknownKind = -2;

function fieldAt(kind: number, position: number): number {
  if (kind === eventKind.stored) return position <= field.specKind ? position : field.ignored;
  if (kind === eventKind.removed) return removedPositions[position] ?? field.ignored;
  return field.ignored;
}
