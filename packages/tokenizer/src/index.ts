/**
 * From a request to the blocks of its prompt: chat templates, tokenizers, what is remembered of earlier prompts, and
 * threads for what is new.
 */
export { loadTokenizerFiles, type TokenizerFiles } from "./files/tokenizer-files.ts";
export { createChatRenderer } from "./modes/chat-renderer.ts";
export {
  cacheShares,
  createModelTokenizer,
  type ModelTokenizer,
  type ModelTokenizerOptions,
} from "./modes/model-tokenizer.ts";
export type { PromptRequest } from "./modes/prompt-request.ts";
export type { PromptView } from "./modes/prompt-view.ts";
export { loadRequestTokens, type RequestTokens } from "./modes/request-tokens.ts";
export { withinBudget } from "./modes/within-budget.ts";
export type { PromptBlocks } from "./prompt/prompt-blocks.ts";
export { createPromptEncoder, type PromptEncoder } from "./prompt/prompt-encoder.ts";
export { createPromptHasher, type PromptHasher } from "./prompt/prompt-hasher.ts";
export { shippedModelFolder } from "./shipped-model.ts";
export { type ChatDialect, chatDialectOf } from "./template/chat-dialect.ts";
export { specialTokensOf } from "./template/select-template.ts";
export { createTextTokenizer, type TextTokenizer } from "./text/text-tokenizer.ts";
export { hardTexts } from "./verify/hard-texts.ts";
export { type VerifyCase, type VerifyRow, verifyTokenizer } from "./verify/verify-tokenizer.ts";
export { createPoolThread, type PoolThread } from "./workers/pool-thread.ts";
export { createTokenizerPool, type TokenizerPool } from "./workers/tokenizer-pool.ts";
