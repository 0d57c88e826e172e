import { type Cancel, EspalierError } from "@espalier/core";
import type { Origin } from "../origin.ts";

/** A frame that a replica makes of what it knows about another origin. */
export interface RelayFrame {
  readonly origin: Origin;
  readonly frame: Uint8Array;
}

/** The outcome of a frame. */
export interface Received {
  /** The origin that it speaks for. */
  readonly origin: Origin;
  /** Whether it had news, which should be passed on. */
  readonly isNews: boolean;
}

/**
 * A leased plane as the carriers of its frames see it. Routers send each other absolute values, so a later frame
 * replaces an earlier one, and a lost one costs nothing once the next arrives.
 */
export interface PlaneExchange {
  /** Calls the listener with every frame of the own origin that should go to all peers. */
  onFrame(listener: (frame: Uint8Array) => void): Cancel;
  /** Sets to how many peers each of these frames goes. */
  setPeerCount?(count: number): void;
  /** The whole state of the own origin, for a peer that has just come. */
  fullFrames(): readonly Uint8Array[];
  /** The known state of other origins, for a peer that cannot hear them itself. */
  relayFrames(): readonly RelayFrame[];
  /**
   * Takes a frame of another origin.
   *
   * @param isCredible whether the frame may speak for an origin: a later epoch outweighs an earlier one for good.
   *   Default: it may
   * @param linkDelayMs one way over the link that it came by, as measured; NaN, the default, where that is unknown
   * @returns undefined for an unknown kind
   * @throws EspalierError `mesh_frame_invalid`
   */
  receive(frame: Uint8Array, isCredible?: (origin: Origin) => boolean, linkDelayMs?: number): Received | undefined;
  /** What later versions have added to its frames, if anything. */
  readonly addition?: FrameAddition;
}

/** What only routers with a capability can read. */
interface FrameAddition {
  readonly capability: string;
  /** The frame for routers that lack the capability. */
  without(frame: Uint8Array): Uint8Array;
}

/** The gauges of a replica as their carriers to other replicas see them. They go ahead of everything else. */
export interface LoadExchange extends PlaneExchange {
  /** With many peers, changes are gathered for longer. */
  setPeerCount(count: number): void;
  receive(frame: Uint8Array, isCredible?: (origin: Origin) => boolean, linkDelayMs?: number): Received;
  /** Whether an origin is heard and has reported each of its targets. */
  hasAllOf(origin: Origin): boolean;
  /** A link to this origin broke and its process is known to be gone: it counts zero at once. */
  originGone(origin: Origin): void;
}

/**
 * Makes one exchange of several; the first byte of a frame says which one it is for. Frames of other kinds are ignored.
 */
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
    receive: (frame, isCredible, linkDelayMs) => byKind.get(frame[0] ?? 0)?.receive(frame, isCredible, linkDelayMs),
  };
}

/**
 * Reads a frame of another router, which may contain anything.
 *
 * @param what names the kind of frame in the message
 * @throws EspalierError `mesh_frame_invalid` where `read` throws a RangeError, and for more than `maxBytes`
 */
export function readFrame<Frame>(
  bytes: Uint8Array,
  { what, maxBytes, read }: { readonly what: string; readonly maxBytes: number; read(bytes: Uint8Array): Frame },
): Frame {
  try {
    if (bytes.length > maxBytes) throw new RangeError(`${bytes.length} bytes are too many`);
    return read(bytes);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new EspalierError("mesh_frame_invalid", `A frame of ${what}: ${error.message}.`, { cause: error });
  }
}

/**
 * Splits items into as few lists as fit into frames, in their order; none when there are no items.
 *
 * @param sizeOf upper bound of an item's bytes
 */
export function splitIntoFrames<Item>(
  items: readonly Item[],
  { maxBytes, maxItems, sizeOf }: { readonly maxBytes: number; readonly maxItems: number; sizeOf(item: Item): number },
): Item[][] {
  const lists: Item[][] = [];
  let bytes = 0;
  for (const item of items) {
    const more = sizeOf(item);
    const list = lists.at(-1);
    if (!list || bytes + more > maxBytes || list.length === maxItems) {
      lists.push([item]);
      bytes = more;
    } else {
      list.push(item);
      bytes += more;
    }
  }
  return lists;
}
