import type { Cancel } from "@espalier/common";
import type { Origin } from "../origin.ts";

/** What one router has sent to one target and not seen end. Whole numbers from 0. */
export interface LoadGauge {
  readonly inFlight: number;
  /** Prompt tokens to be computed for requests that have not produced a token. */
  readonly pendingPrefillTokens: number;
  /** Context tokens of requests past their first token. */
  readonly decodeTokens: number;
  /** Milliseconds that the engine is expected to compute on those prompts. */
  readonly pendingWorkMs: number;
  /** Tokens in prompt blocks of all those requests, each block once; 0 where no account of them is kept. */
  readonly activeTokens: number;
}

/** Sums over the other routers whose leases run, by slot of the target. Read on the request path. */
export interface SharedLoad {
  readonly inFlight: Float64Array;
  readonly pendingPrefillTokens: Float64Array;
  readonly decodeTokens: Float64Array;
  readonly pendingWorkMs: Float64Array;
  readonly activeTokens: Float64Array;
  /**
   * Such work that was heard to come, all in all since `sinceMs`; it never goes down. What came and was computed between two
   * frames is not in it.
   */
  readonly sentWorkMs: Float64Array;
  /** When less of that work was last heard to be left, on the monotonic clock; -Infinity before the first time. */
  readonly computedMs: Float64Array;
  /** Since when there has been such work without a break; Infinity where there is none. */
  readonly pendingSinceMs: Float64Array;
  /** Since when others are heard, on the same clock. */
  readonly sinceMs: number;
  /** Other routers whose leases run. */
  readonly originCount: number;
  /** Milliseconds since the oldest gauge that is in the sums was heard; 0 when there is none. */
  ageMs(slot: number): number;
}

/** The gauges of a replica as those see them who carry them to other replicas. */
export interface LoadExchange {
  /** Told of every frame of the own gauges that is to go to all peers at once, ahead of everything else. */
  onFrame(listener: (frame: Uint8Array) => void): Cancel;
  /** To how many peers each of these frames goes: with many of them, changes are gathered for longer. */
  setPeerCount(count: number): void;
  /** All own gauges, as far as a frame reaches, for a peer that has just come. Heartbeats bring the rest. */
  fullFrame(): Uint8Array;
  /** All gauges of other origins that are known, a frame each, for a peer that cannot hear them itself. */
  relayFrames(): readonly { readonly origin: Origin; readonly frame: Uint8Array }[];
  /**
   * Takes a frame of another origin.
   *
   * @param isCredible whether it may speak for an origin; a later life of a router takes the place of the one before for good.
   *   Default: all may
   * @returns the origin it speaks for, and whether it told anything new, so that it is worth passing on
   * @throws EspalierError `mesh_frame_invalid`
   */
  receive(
    frame: Uint8Array,
    isCredible?: (origin: Origin) => boolean,
  ): { readonly origin: Origin; readonly isNews: boolean };
  /** Whether an origin is heard and has told of each of its targets. */
  hasAllOf(origin: Origin): boolean;
  /** A link to this origin broke and its process is known to be gone: it counts zero at once. */
  originGone(origin: Origin): void;
}
