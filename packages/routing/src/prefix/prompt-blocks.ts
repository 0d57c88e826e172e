/** A request's prompt as the prefix index sees it. */
export interface PromptBlocks {
  /** Chain hashes of its full blocks, two words each, low word first. */
  readonly chain: Uint32Array;
  /** Hashes of the blocks' contents by themselves, in the same form. */
  readonly contents: Uint32Array;
  readonly blockCount: number;
  /** Tokens of a block. */
  readonly blockSize: number;
  /** Tokens of the whole prompt; estimated when they come from bytes. */
  readonly tokens: number;
  /**
   * `tokens`: the tokens are known to the end of the prompt. `partial`: only those of its beginning, because the budget
   * ran out or something in it is no text. `bytes`: blocks of bytes, which events of engines know nothing of.
   */
  readonly from: "tokens" | "partial" | "bytes";
}
