import type { MediaRange } from "@espalier/engine-model";
import type { WordList } from "./generated-text.ts";

/** Tokenizer, chat template and generated words of an engine's model. */
export interface ModelText {
  /**
   * The prompt of a chat.
   *
   * @param openTurn whether the assistant's next turn is opened at the end
   * @throws ApiError 400 when the template rejects it
   */
  chat(prompt: ChatPrompt, openTurn?: boolean): ChatTokens;
  /**
   * The tokens of a text.
   *
   * @param addSpecialTokens whether the model's surrounding special tokens are added; true by default
   */
  text(text: string, addSpecialTokens?: boolean): Uint32Array;
  /** The tokens of two texts that are compared. */
  pair(first: string, second: string): Uint32Array;
  /** The text of any token ids, special tokens by name. */
  decode(tokens: Uint32Array): string;
  readonly words: WordList;
}

/** The prompt of a chat. */
export interface ChatTokens {
  readonly tokens: Uint32Array;
  /** Its images, audio and videos whose tokens do not depend on their content. */
  readonly media: readonly MediaRange[];
}

export interface ChatPrompt {
  readonly messages: readonly ChatMessage[];
  /** JSON of the tools. */
  readonly tools?: string;
  /** JSON of the documents. */
  readonly documents?: string;
  /** The body of the request with all of this, and the endpoint's id; a chat completion by default. */
  readonly body?: Readonly<Record<string, unknown>>;
  readonly endpoint?: "messages" | "responses";
}

export interface ChatMessage {
  readonly role: string;
  readonly parts: readonly ContentPart[];
  /** JSON of the tool calls of an assistant's turn. */
  readonly toolCalls?: string;
}

/** A part of a message: text, or anything else by its bytes (an image as URL or base64). */
export type ContentPart = { readonly text: string } | { readonly image: string };

/** The name of the tokenizer package's own model. */
export const shippedModelName = "espalier-tiny";
