import type { Scheduler } from "@espalier/common";
import type { Hash64 } from "@espalier/prefix-index";
import { type PromptBlocks, type PromptHasher, scratchChain } from "../prompt/prompt-blocks.ts";
import type { PromptRequest, PromptSource } from "../prompt-request.ts";

/** A prompt as the router looks it up: digests of its blocks, and how far they are an engine's own. */
export interface PromptView {
  /** What its blocks are cut from; the root of its chain belongs to one of the two. */
  readonly unit: "tokens" | "bytes";
  /** What made it: the model's tokenizer here, an engine, or nothing but the text. */
  readonly how: "tokens" | "engine" | "bytes";
  /** Tokens, or bytes of text. */
  readonly count: number;
  /** Digests of full blocks, two words each, the low one first. Shared: it never changes. */
  readonly contents: Uint32Array;
  /** How many full blocks there are. */
  readonly blocks: number;
  /** How many of them an engine's prompt surely begins with: up to the first part that is not text. 0 for bytes. */
  readonly textUntil: number;
  /** False when time was up: the blocks are those of the beginning that is known. */
  readonly complete: boolean;
}

/** How one mode sees prompts. */
export interface PromptMode {
  /** It may throw, or its promise be rejected: then the prompt is seen as bytes. */
  view(request: PromptRequest, source: PromptSource): PromptView | Promise<PromptView>;
  /**
   * As `view`, for a prompt whose beginning may be known by the bytes of the body. It may throw, or its promise be rejected,
   * as well.
   *
   * @returns undefined when the prompt has to be read as a whole
   */
  readonly resume?: (request: PromptRequest) => PromptView | Promise<PromptView> | undefined;
  /** See `ChatRenderer`. A mode without it sees requests of other APIs as bytes. */
  readonly asChat?: (request: PromptRequest) => PromptRequest | undefined;
}

/** How long a request waits for its tokens unless configured, in milliseconds. */
export const defaultBudgetMs = 20;

/**
 * What `work` comes to, or what `meanwhile` gives when that takes longer than the budget. Work past its budget goes
 * on, and its outcome is ignored.
 *
 * @throws what `work` is rejected with in time
 */
export function withinBudget<T>(
  work: Promise<T>,
  {
    scheduler,
    budgetMs,
    meanwhile,
  }: { readonly scheduler: Scheduler; readonly budgetMs: number; readonly meanwhile: () => T },
): Promise<T> {
  return new Promise((resolve, reject) => {
    const cancel = scheduler.after(budgetMs, () => resolve(meanwhile()));
    work.then(resolve, reject).finally(cancel);
  });
}

/** @param how what made the tokens */
export function viewOfBlocks(prompt: PromptBlocks, how: "tokens" | "engine", complete: boolean): PromptView {
  const blocks = prompt.contents.length / 2;
  return {
    unit: "tokens",
    how,
    count: prompt.tokenCount,
    contents: prompt.contents,
    blocks,
    textUntil: blocks,
    complete,
  };
}

const anyParent: Hash64 = { low: 0, high: 0 };

/** Digests of the full blocks of a text's UTF-8, and its length in bytes. */
export function digestText(
  text: string,
  blockBytes: number,
  hasher: PromptHasher,
): { readonly contents: Uint32Array; readonly sizeBytes: number } {
  const sizeBytes = Buffer.byteLength(text);
  const words = 2 * Math.floor(sizeBytes / blockBytes);
  const contents = new Uint32Array(words);
  hasher.blocks.hashText({ text, blockBytes, parent: anyParent, chain: scratchChain(words), contents });
  return { contents, sizeBytes };
}

/** The view of a text that was not tokenised. */
export function viewOfText(text: string, blockBytes: number, hasher: PromptHasher): PromptView {
  const { contents, sizeBytes } = digestText(text, blockBytes, hasher);
  return viewOfBytes(contents, sizeBytes);
}

/** The same of a text's UTF-8. */
export function viewOfUtf8(bytes: Uint8Array, blockBytes: number, hasher: PromptHasher): PromptView {
  const words = 2 * Math.floor(bytes.length / blockBytes);
  const contents = new Uint32Array(words);
  hasher.blocks.hashBytes({ bytes, blockBytes, parent: anyParent, chain: scratchChain(words), contents });
  return viewOfBytes(contents, bytes.length);
}

function viewOfBytes(contents: Uint32Array, sizeBytes: number): PromptView {
  const blocks = contents.length / 2;
  return { unit: "bytes", how: "bytes", count: sizeBytes, contents, blocks, textUntil: 0, complete: true };
}
