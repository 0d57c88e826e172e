import { AttachHints, type ChainPath } from "@espalier/prefix-index";

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

/** The latest prompts that were sent to targets whose events do not tell everything. */
export interface RecentPrompts {
  add(prompt: PromptBlocks): void;
  /** Where in one of them a run of blocks belongs, by its contents; see `AttachHints.find`. */
  readonly find: (contents: Uint32Array, blocks: number) => ChainPath | undefined;
}

/** About 12 MB. */
const maxRecentBlocks = 262_144;
const maxRecentPrompts = 4_096;

/** The oldest prompts go for new ones: an engine tells of a prompt's blocks within about a second of computing them. */
export function createRecentPrompts(
  bounds: { readonly maxRequests: number; readonly maxBlocks: number } = {
    maxRequests: maxRecentPrompts,
    maxBlocks: maxRecentBlocks,
  },
): RecentPrompts {
  const hints = new AttachHints(bounds);
  const kept: string[] = [];
  let added = 0;
  return {
    add({ contents, chain, blockCount }) {
      if (blockCount === 0 || blockCount > bounds.maxBlocks) return;
      const key = String(added++);
      while (!hints.add(key, contents, chain, blockCount)) {
        const oldest = kept.shift();
        if (oldest === undefined) return;
        hints.remove(oldest);
      }
      kept.push(key);
    },
    find: (contents, blocks) => hints.find(contents, blocks),
  };
}
