import type { EngineEventBatch } from "@espalier/prefix-index";
import { createEventBatch, EventReader, reserveEvents } from "./event-reader.ts";
import { MsgpackCursor } from "./msgpack-cursor.ts";
import { envelopeKeys } from "./wire-names.ts";

/**
 * Decodes engines' messages into batches of events. It keeps no state between messages, so one decoder serves many
 * feeds.
 */
export interface EventDecoder {
  /** The events of the last message; overwritten by the next. */
  readonly batch: EngineEventBatch;
  /**
   * Decodes the payload of one message in any of the engines' dialects. Skips and counts events that it does not
   * understand. Refuses the whole message if it cannot be read to its end. Never throws, whatever the bytes.
   *
   * @returns the outcome; overwritten by the next call
   */
  decode(payload: Uint8Array): DecodeReport;
}

/** The outcome of decoding one message. */
export interface DecodeReport {
  /** Undefined when the message was accepted. A refused one leaves an empty batch. */
  readonly refused: RefusalReason | undefined;
  /** Events in the batch. */
  readonly events: number;
  /** Events skipped because their tag is unknown. */
  readonly unknownEvents: number;
  /** Events skipped because a field is missing or has the wrong type. */
  readonly malformedEvents: number;
  /** Events in the batch with an unknown medium, which counts as the tier `external`. */
  readonly unknownMedia: number;
}

/** Why a whole message is refused. */
export const refusalReasons = [
  /** The bytes end before the values they announce. */
  "truncated",
  /** A byte that msgpack never uses. */
  "invalid",
  /** Well-formed msgpack, but not an event message. */
  "envelope",
  /** More bytes follow the message. */
  "trailing",
  "too-many-bytes",
  "too-many-events",
  "too-many-hashes",
  "too-many-tokens",
] as const;

export type RefusalReason = (typeof refusalReasons)[number];

/**
 * Far above what engines send (captures reach 73 events and 11 kB in one message). Low enough that a decoder never
 * allocates more than 8 bytes per hash, 4 per token and 37 per event: 26 MB in all.
 */
/** Limits of one message. A message beyond any of them is refused as a whole. */
export type DecodeLimits = Readonly<typeof defaultDecodeLimits>;

export const defaultDecodeLimits = {
  maxMessageBytes: 64 * 1024 * 1024,
  maxEvents: 65_536,
  maxHashes: 1_048_576,
  maxTokens: 4_194_304,
};

/**
 * @param limits missing ones default to those in `defaultDecodeLimits`
 * @throws RangeError for a limit that is not a whole number from 1 to 2^29
 */
export function createEventDecoder(limits: Partial<DecodeLimits> = {}): EventDecoder {
  return new ColumnDecoder(checkDecodeLimits({ ...defaultDecodeLimits, ...limits }));
}

/**
 * @throws RangeError for a limit that is not a whole number from 1 to the most that an array of 32-bit words can have
 */
function checkDecodeLimits(limits: DecodeLimits): DecodeLimits {
  for (const [name, limit] of Object.entries(limits)) {
    if (!Number.isInteger(limit) || limit < 1 || limit > 2 ** 29) {
      throw new RangeError(`${name} must be a whole number from 1 to 2^29, not ${limit}`);
    }
  }
  return limits;
}

/** Largest data-parallel rank of a message. */
const maxRank = 0xffff;

/** Positions of the parts in the envelope as an array, and of their keys in `envelopeKeys`. */
const timestampPart = 0;
const eventsPart = 1;
const rankPart = 2;

/**
 * Unix seconds of the year 5138: larger times are milliseconds, as Mooncake's master sends (`kv_event_publisher.cpp`).
 */
const maxTimestampS = 1e11;

const inSeconds = (timestamp: number): number => (timestamp > maxTimestampS ? timestamp / 1_000 : timestamp);

