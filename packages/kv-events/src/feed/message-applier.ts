import type { Logger } from "@espalier/common";
import { type EngineEventBatch, eventKind } from "@espalier/prefix-index";
import type { EventDecoder } from "../codec/event-decoder.ts";
import type { FeedRecord } from "./feed-record.ts";
import type { FeedSink } from "./feed-sink.ts";
import type { NumberedMessage } from "./message-queue.ts";

/** Decodes messages, hands them on and counts. What fails is one message's matter. */
export class MessageApplier {
  readonly #decoder: EventDecoder;
  readonly #sink: FeedSink;
  readonly #record: FeedRecord;
  readonly #logger: Logger;
  #timestampS = Number.NaN;

  constructor(options: { decoder: EventDecoder; sink: FeedSink; record: FeedRecord; logger: Logger }) {
    this.#decoder = options.decoder;
    this.#sink = options.sink;
    this.#record = options.record;
    this.#logger = options.logger;
  }

  /** The engine's clock in the latest message that was handed on, Unix seconds; NaN when there is none. */
  get timestampS(): number {
    return this.#timestampS;
  }

  /** @returns whether the message was handed on; when not, it is a hole */
  apply(message: NumberedMessage, checksum: number): boolean {
    try {
      return this.#handOn(message, checksum);
    } catch (error) {
      this.#record.refuse("failed");
      this.#logger.error("a message of KV events could not be taken", { sequence: message.sequence, error });
      return false;
    }
  }

  /** Whether the engine made this message after the latest one that was handed on, or that cannot be said. */
  isNewer(payload: Uint8Array): boolean {
    const before = this.#timestampS;
    const report = this.#decoder.decode(payload);
    return report.refused !== undefined || !(this.#decoder.batch.timestampS <= before);
  }

  /** Whether the engine made this message before the latest one that was handed on. */
  isOlder(payload: Uint8Array): boolean {
    const before = this.#timestampS;
    const report = this.#decoder.decode(payload);
    return report.refused === undefined && this.#decoder.batch.timestampS < before;
  }

  /** Forgets the latest timestamp. */
  reset(): void {
    this.#timestampS = Number.NaN;
  }

  #handOn({ sequence, payload }: NumberedMessage, checksum: number): boolean {
    const report = this.#decoder.decode(payload);
    this.#record.count("undecoded_events", report.unknownEvents + report.malformedEvents);
    if (report.refused !== undefined) {
      this.#record.refuse(report.refused);
      return false;
    }
    const { batch } = this.#decoder;
    this.#timestampS = batch.timestampS;
    this.#sink.batch(batch, sequence, checksum);
    this.#countEvents(batch);
    return true;
  }

  #countEvents({ count, kind, hashStart }: EngineEventBatch): void {
    let stored = 0;
    let removed = 0;
    for (let event = 0; event < count; event++) {
      const hashes = hashStart[event + 1]! - hashStart[event]!;
      if (kind[event] === eventKind.stored) stored += hashes;
      else if (kind[event] === eventKind.removed) removed += hashes;
    }
    this.#record.count("messages");
    this.#record.count("events", count);
    this.#record.count("blocks_stored", stored);
    this.#record.count("blocks_removed", removed);
  }
}
