import type { Origin } from "@espalier/replication";

/**
 * Channels of a link, in the order in which their frames go out when several wait. `load` and `membership` never wait
 * behind documents; `bulk` (snapshots, diffs) has a credit of its own; `notes` wait for all else, and go only to peers
 * that have the capability of this name.
 */
export const channels = ["load", "membership", "documents", "bulk", "notes"] as const;

export type Channel = (typeof channels)[number];

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

/** Why a link has ended. `reset`: the other end is gone; `silent`: nothing was heard for too long. */
export type LinkEnd =
  | "goodbye"
  | "reset"
  | "silent"
  | "replaced"
  | "stopped"
  | "frame-invalid"
  | "update-refused"
  | "buffer-full";

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
  /** Throwing an EspalierError closes the link with that reason. */
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

/** Why a handshake is refused; sent to the other end, logged and counted on both. */
export type RejectReason =
  | "protocol-version"
  | "cluster-name"
  | "fleet-seed"
  | "block-size"
  | "secret"
  | "self"
  | "router-id-taken"
  | "epoch-behind"
  | "handshake-invalid"
  | "handshake-timeout"
  | "too-many-peers";

/** Bounds and times of links. */
export interface LinkLimits {
  /** Other routers at once. */
  readonly maxPeers: number;
  /** Connections from outside that have not finished the handshake, at once. */
  readonly maxHandshakes: number;
  /** Addresses that are dialed. */
  readonly maxAddresses: number;
  /** From the opening of a connection to the end of the handshake. */
  readonly handshakeTimeoutMs: number;
  /** Least time between two dials of the same address; up to a quarter is added at random. */
  readonly redialMs: number;
  /** A link on which nothing was heard for so long gives way to a new connection of the same router. */
  readonly silentMs: number;
  /** Bytes of the largest frame of any channel. At most what the transport lets through, less two. */
  readonly maxFrameBytes: number;
  /** Bytes that may wait on each channel. */
  readonly queueBytes: Readonly<Record<Channel, number>>;
  /**
   * Bytes of a channel that may be in flight, not yet processed by the other end; at least `creditBytes`. It keeps the
   * operating systems' buffers, which no meter sees, from filling up ahead of load frames.
   */
  readonly windowBytes: Readonly<Record<"documents" | "bulk", number>>;
}

const kib = 1_024;

export const defaultLinkLimits: LinkLimits = {
  maxPeers: 64,
  maxHandshakes: 64,
  maxAddresses: 256,
  handshakeTimeoutMs: 2_000,
  redialMs: 1_000,
  silentMs: 1_500,
  maxFrameBytes: 1_024 * kib - 2,
  queueBytes: { load: 256 * kib, membership: 64 * kib, documents: 4_096 * kib, bulk: 1_024 * kib, notes: 256 * kib },
  windowBytes: { documents: 512 * kib, bulk: 256 * kib },
};

/** Frames that an end may send before the handshake is done. */
export const maxHandshakeFrames = 3;
/** Bytes of one frame before the handshake is done. */
export const maxHandshakeFrameBytes = 4 * kib;
