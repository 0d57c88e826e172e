import type { TargetIndex } from "@espalier/core";
import { AttachHints, type ChainPath } from "@espalier/prefix-index";

/** A request's prompt as the prefix index sees it. */
export interface PromptBlocks {
  /** Chain hashes of its full blocks, two words each, low word first. */
  readonly chain: Uint32Array;
  /** Hashes of the blocks' own contents, in the same form. */
  readonly contents: Uint32Array;
  readonly blockCount: number;
  /** Tokens per block. */
  readonly blockSize: number;
  /** Tokens of the whole prompt; an estimate if they come from bytes. */
  readonly tokens: number;
  /**
   * `tokens`: all tokens of the prompt are known. `partial`: only those at its beginning, because the budget ran out or
   * a part is not text. `bytes`: blocks of bytes, which engines' events do not use.
   */
  readonly from: "tokens" | "partial" | "bytes";
  /** Learns from what becomes of the prompt; undefined where there is nothing to learn. */
  readonly learning?: PromptLearning;
}

/** What learns from the events of a target that computed a prompt. */
export interface PromptLearning {
  /** @param cachedTokens as the engine reports; undefined if it reports none */
  answered(target: LearnedTarget, cachedTokens: number | undefined): void;
}

export interface LearnedTarget {
  readonly index: TargetIndex;
  /** The same in every router. */
  readonly key: string;
  /** Tokens per block of its engine; NaN while unknown. */
  readonly blockSize: number;
}

/** The latest prompts sent to targets whose events are incomplete. */
export interface RecentPrompts {
  add(prompt: PromptBlocks): void;
  /** Finds the position of a run of blocks in one of them by its contents; see `AttachHints.find`. */
  readonly find: (contents: Uint32Array, blocks: number) => ChainPath | undefined;
}

/** About 12 MB. */
const maxRecentBlocks = 262_144;
/** Latest prompts kept to place floating blocks. */
const maxRecentPrompts = 4_096;

/** New prompts replace the oldest: an engine announces a prompt's blocks within about a second of computing them. */
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
