/** Bounds and times of notes. Times in milliseconds on the monotonic clock. */
export interface NoteLimits {
  /** Notes of one router. */
  readonly maxNotes: number;
  /** Other routers whose notes are kept. */
  readonly maxOrigins: number;
  /** Bytes of the notes of all of them, keys counted in. */
  readonly maxHeldBytes: number;
  /** Own notes are told again so often: others may have missed them. */
  readonly refreshMs: number;
  /** A note that was not told again for so long is forgotten. */
  readonly forgetMs: number;
}

export const defaultNoteLimits: NoteLimits = {
  maxNotes: 64,
  maxOrigins: 256,
  maxHeldBytes: 16 * 1_024 * 1_024,
  refreshMs: 30_000,
  forgetMs: 1_800_000,
};
