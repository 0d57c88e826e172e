import { isJsonObject, type JsonObject } from "@espalier/core";

/*
 * What an answer with status 200 says, in every API: whether a part of it is content, the end, or an error. Engines send the
 * head of a stream before they compute, so what fails later is an event of the stream (vLLM 0.32:
 * entrypoints/generate/base/serving.py, create_streaming_error_response; SGLang 0.5.23: entrypoints/openai/serving_base.py and
 * serving_responses.py, create_streaming_error_response, and managers/tokenizer_manager.py, _handle_abort_finish_reason).
 */

/** Why an answer with status 200 is none. */
export interface AnswerFault {
  /**
   * - `error`: the engine reports an error. - `empty`: there is no content. - `cut`: the stream has no end of its own.
   */
  readonly kind: "error" | "empty" | "cut";
  /** The status that the engine would have answered with; 502 for an answer that says nothing of its fault. */
  readonly status: number;
  /** Whether the answer ended with `abort`: the engine dropped the request, for instance at its sender's wish. */
  readonly isAborted?: boolean;
}

/** Names for statuses in errors without a number: Anthropic's types, and the Responses API's codes. */
const statusesByName: Readonly<Record<string, number>> = {
  invalid_request_error: 400,
  invalid_prompt: 400,
  authentication_error: 401,
  billing_error: 402,
  permission_error: 403,
  not_found_error: 404,
  request_too_large: 413,
  rate_limit_error: 429,
  rate_limit_exceeded: 429,
  overloaded_error: 503,
  timeout_error: 504,
};

/** Events that open an answer, or keep it open: the engine may not have computed anything yet. */
const openingTypes: ReadonlySet<unknown> = new Set([
  "ping",
  "message_start",
  "content_block_start",
  "response.queued",
  "response.created",
  "response.in_progress",
  "response.output_item.added",
  "response.content_part.added",
  "response.reasoning_part.added",
]);

/** Events that end an answer of the Anthropic API, the Responses API, and OpenAI's APIs of audio and images, which name their events. */
const endTypes: ReadonlySet<unknown> = new Set([
  "message_stop",
  "response.completed",
  "response.failed",
  "response.incomplete",
  "transcript.text.done",
  "speech.audio.done",
  "image_generation.completed",
  "image_edit.completed",
  "error",
]);

/** Whether the name of an event, or its `type`, ends an answer. */
export function isEndType(type: unknown): boolean {
  return endTypes.has(type);
}

/**
 * The status of the error that an event or a body reports.
 *
 * @param parsed its JSON value; undefined if it is none
 * @returns undefined if it reports none
 */
export function errorStatus(parsed: unknown): number | undefined {
  if (Array.isArray(parsed)) return firstOf(parsed, errorStatus);
  if (!isJsonObject(parsed)) return undefined;
  if (parsed.object === "error" || parsed.type === "error") return statusOf(parsed, parsed.error);
  if (isFilled(parsed.error)) return statusOf(parsed.error, parsed);
  if (parsed.type === "response.failed") return errorStatus(parsed.response) ?? defaultStatus;
  const choices = Array.isArray(parsed.choices) ? firstOf(parsed.choices, abortStatus) : undefined;
  return choices ?? abortStatus(parsed.meta_info);
}

/** Whether an event has a part of the answer in it, so that its prompt is computed. What is in no known form is content. */
export function hasContent(data: JsonObject): boolean {
  if (openingTypes.has(data.type)) return false;
  if (Array.isArray(data.choices)) return data.choices.some(isFilledChoice);
  if (!isJsonObject(data.meta_info)) return true;
  return isFilled(data.text) || isFilled(data.output_ids) || isFilled(data.meta_info.finish_reason);
}

/** Whether an answer of this form is to end with an event that says so, and `data` is not that event. */
export function lacksEnd(data: JsonObject): boolean {
  if (Array.isArray(data.choices))
    return !data.choices.some((choice) => isJsonObject(choice) && isFilled(choice.finish_reason));
  if (isJsonObject(data.meta_info)) return !isFilled(data.meta_info.finish_reason);
  return typeof data.type === "string" && !endTypes.has(data.type);
}

/** Of an error that names none. */
export const defaultStatus = 500;

/** The first number among the codes of an error, or a name for one. */
function statusOf(...errors: readonly unknown[]): number {
  const words = errors
    .filter(isJsonObject)
    .flatMap(({ code, status, status_code, type }) => [code, status, status_code, type]);
  return firstOf(words, readStatus) ?? defaultStatus;
}

function readStatus(word: unknown): number | undefined {
  const status = typeof word === "string" ? (statusesByName[word] ?? Number(word)) : word;
  return typeof status === "number" && status >= 400 && status < 600 ? status : undefined;
}

/** Of a choice, or of SGLang's `meta_info`: an answer that ends with `abort` or `error` was not finished. */
function abortStatus(part: unknown): number | undefined {
  const reason = isJsonObject(part) ? part.finish_reason : undefined;
  const type = isJsonObject(reason) ? reason.type : reason;
  return type === "abort" || type === "error" ? statusOf(reason) : undefined;
}

function isFilledChoice(choice: unknown): boolean {
  if (!isJsonObject(choice)) return true;
  const { finish_reason, text, token_ids, delta } = choice;
  if (isFilled(finish_reason) || isFilled(text) || isFilled(token_ids)) return true;
  return isJsonObject(delta) && Object.keys(delta).some((key) => key !== "role" && isFilled(delta[key]));
}

/** Whether a field says anything: it is neither null nor empty. */
export function isFilled(value: unknown): boolean {
  if (value === undefined || value === null || value === "") return false;
  return typeof value !== "object" || Object.keys(value).length > 0;
}

function firstOf<Value>(values: readonly unknown[], read: (value: unknown) => Value | undefined): Value | undefined {
  for (const value of values) {
    const found = read(value);
    if (found !== undefined) return found;
  }
  return undefined;
}
