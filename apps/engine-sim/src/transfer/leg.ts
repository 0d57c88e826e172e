import type { JsonObject } from "@espalier/core";
import type { RequestReport } from "@espalier/engine-model";
import type { SequenceRequest, SimulatedEngine } from "../engine/simulated-engine.ts";
import { ApiError, type Exchange } from "../http/exchange.ts";
import type { ResolvedTransfer } from "../options.ts";
import type { KvLinks } from "./peer-client.ts";
import type { ExportTable, Inbox, KvOffer } from "./ticket-tables.ts";

/** One engine's part in a request that several engines work on. */
export interface Leg {
  readonly importer?: Importer;
  readonly exporter?: Exporter;
  /** Whether one token is generated, regardless of what the request asks for. */
  readonly onlyPrompt?: boolean;
  /** The request ends with `cache_threshold` unless at least this share of its prompt, 0..1, is cached. */
  readonly cacheHitThreshold?: number;
}

/** The side of a leg that gets the prompt from another engine. */
export interface Importer {
  /**
   * Waits until the prompt is computed.
   *
   * @param signal aborted when the request is over
   * @returns undefined when no part of it was computed
   * @throws (rejects) Error when it is not available
   */
  open(signal: AbortSignal): Promise<Arrival | undefined>;
  /** The error for the client when it is not available; undefined to compute the prompt here. */
  failure(reason: string): ApiError | undefined;
}

/** A prompt that another engine computed. */
export interface Arrival {
  readonly tokens: Uint32Array;
  /** The blocks have arrived, or are no longer needed. */
  done(): void;
  /** Called when it can no longer be fetched. Not called after `done`. */
  whenBroken(listener: (reason: string) => void): void;
}

/** The side of a leg that computes the prompt for another engine. */
export interface Exporter {
  /** Whether the engine pins the blocks beyond the request. */
  readonly pins: boolean;
  /**
   * Waits until the other engine asks for the prompt; absent where nothing is to be waited for.
   *
   * @throws (rejects) ApiError when it never will
   */
  ready?(): Promise<void>;
  /**
   * The prompt is computed and, if the exporter pins, its blocks are pinned.
   *
   * @returns additional fields of the answer, once it may be sent
   * @throws (rejects) ApiError when the request fails after all
   */
  computed(report: RequestReport): Promise<AnswerExtra>;
  /** The request failed, or its client disconnected, before the answer. */
  cancelled?(): void;
}

/** Additional fields of the answer of a leg. */
export interface AnswerExtra {
  /** Fields of the answer itself. */
  readonly top?: JsonObject;
  /** Fields of its one choice. */
  readonly choice?: JsonObject;
}

/** A request with one prompt and one answer that may be a leg. */
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
  readonly exports: ExportTable;
  readonly inbox: Inbox;
  readonly links: KvLinks;
  /** Name of the engine's process; each restart changes it. */
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

/** The address at which the client reached this engine; mapped IPv4 as plain IPv4. */
export function ownHost({ exchange }: LegInput): string {
  return (exchange.request.socket.localAddress ?? "127.0.0.1").replace(/^::ffff:/, "");
}

/** vLLM's reaction to blocks that do not arrive: this error, or undefined to compute the prompt. */
export function loadFailure({ onFailure }: ResolvedTransfer): ApiError | undefined {
  return onFailure === "recompute" ? undefined : new ApiError(500, "Internal server error");
}
