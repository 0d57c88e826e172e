/**
 * Workloads: traces and the prompts synthesised for them, arrival processes, closed-loop chats, and the summary of
 * request outcomes.
 */
export { jitterArrivals, mooncakeStepMs, poissonArrivals } from "./arrivals.ts";
export { infiniteCacheBound } from "./block-chains.ts";
export { type ChatSession, type ChatSessionsOptions, chatSessions } from "./chat-sessions.ts";
export {
  maxLineBytes,
  maxTraceRequests,
  readTrace,
  readTraceLines,
  type TraceFormat,
  traceFormats,
} from "./read-trace.ts";
export {
  percentile,
  type ReplayRow,
  type RequestResult,
  type RunLabels,
  summarize,
} from "./summarize.ts";
export {
  blockText,
  createBlockTextCache,
  createPromptSynthesizer,
  maxCachedBlocks,
  maxTextOwners,
  maxTextParts,
  toChatMessages,
  wordTokenIds,
} from "./synthetic-text.ts";
export { type BailianRow, bailianLine } from "./trace-formats.ts";
export type { ChatMessage, Prompt, TraceRequest } from "./trace-request.ts";
export { runTraceSession, type TraceSession, traceSessions } from "./trace-sessions.ts";
