import type { AdmissionMeters, ClassMeters } from "./admission-meters.ts";
import type { AdmissionListener, AdmissionRequest, AdmissionTarget, AdmissionTicket } from "./admission-request.ts";
import { ClassQueue, type Entry } from "./class-queue.ts";
import type { FleetUsage } from "./fair-share.ts";
import type { AdmissionSettings, ClassSettings } from "./settings.ts";
import type { WantedRoom } from "./unsaturated-targets.ts";

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

/** What one more request weighs in a class's average of what caches lack. */
const shareMemory = 0.02;

/** One class of a pool: who waits in it, and what its requests have been like. */
export class ClassLine<Target extends AdmissionTarget> {
  readonly name: string;
  readonly settings: ClassSettings;
  /** 0 for the highest class. */
  readonly rank: number;
  readonly queue: ClassQueue<WaitingRequest<Target>>;
  readonly meters: ClassMeters;
  /** Part of a prompt that no cache has, on average. */
  #uncachedShare = 1;

  constructor(settings: ClassSettings, rank: number, parts: { meters: AdmissionMeters; fleet: FleetUsage }) {
    this.name = settings.name;
    this.settings = settings;
    this.rank = rank;
    this.queue = new ClassQueue(settings, parts.fleet);
    this.meters = parts.meters.of(settings.name);
  }

  /** Tokens of such a prompt that an engine will have to compute, as was usual lately. */
  expectUncached(promptTokens: number): number {
    return Math.max(1, promptTokens * this.#uncachedShare);
  }

  /** An engine has to compute so many tokens of a prompt. */
  computes(promptTokens: number, uncachedTokens: number): void {
    this.meters.tokens("prompt", uncachedTokens);
    const share = promptTokens > 0 ? Math.min(1, uncachedTokens / promptTokens) : 1;
    this.#uncachedShare += shareMemory * (share - this.#uncachedShare);
  }
}

/** The lines of all classes, the highest first. */
export function createLines<Target extends AdmissionTarget>(
  { classes }: AdmissionSettings,
  parts: { readonly meters: AdmissionMeters; readonly fleet: FleetUsage },
): readonly ClassLine<Target>[] {
  return classes.map((settings, rank) => new ClassLine<Target>(settings, rank, parts));
}
