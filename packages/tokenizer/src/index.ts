/**
 * Turns requests into the blocks of their prompts: chats and their templates, tokenizers, caches of earlier prompts,
 * and threads that tokenize new text.
 */

export { type ChatDialect, chatDialectOf } from "./chat/chat-dialect.ts";
export { createChatRenderer } from "./chat/chat-renderer.ts";
export type { RenderedChat } from "./chat/chat-template.ts";
export { mediaSource, processorArguments } from "./chat/media-part.ts";
export { fetchTokens } from "./modes/engine-mode.ts";
export { loadRequestTokens, type RequestTokens } from "./modes/local-mode.ts";
export {
  cacheShares,
  createModelTokenizer,
  type ModelTokenizer,
  type ModelTokenizerOptions,
} from "./modes/model-tokenizer.ts";
export { type MediaPrompt, type PromptView, withinBudget } from "./modes/prompt-view.ts";
export { createPromptHasher, type PromptBlocks, type PromptHasher } from "./prompt/prompt-blocks.ts";
export { createPromptEncoder, type PromptEncoder } from "./prompt/prompt-encoder.ts";
export type { PromptRequest } from "./prompt-request.ts";
export { createTextTokenizer, type TextTokenizer } from "./text/text-tokenizer.ts";
export { loadTokenizerFiles, shippedModelFolder, specialTokensOf, type TokenizerFiles } from "./tokenizer-files.ts";
export { hardTexts, type VerifyCase, type VerifyRow, verifyTokenizer } from "./verify-tokenizer.ts";
export {
  createPoolThread,
  createTokenizerPool,
  type PoolThread,
  type TokenizerPool,
} from "./workers/tokenizer-pool.ts";