class ColumnDecoder implements EventDecoder {
  readonly batch = createEventBatch();
  readonly #limits: DecodeLimits;
  readonly #cursor = new MsgpackCursor();
  readonly #reader: EventReader;
  readonly #report = {
    refused: undefined as RefusalReason | undefined,
    events: 0,
    unknownEvents: 0,
    malformedEvents: 0,
    unknownMedia: 0,
  };

  constructor(limits: DecodeLimits) {
    this.#limits = limits;
    this.#reader = new EventReader(this.#cursor, this.batch, limits);
  }

  decode(payload: Uint8Array): DecodeReport {
    const { batch } = this;
    const report = this.#report;
    batch.count = 0;
    batch.timestampS = Number.NaN;
    batch.rank = -1;
    report.unknownEvents = 0;
    report.malformedEvents = 0;
    this.#reader.reset();
    report.refused = this.#readMessage(payload);
    if (report.refused !== undefined) {
      batch.count = 0;
      report.unknownEvents = 0;
      report.malformedEvents = 0;
    }
    report.events = batch.count;
    report.unknownMedia = report.refused === undefined ? this.#reader.unknownMedia : 0;
    return report;
  }

  #readMessage(payload: Uint8Array): RefusalReason | undefined {
    if (payload.length > this.#limits.maxMessageBytes) return "too-many-bytes";
    const cursor = this.#cursor;
    cursor.reset(payload);
    const elements = cursor.readArrayHeader();
    const refused = elements >= 0 ? this.#readArray(elements) : this.#readMap(cursor.readMapHeader());
    const trailing = refused === undefined && cursor.at < cursor.end;
    cursor.release();
    return trailing ? "trailing" : refused;
  }

  /** `[ts, events, rank]`; the rank may be absent, and more elements may follow. */
  #readArray(elements: number): RefusalReason | undefined {
    if (elements < 2) return this.#refusal();
    for (let position = 0; position < elements; position++) {
      const refused = this.#readPart(position);
      if (refused !== undefined) return refused;
    }
    return undefined;
  }

  #readMap(pairs: number): RefusalReason | undefined {
    if (pairs < 0) return this.#refusal();
    const cursor = this.#cursor;
    let seen = 0;
    for (let pair = 0; pair < pairs; pair++) {
      const start = cursor.at;
      if (!cursor.readText()) return this.#refusal(start);
      const part = envelopeKeys.find(cursor.view, cursor.spanStart, cursor.spanEnd);
      if (part >= 0 && (seen & (1 << part)) !== 0) return this.#refusal(start);
      if (part >= 0) seen |= 1 << part;
      const refused = this.#readPart(part);
      if (refused !== undefined) return refused;
    }
    return (seen & (1 << eventsPart)) === 0 ? "envelope" : undefined;
  }

  #readPart(part: number): RefusalReason | undefined {
    const cursor = this.#cursor;
    const start = cursor.at;
    if (part === eventsPart) return this.#readEvents();
    if (part === timestampPart) {
      if (cursor.readNil()) return undefined;
      this.batch.timestampS = inSeconds(cursor.readNumber());
      // A float may be NaN, which means as little as nil; the cursor has then moved.
      return Number.isNaN(this.batch.timestampS) && cursor.at === start ? this.#refusal(start) : undefined;
    }
    if (part === rankPart) {
      if (cursor.readNil()) return undefined;
      const rank = cursor.readInteger();
      if (!(rank >= 0 && rank <= maxRank)) return this.#refusal(start);
      this.batch.rank = rank;
      return undefined;
    }
    return cursor.skip() ? undefined : cursor.failure;
  }

  #readEvents(): RefusalReason | undefined {
    const { batch } = this;
    const cursor = this.#cursor;
    const start = cursor.at;
    const count = cursor.readArrayHeader();
    if (count < 0) return this.#refusal(start);
    if (count > this.#limits.maxEvents) return "too-many-events";
    reserveEvents(batch, count);
    for (let event = 0; event < count; event++) {
      const eventStart = cursor.at;
      const outcome = this.#reader.read();
      if (outcome === "decoded") continue;
      if (this.#reader.exceeded !== undefined) return this.#reader.exceeded;
      cursor.at = eventStart;
      if (!cursor.skip()) return cursor.failure;
      if (outcome === "unknown") this.#report.unknownEvents += 1;
      else this.#report.malformedEvents += 1;
    }
    return undefined;
  }

  /** Distinguishes values of a wrong type from bytes that cannot be read at all. */
  #refusal(start = 0): RefusalReason {
    this.#cursor.at = start;
    return this.#cursor.skip() ? "envelope" : this.#cursor.failure;
  }
}
