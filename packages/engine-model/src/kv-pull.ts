/** A part of a prompt, in tokens from its start. Both ends are whole blocks. */
export interface TokenRange {
  readonly fromTokens: number;
  readonly toTokens: number;
}

/**
 * Another engine's CPU memory, as one request may use it (vLLM's P2P tier, `remote_kv_source`). Blocks go from CPU memory
 * to CPU memory.
 */
export interface RemoteSource {
  /**
   * Begins a pull of what the source has of a prompt. It must not call the receiver before it returns.
   *
   * @returns cancels the pull; the receiver is not called after that
   */
  pull(range: TokenRange, receiver: PullReceiver, timeMs: number): CancelPull;
}

export type CancelPull = (timeMs: number) => void;

/** The engine that pulls. Times of calls do not lie before the pull. */
export interface PullReceiver {
  /** The source has the blocks up to `toTokens`, and will send them. Not called when it has none. */
  found(toTokens: number, timeMs: number): void;
  /** The pull is over: the blocks up to `toTokens` have arrived; none when that is where the pull began. Called once. */
  done(toTokens: number, timeMs: number): void;
}

/** Blocks in CPU memory that stay there for another engine. */
export interface KvHold {
  /** Where they end, in tokens from the start of the prompt. */
  readonly toTokens: number;
  /**
   * Gives them back. The second call does nothing.
   *
   * @returns whether they were still there: a reset of the cache takes them, too
   */
  release(): boolean;
}
