import type { Clock, Logger, Scheduler } from "@espalier/common";
import type { EventDialect } from "../codec/event-dialect.ts";

export interface KvEventPublisherOptions {
  /** The address to bind; "127.0.0.1" by default. */
  readonly host?: string;
  /** The port to bind; 0, the default, takes any. */
  readonly port?: number;
  /** Dial this endpoint, which a subscriber has bound, instead of binding one. */
  readonly connect?: string;
  /** The port of the replay socket, bound on `host`; 0 takes any. Without it there is no replay. */
  readonly replayPort?: number;
  /** First frame of every message. */
  readonly topic: string;
  readonly dialect: EventDialect;
  /** Data-parallel rank; undefined is sent as nil. */
  readonly rank?: number;
  /** See `EncodeOptions`. */
  readonly hashes?: "integer" | "bytes";
  readonly envelope?: "array" | "map";
  /** Batches kept for replay; 10,000 by default, as in vLLM. */
  readonly bufferSteps?: number;
  /** Messages kept for a slow subscriber; 100,000 by default, as in vLLM. */
  readonly highWaterMark?: number;
  readonly clock: Clock;
  /** Paces the attempts of `reconnect`; the system's by default. */
  readonly scheduler?: Scheduler;
  readonly logger: Logger;
}

export const defaultBufferSteps = 10_000;
export const defaultHighWaterMark = 100_000;

/** @throws RangeError when a bound is not a whole number from 1 to a million, or a port or rank is none */
export function checkPublisherOptions(options: KvEventPublisherOptions): void {
  const { bufferSteps = 1, highWaterMark = 1, port = 0, replayPort = 0, rank = 0 } = options;
  for (const [name, value, least, most] of [
    ["bufferSteps", bufferSteps, 1, 1_000_000],
    ["highWaterMark", highWaterMark, 1, 1_000_000],
    ["port", port, 0, 65_535],
    ["replayPort", replayPort, 0, 65_535],
    ["rank", rank, 0, 65_535],
  ] as const) {
    if (!Number.isInteger(value) || value < least || value > most) {
      throw new RangeError(`${name} must be a whole number from ${least} to ${most}, not ${value}`);
    }
  }
}
