/**
 * What the router needs to know of the HTTP APIs it passes on (OpenAI, Anthropic, SGLang): request views, edits that
 * preserve all other bytes, usage readers for passing answers, error objects and session keys. Pure and synchronous.
 */

export type { JsonObject } from "@espalier/core";
export type { AnswerFault } from "./answer/answer-content.ts";
export { type AnswerEnd, AnswerEndReader, answerEnds } from "./answer/answer-end.ts";
export { readAnswerHead } from "./answer/answer-fault.ts";
export { createJsonUsageReader } from "./answer/json-usage-reader.ts";
export { createSseUsageFilter, type SseUsageFilter } from "./answer/sse-usage-filter.ts";
export { isUnknownModelAnswer } from "./answer/unknown-model.ts";
export type { Usage } from "./answer/usage.ts";
export { type ApiFamily, type Endpoint, endpoints } from "./endpoints.ts";
export { abortedResponse, type ErrorResponse, errorResponse, errorStreamFrame } from "./error-response.ts";
export { readJsonMember, type Span } from "./json-scan.ts";
export { RealtimeFrames, readSessionUpdate, type SessionUpdate } from "./realtime-events.ts";
export { type FoundConversation, findConversation } from "./request/conversation.ts";
export { type BodyEdits, editBody } from "./request/edit-body.ts";
export { type RequestView, readRequestView, scanRequest, viewRequest } from "./request/request-view.ts";
export {
  defaultSessionKeyLadder,
  type FoundSession,
  findParentAgent,
  findSession,
  nameOfSource,
  prefixSource,
  type SessionKeySource,
} from "./request/session-key.ts";
export { type AnswerBeginning, readBeginning } from "./resume/answer-beginning.ts";
export { completeAnswer } from "./resume/complete-answer.ts";
export { type Continuation, continueRequest } from "./resume/continue-request.ts";
export { PagedBytes } from "./resume/paged-bytes.ts";
export { isResumable } from "./resume/resumable-request.ts";
export { StreamSplice } from "./resume/stream-splice.ts";
export { parseStoredResponsePath, readResponseId } from "./stored-response.ts";
