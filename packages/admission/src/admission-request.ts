import type { EspalierError } from "@espalier/common";

/** What admission knows of a request. */
export interface AdmissionRequest {
  /** Undefined, or a name that is no class, stands for the default class. */
  readonly className: string | undefined;
  /** Whose requests share a turn. */
  readonly tenant: string;
  readonly promptTokens: number;
  /** 0 when unknown. */
  readonly expectedOutputTokens: number;
  /** Size of its body in memory. */
  readonly sizeBytes: number;
  /** Milliseconds from now in which the first token is due; the class's own target when undefined. */
  readonly deadlineMs: number | undefined;
  /** The only engine that will do. */
  readonly onlyEngine: string | undefined;
}

/** Who wants to be admitted. */
export interface AdmissionListener<Target extends AdmissionTarget> {
  /** The pool's targets now, whatever their state. The same array until they change. */
  targets(): readonly Target[];
  /**
   * Whether the request does no harm to what engines have in memory. While it does, one of a class with patience waits; any
   * other is not asked about, nor is one with a deadline. Never does harm when absent.
   */
  mayGo?(): boolean;
  /**
   * The request goes to one of these: those that have room for it. They have to be charged with it before this
   * returns, for the next request's turn comes right after.
   */
  admitted(targets: readonly Target[], ticket: AdmissionTicket): void;
  /** It does not go: `queue_full` or `deadline_missed`. */
  refused(error: EspalierError): void;
}

/** A request's place in the queue, and later what it made an engine compute. */
export interface AdmissionTicket {
  /** Still waiting, for its turn or for memory. */
  readonly isWaiting: boolean;
  /** How long it waited, in milliseconds; 0 while it does. */
  readonly waitedMs: number;
  /** The class it is in, which a missed deadline may have lowered. */
  readonly className: string;
  /** The client is gone: leaves the queue at once. Nothing happens to a request that waits no more. */
  leave(): void;
  /** Sent to an engine that has to compute so many tokens of its prompt. */
  dispatched(uncachedTokens: number): void;
  /** Its answer ended with so many tokens in all. */
  ended(outputTokens: number): void;
}

/** An engine's rank as admission sees it: the part of a routing target that tells of load. */
export interface AdmissionTarget {
  /** Place in the arrays of `OthersLoad`. */
  readonly index: number;
  /** The same in every router. */
  readonly key: string;
  readonly usable: boolean;
  readonly engine: { readonly id: string; readonly role: string; readonly weight: number };
  readonly load: {
    readonly inFlight: number;
    readonly pendingPrefillTokens: number;
    /** Milliseconds that it is expected to compute on prompts without a first token. */
    readonly pendingWorkMs: number;
  };
  /** What its own metrics say; NaN for what they do not. */
  readonly signals: {
    readonly waiting: number;
    readonly kvUse: number;
    readonly inFlightAtScrape: number;
    ageMs(): number;
  };
}

/** What other routers have sent, by index of the target; shorter arrays mean nothing. */
export interface OthersLoad {
  readonly inFlight: Float64Array;
  readonly pendingPrefillTokens: Float64Array;
  readonly pendingWorkMs: Float64Array;
}

export const noOthersLoad: OthersLoad = {
  inFlight: new Float64Array(),
  pendingPrefillTokens: new Float64Array(),
  pendingWorkMs: new Float64Array(),
};
