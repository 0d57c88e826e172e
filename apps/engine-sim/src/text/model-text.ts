import type { ChatPrompt } from "./chat-template.ts";
import type { WordList } from "./generated-text.ts";

/** The name that stands for the folder of the model that the tokenizer package ships. */
export const shippedModelName = "espalier-tiny";

/** What the model of an engine makes of texts, and which ones it generates. */
export interface ModelText {
  /**
   * The prompt of a chat.
   *
   * @param openTurn whether the assistant's next turn is opened at the end
   * @throws ApiError 400 when the model cannot take it
   */
  chat(prompt: ChatPrompt, openTurn?: boolean): Uint32Array;
  /**
   * The prompt that a text is.
   *
   * @param addSpecialTokens whether the tokens that the model wants around it are added; true by default
   */
  text(text: string, addSpecialTokens?: boolean): Uint32Array;
  /** The prompt of two texts that are compared. */
  pair(first: string, second: string): Uint32Array;
  /** The text of any token ids, special tokens by name. */
  decode(tokens: Uint32Array): string;
  readonly words: WordList;
}
