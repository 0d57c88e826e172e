import { type Clock, EspalierError, type Logger } from "@espalier/common";
import {
  type ChatDialect,
  createChatRenderer,
  createTextTokenizer,
  loadTokenizerFiles,
  shippedModelFolder,
  type TextTokenizer,
  type TokenizerFiles,
} from "@espalier/tokenizer";
import { ApiError } from "../http/api-error.ts";
import { chatFields } from "./chat-fields.ts";
import type { ChatPrompt } from "./chat-template.ts";
import { chooseWords } from "./choose-words.ts";
import { type ModelText, shippedModelName } from "./model-text.ts";
import { createPieceCache } from "./piece-cache.ts";
import { createTokenDecoder } from "./token-decoder.ts";
import { readTokenNames } from "./token-names.ts";

interface TokenizerTextOptions {
  readonly clock: Clock;
  /** Whose rules turn chats into prompts. */
  readonly dialect: ChatDialect;
  /** Told when answers cannot be such that they give the same tokens when they come back. */
  readonly logger: Logger;
}

/**
 * Tokens and templates of a real model.
 *
 * @param folder of its files, or `shippedModelName`
 * @throws RangeError when they cannot be used
 */
export async function loadTokenizerText(folder: string, options: TokenizerTextOptions): Promise<ModelText> {
  try {
    const files = await loadTokenizerFiles(folder === shippedModelName ? shippedModelFolder() : folder);
    return createTokenizerText(files, options);
  } catch (error) {
    if (error instanceof EspalierError) throw new RangeError(`tokenizer: ${error.message}`, { cause: error });
    throw error;
  }
}

function createTokenizerText(files: TokenizerFiles, { clock, dialect, logger }: TokenizerTextOptions): ModelText {
  const tokenizer = createTextTokenizer(files);
  const renderer = createChatRenderer(files, clock);
  const pieces = createPieceCache(tokenizer);
  const names = readTokenNames(files);

  const render = (prompt: ChatPrompt, openTurn: boolean): string => {
    const { body, endpoint = "chat" } = prompt;
    const chat = body && renderer.asChat({ endpoint, fields: body, dialect });
    const { text, textUntil } = renderer.render(
      chat ?? { endpoint: "chat", fields: chatFields(prompt, openTurn), dialect },
    );
    if (textUntil !== undefined) throw new ApiError(400, "At most 0 image(s) may be provided in one prompt.");
    return text;
  };
  const chat = (prompt: ChatPrompt, openTurn = true): Uint32Array => {
    const { body } = prompt;
    try {
      const text = render(prompt, openTurn);
      return body?.add_special_tokens === true ? surrounded(pieces.encode(text), tokenizer) : pieces.encode(text);
    } catch (error) {
      if (error instanceof ApiError || !(error instanceof Error) || error.name !== "TemplateError") throw error;
      throw new ApiError(400, error.message);
    }
  };
  const text = (source: string, addSpecialTokens = true): Uint32Array =>
    addSpecialTokens ? surrounded(pieces.encode(source), tokenizer) : pieces.encode(source);
  const decode = createTokenDecoder(files.tokenizer.decoder, names);
  const probe = {
    decode,
    text: (source: string) => pieces.encode(source),
    chat: (...turns: readonly string[]) => chat(conversationOf(turns), turns.length % 2 === 1),
  };
  const { words, comesBack } = chooseWords(names.values(), probe);
  if (!comesBack) logger.warn("answers will not give the same tokens when they come back: the template changes them");
  return {
    chat,
    text,
    pair: (first, second) => Uint32Array.of(...text(first), ...text(second, false)),
    decode,
    words,
  };
}

const conversationOf = (turns: readonly string[]): ChatPrompt => ({
  messages: turns.map((text, at) => ({ role: at % 2 === 0 ? "user" : "assistant", parts: [{ text }] })),
});

function surrounded(tokens: Uint32Array, { surroundings }: TextTokenizer): Uint32Array {
  const { before, after } = surroundings;
  if (before.length === 0 && after.length === 0) return tokens;
  const all = new Uint32Array(before.length + tokens.length + after.length);
  all.set(before);
  all.set(tokens, before.length);
  all.set(after, before.length + tokens.length);
  return all;
}
