/**
 * Workloads: traces and the prompts synthesised for them, arrival processes, closed-loop chats, and the summary of
 * request outcomes.
 */
export { jitterArrivals, mooncakeStepMs, poissonArrivals } from "./arrivals.ts";
export { infiniteCacheBound } from "./block-chains.ts";
export { type ChatSession, type ChatSessionsOptions, type ChatTurn, chatSessions } from "./chat-sessions.ts";
export { formatTable, type TableColumn } from "./format-table.ts";
export {
  maxLineBytes,
  maxTraceRequests,
  type ReadTraceOptions,
  readTrace,
  readTraceLines,
  type TraceFormat,
  traceFormats,
} from "./read-trace.ts";
export {
  percentile,
  type ReplayRow,
  type RequestResult,
  type RunContext,
  type RunLabels,
  summarize,
} from "./summarize.ts";
export {
  type BlockTextCache,
  blockText,
  createBlockTextCache,
  createPromptSynthesizer,
  maxCachedBlocks,
  maxTextOwners,
  maxTextParts,
  type PromptSynthesisOptions,
  toChatMessages,
  wordTokenIds,
} from "./synthetic-text.ts";
export { type BailianRow, bailianLine } from "./trace-formats.ts";
export type { BlockIds, ChatMessage, Prompt, RequestWait, TraceRequest } from "./trace-request.ts";
export { runTraceSession, type SessionPorts, type TraceSession, traceSessions } from "./trace-sessions.ts";
