import type { RequestReport } from "@espalier/engine-model";
import type { JsonObject } from "../api/body-fields.ts";
import type { SequenceRequest, SimulatedEngine } from "../engine/simulated-engine.ts";
import { ApiError, type Exchange } from "../http/exchange.ts";
import type { ResolvedTransfer } from "../options.ts";
import type { KvLinks } from "./peer-client.ts";
import type { ExportBoard, Inbox, KvOffer } from "./ticket-tables.ts";

/** The part of one engine in a request that several engines work on. */
export interface Leg {
  readonly importer?: Importer;
  readonly exporter?: Exporter;
  /** Whether one token is generated, whatever the request says. */
  readonly onlyPrompt?: boolean;
  /** The request ends with `cache_threshold` unless this share of its prompt, 0..1, need not be computed. */
  readonly cacheHitThreshold?: number;
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

/** A prompt that was computed elsewhere. */
export interface Arrival {
  /** What it is. */
  readonly tokens: Uint32Array;
  /** Everything is here, or is not wanted any more. */
  done(): void;
  /** Called when it can no longer be fetched. Not called after `done`. */
  whenBroken(listener: (reason: string) => void): void;
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

/** What an answer says besides, because its request is a part of another one. */
export interface AnswerExtra {
  /** Fields of the answer itself. */
  readonly top?: JsonObject;
  /** Fields of its one choice. */
  readonly choice?: JsonObject;
}

/** A request with one prompt and one answer that may be a part of another one. */
export interface LegInput {
  readonly parts: LegParts;
  readonly exchange: Exchange;
  readonly body: JsonObject;
  readonly sequence: SequenceRequest;
}

/** What the protocols of one engine share. */
export interface LegParts {
  readonly transfer: ResolvedTransfer;
  readonly engine: SimulatedEngine;
  readonly exports: ExportBoard;
  readonly inbox: Inbox;
  readonly links: KvLinks;
  /** Name of the engine's process, another one in each life. */
  readonly engineId: () => string;
  /** Port of its side channel. */
  readonly port: () => number;
  /** Side channel of the engine that keeps shared blocks. */
  readonly storageUrl: () => string;
  /** 16 random hexadecimal digits. */
  readonly newId: () => string;
}

/** The blocks of a complete request, to be offered to another engine. */
export function offerOf({ parts, sequence }: LegInput, report: RequestReport): KvOffer {
  return { tokens: sequence.prompt, release: () => parts.engine.release(report.id) };
}

/** The address under which this engine is known to the caller, IPv4 where that is hidden in IPv6. */
export function ownHost({ exchange }: LegInput): string {
  return (exchange.request.socket.localAddress ?? "127.0.0.1").replace(/^::ffff:/, "");
}

/** What vLLM does when blocks do not come: it says no more than this, or computes them. */
export function loadFailure({ onFailure }: ResolvedTransfer): ApiError | undefined {
  return onFailure === "recompute" ? undefined : new ApiError(500, "Internal server error");
}
