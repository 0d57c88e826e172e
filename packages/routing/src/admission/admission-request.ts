import type { EspalierError } from "@espalier/core";

/** A request as admission sees it. */
export interface AdmissionRequest {
  /** Undefined, or an unknown class name, means the default class. */
  readonly className: string | undefined;
  /** Requests of one tenant share its turns. */
  readonly tenant: string;
  readonly promptTokens: number;
  /** 0 when unknown. */
  readonly expectedOutputTokens: number;
  /** Size of its body in memory. */
  readonly sizeBytes: number;
  /** Milliseconds from now in which the first token is due; the class's own target when undefined. */
  readonly deadlineMs: number | undefined;
  /** The only engine that can serve it. */
  readonly onlyEngine: string | undefined;
  /** Where it has to wait behind this many or more, it is refused with `queue_full` instead; undefined for no bound. */
  readonly maxAhead?: number | undefined;
}

/** The caller that waits for admission. */
export interface AdmissionListener<Target extends AdmissionTarget> {
  /** The pool's targets now, whatever their state. The same array until they change. */
  targets(): readonly Target[];
  /**
   * Prompt tokens that the engine with the most of them cached would compute. Asked once, when the request is queued.
   *
   * @returns undefined if that is not known: the share that recent requests of its class had is assumed
   */
  uncachedTokens?(): number | undefined;
  /**
   * Whether some engine can take the request without evicting cache blocks that are expected to be reused. Only asked for
   * classes with a max cold wait, and not for a request with a deadline. Always true when absent.
   */
  fitsInMemory?(): boolean;
  /**
   * The request may go to one of these targets. It must be charged to one before this returns, because the next
   * request's turn follows immediately.
   */
  admitted(targets: readonly Target[], ticket: AdmissionTicket): void;
  /** It is refused with `queue_full`, `deadline_missed`, or `no_engine_available` after waiting for an engine. */
  refused(error: EspalierError): void;
}

/** Why admission left a usable target out: the request's class keeps to other engines, or the target is saturated. */
export type AdmissionExclusion = "class_partition" | "saturated";

/** A request's place in the queue; later it reports what the request made an engine compute. */
export interface AdmissionTicket {
  /** Queued, or parked for memory. */
  readonly isWaiting: boolean;
  /** How long it waited, in milliseconds; 0 while it does. */
  readonly waitedMs: number;
  /** The class it is in, which a missed deadline may have lowered. */
  readonly className: string;
  /** By key, the usable targets among which it was not admitted. */
  readonly excluded: ReadonlyMap<string, AdmissionExclusion>;
  /** Whether that class yields to others. */
  readonly yields: boolean;
  /** The client has left: removes the request from the queue at once. No effect once the request has left it. */
  leave(): void;
  /** Sent to an engine that has to compute this many tokens of its prompt. */
  dispatched(uncachedTokens: number): void;
  /** Its answer ended after this many tokens. */
  ended(outputTokens: number): void;
}

/** One rank of an engine as admission sees it: the load part of a routing target. */
export interface AdmissionTarget {
  /** Place in the arrays of `PeerLoad`. */
  readonly index: number;
  /** The same in every router. */
  readonly key: string;
  readonly usable: boolean;
  readonly engine: { readonly id: string; readonly role: string; readonly weight: number };
  readonly load: {
    readonly inFlight: number;
    /** Those of classes that yield. */
    readonly yieldingInFlight: number;
    readonly pendingPrefillTokens: number;
    /** Expected milliseconds of work on prompts that have no first token yet. */
    readonly pendingWorkMs: number;
  };
  /** The engine's own metrics; NaN where it does not report one. */
  readonly signals: {
    readonly waiting: number;
    readonly kvUse: number;
    readonly inFlightAtScrape: number;
    ageMs(): number;
  };
}

/** Load sent by other routers, by target index; 0 beyond the end of an array. */
export interface PeerLoad {
  readonly inFlight: Float64Array;
  readonly yieldingInFlight: Float64Array;
  readonly pendingPrefillTokens: Float64Array;
  readonly pendingWorkMs: Float64Array;
}

export const noPeerLoad: PeerLoad = {
  inFlight: new Float64Array(),
  yieldingInFlight: new Float64Array(),
  pendingPrefillTokens: new Float64Array(),
  pendingWorkMs: new Float64Array(),
};
