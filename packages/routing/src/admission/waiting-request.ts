import type { AdmissionMeters, ClassMeters } from "./admission-meters.ts";
import type {
  AdmissionExclusion,
  AdmissionListener,
  AdmissionRequest,
  AdmissionTarget,
  AdmissionTicket,
} from "./admission-request.ts";
import { ClassQueue, type Entry } from "./class-queue.ts";
import type { FleetUsage } from "./fair-share.ts";
import type { AdmissionSettings, ClassSettings } from "./settings.ts";
import { noneExcluded, type TargetDemand } from "./unsaturated-targets.ts";

/** The queue that a request's ticket reports to. */
export interface TicketOwner<Target extends AdmissionTarget> {
  left(request: WaitingRequest<Target>): void;
  /** The request made an engine compute this many tokens. */
  served(request: WaitingRequest<Target>, tokens: number): void;
}

/**
 * Weight of an output token relative to a prompt token, as in the paper that `ServedTokens` follows: an output token takes
 * the engine longer.
 */
const outputTokenWeight = 2;

/**
 * Shares of the time until the first token is due. A request waits at most two fifths in the router, and goes to no engine
 * with more than a fifth of pending work. The rest is for its own prompt, for concurrent decoding, and slack.
 */
const queueShare = 0.4;
export const engineShare = 0.2;

interface WaitingRequestOptions<Target extends AdmissionTarget>
  extends Pick<Entry, "request" | "sequence" | "arrivedMs" | "uncachedTokens"> {
  readonly owner: TicketOwner<Target>;
  readonly listener: AdmissionListener<Target>;
  readonly serviceClass: ServiceClass<Target>;
  readonly heldUntilMs: number;
}

/** One request from its arrival to the end of its answer. */
export class WaitingRequest<Target extends AdmissionTarget> implements Entry, AdmissionTicket, TargetDemand {
  readonly request: AdmissionRequest;
  readonly listener: AdmissionListener<Target>;
  readonly sequence: number;
  readonly arrivedMs: number;
  /** By its class's recent requests; by engines' caches once it is queued. */
  uncachedTokens: number;
  dueMs: number;
  /** When it has to leave the queue to be in time for its deadline; Infinity without one. */
  goByMs: number;
  /** Until when it waits while no engine is up; Infinity in a pool that does not scale from zero. */
  heldUntilMs: number;
  maxPendingMs: number;
  /** The queue of its class. */
  serviceClass: ServiceClass<Target>;
  isWaiting = false;
  /** Whether no engine was up when it was queued. */
  isHeld = false;
  waitedMs = 0;
  excluded: ReadonlyMap<string, AdmissionExclusion> = noneExcluded;
  readonly #owner: TicketOwner<Target>;
  #isDispatched = false;
  #isEnded = false;

  constructor(options: WaitingRequestOptions<Target>) {
    this.request = options.request;
    this.listener = options.listener;
    this.sequence = options.sequence;
    this.arrivedMs = options.arrivedMs;
    this.uncachedTokens = options.uncachedTokens;
    this.serviceClass = options.serviceClass;
    this.#owner = options.owner;
    const targetMs = this.request.deadlineMs ?? this.serviceClass.settings.targetMs ?? Number.POSITIVE_INFINITY;
    this.dueMs = this.arrivedMs + targetMs;
    this.goByMs = this.arrivedMs + queueShare * targetMs;
    this.heldUntilMs = options.heldUntilMs;
    this.maxPendingMs = engineShare * targetMs;
  }

  get leaveByMs(): number {
    return Math.min(this.goByMs, this.heldUntilMs);
  }

  get maxPendingTokens(): number {
    return this.serviceClass.settings.maxPendingTokens;
  }

  get yields(): boolean {
    return this.serviceClass.settings.yields;
  }

  get onlyEngine(): string | undefined {
    return this.request.onlyEngine;
  }

  get waitsForEngine(): boolean {
    return this.heldUntilMs < Number.POSITIVE_INFINITY && this.request.onlyEngine === undefined;
  }

  /** Its demand, with pending work limited further for the sake of a request before it. */
  within(maxPendingMs: number): TargetDemand {
    if (this.maxPendingMs <= maxPendingMs) return this;
    const { maxPendingTokens, yields, onlyEngine, waitsForEngine } = this;
    return { maxPendingMs, maxPendingTokens, yields, onlyEngine, waitsForEngine };
  }

  /** Drops its deadline. */
  forgetDeadline(): void {
    this.dueMs = Number.POSITIVE_INFINITY;
    this.goByMs = Number.POSITIVE_INFINITY;
    this.maxPendingMs = Number.POSITIVE_INFINITY;
  }

  get className(): string {
    return this.serviceClass.name;
  }

  leave(): void {
    if (this.isWaiting) this.#owner.left(this);
  }

  dispatched(uncachedTokens: number): void {
    if (this.#isDispatched) return;
    this.#isDispatched = true;
    this.serviceClass.computes(this.request.promptTokens, uncachedTokens);
    this.#owner.served(this, uncachedTokens);
  }

  ended(outputTokens: number): void {
    if (this.#isEnded || !this.#isDispatched || !(outputTokens > 0)) return;
    this.#isEnded = true;
    this.serviceClass.meters.tokens("output", outputTokens);
    this.#owner.served(this, outputTokenWeight * outputTokens);
  }
}

/** Weight of one request in a class's moving average of the uncached share. */
const shareMemory = 0.02;

/** One class of a pool: its queue and what its requests have been like. */
export class ServiceClass<Target extends AdmissionTarget> {
  readonly name: string;
  readonly settings: ClassSettings;
  /** 0 for the highest class. */
  readonly rank: number;
  readonly queue: ClassQueue<WaitingRequest<Target>>;
  readonly meters: ClassMeters;
  /** Moving average of the uncached part of a prompt. */
  #uncachedShare = 1;

  constructor(settings: ClassSettings, rank: number, parts: { meters: AdmissionMeters; fleet: FleetUsage }) {
    this.name = settings.name;
    this.settings = settings;
    this.rank = rank;
    this.queue = new ClassQueue(settings, parts.fleet);
    this.meters = parts.meters.of(settings.name);
  }

  /** Estimates the tokens of a prompt that an engine will have to compute, from recent requests. */
  expectUncached(promptTokens: number): number {
    return Math.max(1, promptTokens * this.#uncachedShare);
  }

  /** Records that an engine has to compute this many tokens of a prompt. */
  computes(promptTokens: number, uncachedTokens: number): void {
    this.meters.tokens("prompt", uncachedTokens);
    const share = promptTokens > 0 ? Math.min(1, uncachedTokens / promptTokens) : 1;
    this.#uncachedShare += shareMemory * (share - this.#uncachedShare);
  }
}

/** One per class, the highest first. */
export function createServiceClasses<Target extends AdmissionTarget>(
  { classes }: AdmissionSettings,
  parts: { readonly meters: AdmissionMeters; readonly fleet: FleetUsage },
): readonly ServiceClass<Target>[] {
  return classes.map((settings, rank) => new ServiceClass<Target>(settings, rank, parts));
}
