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
