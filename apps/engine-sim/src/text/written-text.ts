import type { GeneratedText } from "./generated-text.ts";

/** The call of a tool that an answer is. */
export interface ToolCall {
  readonly id: string;
  readonly name: string;
  /** Why the answer ends after it: vLLM says `stop` when the request named the tool. */
  readonly endReason: "tool_calls" | "stop";
}

/**
 * An answer that is a given text, one piece of it per token. The pieces are of about the same length, whatever the
 * tokenizer makes of the text: clients see the text, the engine's cache sees the tokens.
 *
 * @param tokens at least one, or two for a call, whose first token stands for the tool's name
 */
export function createWrittenText(source: string, tokens: Uint32Array, call?: ToolCall): WrittenText {
  const characters = Array.from(source);
  const skipped = call ? 1 : 0;
  const boundary = (index: number): number =>
    Math.floor((Math.max(0, index - skipped) * characters.length) / (tokens.length - skipped));
  const word = (index: number): string => characters.slice(boundary(index), boundary(index + 1)).join("");
  return {
    length: tokens.length,
    ...(call && { call }),
    word,
    inJson: (index) => JSON.stringify(word(index)).slice(1, -1),
    token: (index) => tokens[index] as number,
    text: (count) => characters.slice(0, boundary(count)).join(""),
    tokens: (count) => Array.from(tokens.subarray(0, count)),
  };
}

interface WrittenText extends GeneratedText {
  /** In tokens. */
  readonly length: number;
}
