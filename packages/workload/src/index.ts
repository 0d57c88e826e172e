/**
 * Workloads: traces and the prompts synthesised for them, arrival processes, closed-loop chats, and the summary of what
 * became of the requests.
 */
export { poissonArrivals } from "./arrivals.ts";
export { blockText } from "./block-text.ts";
export { type BlockTextCache, createBlockTextCache } from "./block-text-cache.ts";
export { type ChatSession, type ChatSessionsOptions, type ChatTurn, chatSessions } from "./chat-sessions.ts";
export { formatTable, type TableColumn } from "./format-table.ts";
export { type BailianRow, bailianLine } from "./formats/bailian.ts";
export { infiniteCacheBound } from "./infinite-cache-bound.ts";
export { jitterArrivals, mooncakeStepMs } from "./jitter.ts";
export { maxTextOwners, maxTextParts } from "./own-text-id.ts";
export { percentile } from "./percentile.ts";
export { maxLineBytes } from "./read-lines.ts";
export {
  maxTraceRequests,
  type ReadTraceOptions,
  readTrace,
  type TraceFormat,
  traceFormats,
} from "./read-trace.ts";
export { type ReplayRow, type RequestResult, type RunContext, type RunLabels, summarize } from "./summarize.ts";
export {
  createPromptSynthesizer,
  maxCachedBlocks,
  type PromptSynthesisOptions,
  toChatMessages,
} from "./synthesize-prompt.ts";
export { wordTokenIds } from "./token-ids.ts";
export type { ChatMessage, Prompt, TraceRequest } from "./trace-request.ts";
