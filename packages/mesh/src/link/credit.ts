import type { Channel } from "./link.ts";

/**
 * Bytes of a channel after which the receiver gives credit for all of them. It is part of the protocol: a sender's window
 * must not be smaller, or both ends would wait for each other.
 */
export const creditBytes = 32 * 1_024;

/** Whether a channel's frames need credit; the small ones of the other channels never wait for it. */
export function needsCredit(channel: Channel): channel is "documents" | "bulk" {
  return channel === "documents" || channel === "bulk";
}
