import type { Cancel } from "@espalier/common";
import type { Origin } from "../origin.ts";

/** A frame that a replica makes of what it knows of another origin. */
export interface RelayFrame {
  readonly origin: Origin;
  readonly frame: Uint8Array;
}

/** What became of a frame. */
export interface Received {
  /** Whom it speaks for. */
  readonly origin: Origin;
  /** Whether it told anything new, so that it is worth passing on. */
  readonly isNews: boolean;
}

/**
 * A leased plane as those see it who carry its frames to other replicas: what routers tell each other in absolute values, so
 * that a later frame takes the place of an earlier one, and a lost one costs nothing once the next comes.
 */
export interface PlaneExchange {
  /** Told of every frame of the own origin that is to go to all peers. */
  onFrame(listener: (frame: Uint8Array) => void): Cancel;
  /** To how many peers each of these frames goes. */
  setPeerCount?(count: number): void;
  /** All that is to be said of the own origin, for a peer that has just come. */
  fullFrames(): readonly Uint8Array[];
  /** All that is known of other origins, for a peer that cannot hear them itself. */
  relayFrames(): readonly RelayFrame[];
  /**
   * Takes a frame of another origin.
   *
   * @param isCredible whether the frame may speak for an origin; asked by planes of which a later life outweighs an earlier one
   *   for good. Default: it may
   * @returns undefined for a kind that is not known
   * @throws EspalierError `mesh_frame_invalid`
   */
  receive(frame: Uint8Array, isCredible?: (origin: Origin) => boolean): Received | undefined;
}

/** Makes one exchange of several, each for the frames that begin with a byte of their own. Frames of other kinds are ignored. */
export function joinPlanes(byKind: ReadonlyMap<number, PlaneExchange>): PlaneExchange {
  const all = [...byKind.values()];
  return {
    onFrame(listener) {
      const cancels = all.map((each) => each.onFrame(listener));
      return () => {
        for (const cancel of cancels) cancel();
      };
    },
    fullFrames: () => all.flatMap((each) => each.fullFrames()),
    relayFrames: () => all.flatMap((each) => each.relayFrames()),
    receive: (frame) => byKind.get(frame[0] ?? 0)?.receive(frame),
  };
}
