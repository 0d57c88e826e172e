import type { AdmissionListener, AdmissionRequest, AdmissionTicket } from "./admission-request.ts";
import type { AdmissionTarget } from "./admission-target.ts";
import type { ClassLine } from "./class-line.ts";
import type { Entry } from "./entry.ts";
import type { WantedRoom } from "./open-targets.ts";

/** What a request's ticket tells its queue. */
export interface TicketOwner<Target extends AdmissionTarget> {
  left(request: WaitingRequest<Target>): void;
  /** It made an engine compute so many tokens. */
  served(request: WaitingRequest<Target>, tokens: number): void;
}

/**
 * What a token of an answer counts beside one of a prompt, as in the paper that `ServedTokens` follows: it takes the
 * engine longer.
 */
const outputTokenWeight = 2;

/**
 * Of the time until its first token is due a request waits two fifths in the router at most, and goes to no engine whose prompts
 * need a fifth: the rest is for its own prompt, for answers that run beside it, and for what was not foreseen.
 */
const queueShare = 0.4;
const engineShare = 0.2;

interface WaitingRequestOptions<Target extends AdmissionTarget>
  extends Pick<Entry, "request" | "sequence" | "arrivedMs" | "uncachedTokens"> {
  readonly owner: TicketOwner<Target>;
  readonly listener: AdmissionListener<Target>;
  readonly line: ClassLine<Target>;
}

/** One request, from its arrival until its answer has ended. */
export class WaitingRequest<Target extends AdmissionTarget> implements Entry, AdmissionTicket, WantedRoom {
  readonly request: AdmissionRequest;
  readonly listener: AdmissionListener<Target>;
  readonly sequence: number;
  readonly arrivedMs: number;
  readonly uncachedTokens: number;
  dueMs: number;
  leaveByMs: number;
  maxPendingMs: number;
  /** Of its class. */
  line: ClassLine<Target>;
  isWaiting = false;
  waitedMs = 0;
  readonly #owner: TicketOwner<Target>;
  #isDispatched = false;
  #isEnded = false;

  constructor(options: WaitingRequestOptions<Target>) {
    this.request = options.request;
    this.listener = options.listener;
    this.sequence = options.sequence;
    this.arrivedMs = options.arrivedMs;
    this.uncachedTokens = options.uncachedTokens;
    this.line = options.line;
    this.#owner = options.owner;
    const targetMs = this.request.deadlineMs ?? this.line.settings.targetMs ?? Number.POSITIVE_INFINITY;
    this.dueMs = this.arrivedMs + targetMs;
    this.leaveByMs = this.arrivedMs + queueShare * targetMs;
    this.maxPendingMs = engineShare * targetMs;
  }

  get maxPendingTokens(): number {
    return this.line.settings.maxPendingTokens;
  }

  get yields(): boolean {
    return this.line.settings.yields;
  }

  get onlyEngine(): string | undefined {
    return this.request.onlyEngine;
  }

  /** What it wants when others are to find engines with no more to do than this. @param maxPendingMs of computing */
  within(maxPendingMs: number): WantedRoom {
    if (this.maxPendingMs <= maxPendingMs) return this;
    const { maxPendingTokens, yields, onlyEngine } = this;
    return { maxPendingMs, maxPendingTokens, yields, onlyEngine };
  }

  /** Its deadline counts no more. */
  forgetDeadline(): void {
    this.dueMs = Number.POSITIVE_INFINITY;
    this.leaveByMs = Number.POSITIVE_INFINITY;
    this.maxPendingMs = Number.POSITIVE_INFINITY;
  }

  get className(): string {
    return this.line.name;
  }

  leave(): void {
    if (this.isWaiting) this.#owner.left(this);
  }

  dispatched(uncachedTokens: number): void {
    if (this.#isDispatched) return;
    this.#isDispatched = true;
    this.line.computes(this.request.promptTokens, uncachedTokens);
    this.#owner.served(this, uncachedTokens);
  }

  ended(outputTokens: number): void {
    if (this.#isEnded || !this.#isDispatched || !(outputTokens > 0)) return;
    this.#isEnded = true;
    this.line.meters.tokens("output", outputTokens);
    this.#owner.served(this, outputTokenWeight * outputTokens);
  }
}
