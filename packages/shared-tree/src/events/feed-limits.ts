/** The limits of one feed. */
export type FeedLimits = Readonly<typeof defaultFeedLimits>;

export const defaultFeedLimits = {
  /** Most messages buffered ahead of a missing one. */
  reorderMessages: 256,
  reorderBytes: 4 * 1024 * 1024,
  /** How long a missing message may still arrive by itself. */
  reorderWaitMs: 20,
  /** Most messages queued for processing or for the end of a replay. */
  pendingMessages: 4_096,
  pendingBytes: 32 * 1024 * 1024,
  /** How long a backlog of unread or unprocessed messages may last before the feed is behind. */
  behindMs: 500,
  /** How many of the latest messages keep their checksum, 4 bytes each. */
  rememberedMessages: 4_096,
  /** A replay without an answer for this long has stalled. */
  replayIdleMs: 2_000,
  replayTotalMs: 120_000,
  /** Most requests in one replay: the first, and those that resume it after a break. */
  replayRequests: 16,
  /** How long to wait after a failed replay before the next one. */
  replayCooldownMs: 30_000,
  /** After this much silence the engine is asked once whether its last messages were lost. */
  quietCheckMs: 5_000,
  /** How long to wait before trying an unusable endpoint again: at first, and at most. */
  reopenMs: 10_000,
  maxReopenMs: 120_000,
};

/** @throws RangeError for a limit that is not a positive whole number up to 2^31 - 1 */
export function completeFeedLimits(limits: Partial<FeedLimits>): FeedLimits {
  const complete = { ...defaultFeedLimits, ...limits };
  for (const [name, limit] of Object.entries(complete)) {
    if (!Number.isInteger(limit) || limit < 1 || limit > 0x7fff_ffff) {
      throw new RangeError(`${name} must be a whole number from 1 to 2^31 - 1, not ${limit}`);
    }
  }
  return complete;
}
