/** The bounds of one feed. */
export interface FeedLimits {
  /** Messages that came before their turn. */
  readonly reorderMessages: number;
  readonly reorderBytes: number;
  /** How long a missing message may still come by itself. */
  readonly reorderWaitMs: number;
  /** Messages that wait to be processed, or for a replay to end. */
  readonly pendingMessages: number;
  readonly pendingBytes: number;
  /** How long messages may wait to be read and processed without an end before the feed is behind. */
  readonly behindMs: number;
  /** Latest messages whose checksum is kept, 4 bytes each. */
  readonly rememberedMessages: number;
  /** A replay that says nothing for so long has stalled. */
  readonly replayIdleMs: number;
  readonly replayTotalMs: number;
  /** Requests in one replay: the first and those that resume where it broke off. */
  readonly replayRequests: number;
  /** How long a failed replay is not tried again. */
  readonly replayCooldownMs: number;
  /** After so much silence the engine is asked once whether a last message was missed. */
  readonly quietCheckMs: number;
  /** How long after an endpoint could not be used it is tried again. */
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
