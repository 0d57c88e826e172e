import type { RequestReport } from "@espalier/engine-model";
import type { JsonObject } from "../api/body-fields.ts";
import type { ApiError } from "../http/api-error.ts";

/** What an answer says besides, because its request is a part of another one. */
export interface AnswerExtra {
  /** Fields of the answer itself. */
  readonly top?: JsonObject;
  /** Fields of its one choice. */
  readonly choice?: JsonObject;
}

/** A prompt that was computed elsewhere. */
export interface Arrival {
  /** What it is. */
  readonly tokens: Uint32Array;
  /** Everything is here, or is not wanted any more. */
  done(): void;
  /** Called when it can no longer be fetched. Not called after `done`. */
  whenBroken(listener: (reason: string) => void): void;
}

/** Where a request has its prompt computed. */
export interface Importer {
  /**
   * Waits until the prompt is computed.
   *
   * @param signal the request is over: nothing is wanted any more
   * @returns undefined when nobody has computed any of it
   * @throws (rejects) Error when it cannot be had
   */
  open(signal: AbortSignal): Promise<Arrival | undefined>;
  /** The error for the caller when it cannot be had; undefined to compute it here. */
  failure(reason: string): ApiError | undefined;
}

/** For whom a request computes its prompt. */
export interface Exporter {
  /** Whether the engine holds the blocks after the request is over. */
  readonly pins: boolean;
  /**
   * Waits until the prompt is wanted.
   *
   * @throws (rejects) ApiError when it never will be
   */
  ready(): Promise<void>;
  /**
   * The prompt is computed and, if the exporter pins, its blocks are held.
   *
   * @returns what the answer says besides, once it may be sent
   * @throws (rejects) ApiError when the request fails after all
   */
  computed(report: RequestReport): Promise<AnswerExtra>;
  /** The request failed, or its caller went away, before it was answered. */
  cancelled(): void;
}

/** The part of one engine in a request that several engines work on. */
export interface Leg {
  readonly importer?: Importer;
  readonly exporter?: Exporter;
  /** Whether one token is generated, whatever the request says. */
  readonly onlyPrompt?: boolean;
  /** The request ends with `cache_threshold` unless this share of its prompt, 0..1, need not be computed. */
  readonly cacheHitThreshold?: number;
}
