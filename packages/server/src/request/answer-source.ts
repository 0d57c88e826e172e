import type { AnswerFault } from "@espalier/api";
import type { EspalierError } from "@espalier/core";
import type { Upstream } from "@espalier/engines";
import type { FailureKind, Retries } from "@espalier/routing";
import type { BodyFilter } from "./response-sink.ts";

/** One engine as an exchange sees it. */
export interface Engine extends Upstream {
  /** Replaces the request's body for this engine. */
  readonly body?: readonly Buffer[] | undefined;
}

/** The engine of the next attempt: undefined when none is left, `later` when `proceed` will be called. */
export type NextEngine = Engine | "later" | undefined;

/** Why one attempt did not give the client a whole answer. */
export interface AttemptFailure {
  readonly kind: FailureKind;
  /** The engine's status, for kind `status`. */
  readonly status?: number;
  /** The engine's Retry-After, for kind `status`; absent when it sent none. */
  readonly retryAfterMs?: number | undefined;
  /** Whether it failed before the first byte of the body, so that another engine may still answer. */
  readonly beforeFirstByte: boolean;
  readonly error: EspalierError;
}

export type ExchangeOutcome =
  /** `bytes` is the size of the body that was written. */
  | { readonly kind: "completed"; readonly status: number; readonly bytes: number }
  /** Nothing was written: the caller answers the error. */
  | { readonly kind: "failed"; readonly error: EspalierError }
  /** Failed after the first byte. The client's response has been ended with an error frame, or destroyed. */
  | { readonly kind: "cut"; readonly error: EspalierError }
  /** The client went away, or stopped reading for too long. */
  | { readonly kind: "client_closed" };

/**
 * What the head of an answer says. `pass_over` asks another engine where the retry budget allows it, `decline` asks
 * one in any case.
 */
export type HeadVerdict = "pass" | "pass_over" | "decline";

/**
 * The verdict on the beginning of an answer. `more` asks for a longer beginning; `unknown_model` is the engine's, and so is a
 * fault of an answer with status 200.
 */
export type Verdict = "pass" | "decline" | "more" | "unknown_model" | AnswerFault;

/** What a source does with its exchange. */
export interface ExchangeControl {
  /** Makes the first attempt. */
  launch(): void;
  /** Has the source choose, and makes the attempt; also when what it waited for is ready. */
  proceed(): void;
  /** Ends the request with an error; no further attempts are made. */
  refuse(error: EspalierError): void;
  /**
   * Ends the current attempt as a failure of kind `withdrawn`. Does nothing once a byte of its answer was sent to the
   * client, or when it is over. Must not be called by the source while the exchange calls it.
   */
  withdraw(): void;
  /**
   * Has another engine go on with the stream, though its engine is well. Must not be called by the source while the
   * exchange calls it.
   *
   * @returns false when it stays where it is
   */
  move(): boolean;
  /** The code has a defect. No exception may reach undici. */
  crash(thrown: unknown): void;
}

/** Reads the body of an answer in transit. */
interface BodyReader {
  /** See `AttemptOwner`. */
  readonly awaitsContent: boolean;
  /** Whether the stream, which is complete for HTTP, has ended too early. */
  readonly isBroken?: boolean;
  /** The filter that reads or changes the body. */
  filter(status: number, contentType: string): BodyFilter | undefined;
  /** The first byte of the body arrived from the engine. */
  firstByte(): void;
}

/** Where the answer comes from: the engines of a pool, or backends outside the fleet. Chooses and accounts for attempts. */
export interface AnswerSource {
  readonly retries: Retries;
  readonly reader: BodyReader;
  /** The client is there. Calls `launch`, now or later. */
  start(exchange: ExchangeControl): void;
  /** Chooses the engine of the next attempt. Must not choose one that failed. */
  choose(): NextEngine;
  /** The attempt at the chosen engine is being sent. */
  started(): void;
  /**
   * The attempt failed through the engine's fault. Called before another engine is chosen. A failure of kind `status`
   * may still be followed by `answering`: when no engine is left, the client gets that same answer. Not called when
   * the client went away or the request's own deadline passed.
   */
  failed(failure: AttemptFailure): void;
  /** @param headers the engine's, alternating; none for an error with status 200 */
  judgeHead(status: number, headers: readonly Buffer[]): HeadVerdict;
  /** Checks the beginning of a body. At 64 KiB, or at the end of the body, it passes unless declined. */
  judge(status: number, head: Buffer, ended: boolean): Verdict;
  /** Makes an engine's headers, as flat pairs, those of the client's answer, in place. */
  editHeaders(pairs: string[]): void;
  /** Whether a stream of which only the head came may begin anew at another engine. */
  readonly mayBeginAnew?: boolean;
  /**
   * A stream broke after its first byte. Called once at most.
   *
   * @param leave reports the failed attempt, where nobody has yet; called before another engine is chosen
   * @returns the engine that goes on with it, or what is left of it; undefined when the client gets an error
   */
  resumeStream?(kind: FailureKind, leave?: () => void): NextEngine | Buffer;
  /** The client gets this answer, and there are no more attempts. @param headers those of the answer, as flat pairs */
  answering(status: number, headers: readonly string[]): void;
  /** The request is over. Called once. */
  ended(outcome: ExchangeOutcome): void;
}
