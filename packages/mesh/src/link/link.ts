import type { Clock, Logger, Meter, Random, Scheduler } from "@espalier/core";
import type { Origin } from "../origin.ts";
import type { Channel, LinkEnd, RejectReason } from "../wire/link-frames.ts";

/** What the parts of a mesh see of their process. */
export interface ProcessPorts {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly logger: Logger;
  readonly meter: Meter;
}

/** What the other end of a link has proved or said of itself. */
export interface PeerIdentity {
  readonly origin: Origin;
  /** Where it can be dialed, `host:port`; undefined when it cannot. */
  readonly address: string | undefined;
  /** The protocol version that both ends speak. */
  readonly version: number;
  /** Names of the optional parts of the protocol that it supports. */
  readonly capabilities?: readonly string[];
}

/** An authenticated connection to another router. */
export interface Link {
  readonly peer: PeerIdentity;
  /**
   * Queues a frame. Frames of one channel keep their order.
   *
   * @returns false when it was dropped because too much waits on that channel: documents must be resynced by a diff
   *   once `onDrained` reports capacity again
   */
  send(channel: Channel, frame: Uint8Array): boolean;
  /** Bytes that wait, the socket's own buffer included. */
  readonly bufferedBytes: number;
  /** Bytes that wait on one channel. */
  waitingBytes(channel: Channel): number;
  /** Round trip of the latest probe in milliseconds; NaN before the first. */
  roundTripMs: number;
  readonly stats: LinkStats;
  close(why: LinkEnd): void;
}

export interface LinkStats {
  sentBytes: number;
  receivedBytes: number;
  sentFrames: number;
  receivedFrames: number;
  /** Frames dropped because too much waited. */
  droppedFrames: number;
  /** On the monotonic clock. */
  lastHeardMs: number;
}

/** Sees what happens on links, synchronously. */
export interface LinkObserver {
  up(link: Link): void;
  /** `isRefused`: the address refuses connections, so the process that listened there is gone. */
  down(link: Link, why: LinkEnd): void;
  /** Throwing what `isPeersFault` closes the link. */
  frame(link: Link, channel: Channel, frame: Uint8Array): void;
  /** A channel that had dropped frames has capacity again. */
  drained(link: Link, channel: Channel): void;
  /** An address could not be dialed, or its handshake failed. */
  dialFailed(address: string, why: DialFailure): void;
}

/** `refused`: nothing listens there. `timeout`: no answer. `rejected`: the handshake failed, with the named reason. */
export type DialFailure =
  | { readonly kind: "refused" | "timeout" | "unreachable" }
  | { readonly kind: "rejected"; readonly reason: RejectReason; readonly detail: string };

const kib = 1_024;

/** Bounds and times of links. */
export type LinkLimits = Readonly<typeof defaultLinkLimits>;

export const defaultLinkLimits = {
  /** Other routers at once. */
  maxPeers: 64,
  /** Connections from outside that have not finished the handshake, at once. */
  maxHandshakes: 64,
  /** Addresses that are dialed. */
  maxAddresses: 256,
  /** From the opening of a connection to the end of the handshake. */
  handshakeTimeoutMs: 2_000,
  /** Least time between two dials of the same address; up to a quarter is added at random. */
  redialMs: 1_000,
  /** A link on which nothing was heard for so long gives way to a new connection of the same router. */
  silentMs: 1_500,
  /** Bytes of the largest frame of any channel. At most what the transport lets through, less two. */
  maxFrameBytes: 1_024 * kib - 2,
  /** Bytes that may wait on each channel. */
  queueBytes: { load: 256 * kib, membership: 64 * kib, documents: 4_096 * kib, bulk: 1_024 * kib, notes: 256 * kib },
  /**
   * Bytes of a channel that may be in flight, not yet processed by the other end; at least `creditBytes`. It keeps the
   * operating systems' buffers, which no meter sees, from filling up ahead of load frames.
   */
  windowBytes: { documents: 512 * kib, bulk: 256 * kib },
};

/** Frames that an end may send before the handshake is done. */
export const maxHandshakeFrames = 3;
/** Bytes of one frame before the handshake is done. */
export const maxHandshakeFrameBytes = 4 * kib;
