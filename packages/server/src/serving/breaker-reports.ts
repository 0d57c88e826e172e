import type { AnswerFault } from "@espalier/api";
import type { Permit, Target } from "@espalier/engines";
import type { AttemptFailure } from "../request/answer-source.ts";

type Breaker = Target["engine"]["breaker"];

/** What one request reports to the circuit breakers of the engines that are asked, one after another. */
export class BreakerReports {
  readonly #retryStatuses: ReadonlySet<number>;
  #breaker: Breaker | undefined;
  #permit: Permit | undefined;
  /** Of an engine whose client errors are suspect, while another one is asked whether it gives one too. */
  #suspect: Permit | undefined;
  /** Whether content settled the permit of the present attempt. */
  #hasContent = false;

  /** @param retryStatuses statuses that are the engine's fault, whatever they say */
  constructor(retryStatuses: ReadonlySet<number>) {
    this.#retryStatuses = retryStatuses;
  }

  /** An attempt begins. */
  begin(breaker: Breaker): void {
    this.#breaker = breaker;
    this.#permit = breaker.begin();
    this.#hasContent = false;
  }

  /** The attempt is not made after all. */
  skipped(): void {
    this.#permit?.release();
  }

  /** @param mayLackApi whether a client error may only say that the engine has no such API */
  failed({ kind, status, error }: AttemptFailure, mayLackApi: boolean): void {
    const isUnserved = mayLackApi && isClientError(status);
    const isOwnDoing = kind === "declined" || kind === "withdrawn" || kind === "unknown_model";
    if (isOwnDoing || isUnserved || kind === "overloaded" || status === 429) this.#permit?.release();
    else if (isClientError(status) && !this.#retryStatuses.has(status)) this.#suspect = this.#permit;
    else this.#blame(error.code);
  }

  /**
   * Whether another engine should be asked before the client gets this status. A replica may give client errors that
   * others would not, and fast. An error that another gives too is the client's.
   */
  suspects(status: number): boolean {
    return isClientError(status) && !this.#suspect && this.#breaker?.isSuspect === true;
  }

  /**
   * The client gets an answer.
   *
   * @param awaitsContent whether only content will show that it is a good one
   */
  answering(status: number, awaitsContent: boolean): void {
    if (this.#suspect !== this.#permit) this.#settleSuspect(status);
    if (status >= 500) this.#permit?.failure(`status ${status}`);
    else if (status === 429) this.#permit?.release();
    else if (status >= 400) this.#permit?.refused();
    else if (!awaitsContent) this.#permit?.success();
  }

  contentBegun(): void {
    this.#hasContent = true;
    this.#permit?.success();
  }

  /** The answer, which is complete for HTTP, is none. */
  faulty({ kind, status }: AnswerFault): void {
    if (status >= 500) this.#blame(`${kind} answer`);
    else if (status === 429) this.#permit?.release();
    else this.#permit?.refused();
  }

  /** The request is over. */
  ended(): void {
    this.#suspect?.release();
    this.#permit?.release();
  }

  /** Counts a failure of the engine. The permit was settled when content came, but what fails after that counts as well. */
  #blame(reason: string): void {
    if (this.#hasContent) this.#breaker?.begin()?.failure(reason);
    else this.#permit?.failure(reason);
  }

  /** @param status what another engine answered to the same request */
  #settleSuspect(status: number): void {
    if (status < 400) this.#suspect?.failure("client errors that differ between engines");
    else if (isClientError(status)) this.#suspect?.success();
    else this.#suspect?.release();
  }
}

function isClientError(status: number | undefined): status is number {
  return status !== undefined && status >= 400 && status < 500 && status !== 429;
}
