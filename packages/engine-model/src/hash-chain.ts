/** What a cache must know of one request: the chained hashes of its full blocks, two 32-bit lanes per block. */
export interface HashChain {
  readonly promptTokens: number;
  /** Tokens of the prompt and of the whole output. */
  readonly totalTokens: number;
  /** Lanes of block `i` at `2 i` and `2 i + 1`; valid as far as `hashBlocks` was asked to go. */
  readonly lanes: Uint32Array;
  readonly adapter: string | undefined;
  /** Makes the lanes of the first `blocks` blocks valid. Their tokens must be known. */
  hashBlocks(blocks: number): void;
}
