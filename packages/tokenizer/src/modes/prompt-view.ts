import type { Hash64, Scheduler } from "@espalier/core";
import { type PromptBlocks, type PromptHasher, scratchChain } from "../prompt/prompt-blocks.ts";
import type { PromptRequest, PromptSource } from "../prompt-request.ts";

/** A prompt as the router looks it up: the digests of its blocks, and how many of them an engine surely has alike. */
export interface PromptView {
  /** The unit of its blocks, which determines the root of its chain. */
  readonly unit: "tokens" | "bytes";
  /** Its origin: the model's tokenizer here, an engine, or only the text. */
  readonly how: "tokens" | "engine" | "bytes";
  /** Tokens, or bytes of text. */
  readonly count: number;
  /** Digests of full blocks, two words each, low word first. Shared and immutable. */
  readonly contents: Uint32Array;
  /** Number of full blocks. */
  readonly blocks: number;
  /** How many of them an engine's prompt surely begins with: up to the first part that is not text. 0 for bytes. */
  readonly textUntil: number;
  /** False when the budget ran out: the blocks cover only the known beginning. */
  readonly complete: boolean;
  /** The prompt of a chat with images, audio or video, if the places of their placeholders are known. */
  readonly media?: MediaPrompt;
}

/** A prompt whose template writes placeholders for images, audio and video, which engines replace by others. */
export interface MediaPrompt {
  /** The prompt before the first one. */
  readonly before: PromptBlocks;
  /** The template's tokens after that: those up to the end of each part's placeholder, then those after the last. */
  readonly segments: readonly Uint32Array[];
  readonly parts: readonly MediaPart[];
  /** Whether the last segment ends the prompt, rather than a part without a place of its own. */
  readonly isWhole: boolean;
}

interface MediaPart {
  /** See `mediaHash`; undefined for content that only the engine has. */
  readonly hash: string | undefined;
  /** How many of the last tokens of its segment may be its placeholder. */
  readonly width: number;
}

/** How one mode views prompts. */
export interface PromptMode {
  /** May throw or reject: the prompt is then viewed as bytes. */
  view(request: PromptRequest, source: PromptSource): PromptView | Promise<PromptView>;
  /**
   * Like `view`, for a prompt whose beginning may be known by the bytes of the body. May throw or reject too.
   *
   * @returns undefined when the prompt must be read as a whole
   */
  readonly resume?: (request: PromptRequest) => PromptView | Promise<PromptView> | undefined;
  /** See `ChatRenderer`. A mode without it views requests of other APIs as bytes. */
  readonly asChat?: (request: PromptRequest) => PromptRequest | undefined;
}

/** Default time that a request waits for its tokens, in milliseconds. */
export const defaultBudgetMs = 20;

/**
 * The result of `work`, or that of `meanwhile` when the budget runs out. Work past its budget continues, and its
 * outcome is ignored.
 *
 * @throws the rejection of `work` within the budget
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

/** @param how the origin of the tokens */
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

/** Where there are no tokens, a block has as many bytes of text for each. */
export const textBytesPerToken = 4;

/** The view of a text without tokens. */
export function viewOfText(text: string, blockBytes: number, hasher: PromptHasher): PromptView {
  const { contents, sizeBytes } = digestText(text, blockBytes, hasher);
  return viewOfBytes(contents, sizeBytes);
}

/** The view of a text's UTF-8, without tokens. */
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
