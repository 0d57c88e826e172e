/** The limits of one feed. */
export interface FeedLimits {
  /** Most messages buffered ahead of a missing one. */
  readonly reorderMessages: number;
  readonly reorderBytes: number;
  /** How long a missing message may still arrive by itself. */
  readonly reorderWaitMs: number;
  /** Most messages queued for processing or for the end of a replay. */
  readonly pendingMessages: number;
  readonly pendingBytes: number;
  /** How long a backlog of unread or unprocessed messages may last before the feed is behind. */
  readonly behindMs: number;
  /** How many of the latest messages keep their checksum, 4 bytes each. */
  readonly rememberedMessages: number;
  /** A replay without an answer for this long has stalled. */
  readonly replayIdleMs: number;
  readonly replayTotalMs: number;
  /** Most requests in one replay: the first, and those that resume it after a break. */
  readonly replayRequests: number;
  /** How long to wait after a failed replay before the next one. */
  readonly replayCooldownMs: number;
  /** After this much silence the engine is asked once whether its last messages were lost. */
  readonly quietCheckMs: number;
  /** How long to wait before trying an unusable endpoint again. */
  readonly reopenMs: number;
}

export const defaultFeedLimits: FeedLimits = {
  reorderMessages: 256,
  reorderBytes: 4 * 1024 * 1024,
  reorderWaitMs: 20,
  pendingMessages: 4_096,
  pendingBytes: 32 * 1024 * 1024,
  behindMs: 500,
  rememberedMessages: 4_096,
  replayIdleMs: 2_000,
  replayTotalMs: 120_000,
  replayRequests: 16,
  replayCooldownMs: 30_000,
  quietCheckMs: 5_000,
  reopenMs: 10_000,
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
