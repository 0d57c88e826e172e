import type { Channel } from "./link.ts";

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
  /** Least time between two beginnings of a dial to the same address; up to a quarter is added at random. */
  readonly redialMs: number;
  /** A link on which nothing was heard for so long gives way to a new connection of the same router. */
  readonly silentMs: number;
  /** Bytes of the largest frame of any channel. At most what the transport lets through, less two. */
  readonly maxFrameBytes: number;
  /** Bytes that may wait on each channel. */
  readonly queueBytes: Readonly<Record<Channel, number>>;
  /**
   * Bytes of a channel that may be on their way, not yet dealt with by the other end; at least `creditBytes`. It keeps
   * the buffers of the operating systems, which nobody sees, from filling with what load would have to wait for.
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
