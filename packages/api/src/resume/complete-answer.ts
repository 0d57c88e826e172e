import { isJsonObject, type JsonObject } from "@espalier/core";
import type { Endpoint } from "../endpoints.ts";
import { type AnswerBeginning, parseObject } from "./answer-beginning.ts";

interface CompleteOptions {
  /** Whether the client gets the usage that the request asks for. */
  readonly isUsageWanted: boolean;
  /** Undefined if they are not known for certain. */
  readonly promptTokens: number | undefined;
}

/**
 * The end of a stream that broke when everything was said, in the form of its chunks.
 *
 * @param body of the request
 * @returns undefined if the end has a number in it that nobody knows
 */
export function completeAnswer(
  endpoint: Endpoint,
  body: Buffer,
  { envelope, finishReason, isReported, ...beginning }: AnswerBeginning,
  { isUsageWanted, promptTokens = beginning.promptTokens }: CompleteOptions,
): Buffer | undefined {
  const events: JsonObject[] = [];
  if (finishReason === undefined) {
    const said = endpoint.id === "chat" ? { delta: {} } : { text: "" };
    events.push({ ...envelope, choices: [{ index: 0, ...said, logprobs: null, finish_reason: "length" }] });
  }
  const options = parseObject(body.toString("utf8"))?.stream_options;
  if (isUsageWanted && !isReported && isJsonObject(options) && options.include_usage === true) {
    if (promptTokens === undefined) return undefined;
    const completionTokens = beginning.tokens;
    const total = { total_tokens: promptTokens + completionTokens, completion_tokens: completionTokens };
    events.push({ ...envelope, choices: [], usage: { prompt_tokens: promptTokens, ...total } });
  }
  return Buffer.from(
    [...events.map((event) => JSON.stringify(event)), "[DONE]"].map((data) => `data: ${data}\n\n`).join(""),
  );
}
