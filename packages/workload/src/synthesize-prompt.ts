import { blockText } from "./block-text.ts";
import { createBlockTextCache } from "./block-text-cache.ts";
import { ownTextId } from "./own-text-id.ts";
import type { ChatMessage, Prompt, TraceRequest } from "./trace-request.ts";

/** Block texts that are kept for reuse: 8 MiB at 512 words a block. */
export const maxCachedBlocks = 4_096;

export interface PromptSynthesisOptions {
  /** Tells apart the texts that different runs invent where a trace names no blocks; the low 16 bits count. */
  readonly seed: number;
}

/**
 * Gives the requests of a trace their prompts. A prompt that the trace holds is returned as it is. Otherwise the text
 * is one word of three letters and a space for each input token, which is about one token for real tokenizers and exactly
 * four bytes; a block's text depends on its id alone, so requests that share blocks at their beginning share that text,
 * and what the trace does not name is unique to the request.
 *
 * The chat template of a model adds its own tokens around the text (about 5 to 40), so blocks of the engine are shifted
 * against blocks of the trace, by the same amount in every request.
 */
export function createPromptSynthesizer({ seed }: PromptSynthesisOptions): (request: TraceRequest) => Prompt {
  const blocks = createBlockTextCache(maxCachedBlocks);
  return (request) => {
    const { inputTokens, blockTokens, blockIds = [], index, prompt } = request;
    if (prompt !== undefined) return prompt;
    const pieces: string[] = [];
    let left = inputTokens;
    for (const id of blockIds) {
      const wordCount = Math.min(blockTokens, left);
      pieces.push(blocks.text(id, wordCount));
      left -= wordCount;
    }
    if (left > 0) pieces.push(blockText(ownTextId({ seed, owner: index, part: 0 }), left));
    return pieces.join("");
  };
}

/** A prompt as chat messages: a text becomes one message of the user. */
export function toChatMessages(prompt: Prompt): readonly ChatMessage[] {
  return typeof prompt === "string" ? [{ role: "user", content: prompt }] : prompt;
}
