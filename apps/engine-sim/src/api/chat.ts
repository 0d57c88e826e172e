import type { JsonObject } from "@espalier/core";
import { jsonText, optionalBoolean } from "../http/body-fields.ts";
import { ApiError, type Exchange } from "../http/exchange.ts";
import type { EngineContext } from "../serving/engine-context.ts";
import type { ChatPrompt } from "../text/model-text.ts";
import { messagesOf } from "./chat-messages.ts";
import { chatLogprobs } from "./logprobs.ts";
import { answerOpenAi, type OpenAiShape, sglangTail } from "./openai-format.ts";
import { modelOf, outputLimit } from "./planning.ts";
import { chatAnswer } from "./structured-answers.ts";

const vllmShape: OpenAiShape = {
  objectName: "chat.completion",
  chunkObjectName: "chat.completion.chunk",
  opening: (index) =>
    `{"index":${index},"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],` +
    '"prompt_token_ids":null,"prompt_text":null',
  chunk: (index, finishReason, [open, close]) => [
    `{"index":${index},"delta":{${open}`,
    finishReason === null
      ? `${close}},"logprobs":null,"finish_reason":null,"token_ids":null}]`
      : `${close}},"logprobs":null,"finish_reason":"${finishReason}","stop_reason":null,"token_ids":null}]`,
  ],
  chunkEnd: "}\n\n",
  choice: (index, content, finishReason) => ({
    index,
    message: {
      role: "assistant",
      ...content,
      refusal: null,
      annotations: null,
      audio: null,
      function_call: null,
      reasoning: null,
    },
    logprobs: null,
    finish_reason: finishReason,
    stop_reason: null,
    token_ids: null,
    routed_experts: null,
  }),
  tail: () => ({
    prompt_logprobs: null,
    prompt_token_ids: null,
    prompt_text: null,
    kv_transfer_params: null,
    ec_transfer_params: null,
    metrics: null,
  }),
  reportsCreatedTokens: true,
};

const sglangShape: OpenAiShape = {
  objectName: "chat.completion",
  chunkObjectName: "chat.completion.chunk",
  opening: (index) => sglangDelta(index, '"reasoning_content":null,"role":"assistant","content":""', "null"),
  chunk: (index, _finishReason, [open, close]) => [
    `{"index":${index},"delta":{"reasoning_content":null,${open}`,
    `${close}},"logprobs":null,"finish_reason":null,"matched_stop":null}]`,
  ],
  chunkEnd: "}\n\n",
  closing: (index, finishReason) => sglangDelta(index, '"reasoning_content":null', `"${finishReason}"`),
  choice: (index, content, finishReason) => ({
    index,
    message: { role: "assistant", ...content, reasoning_content: null },
    logprobs: null,
    finish_reason: finishReason,
    matched_stop: null,
  }),
  tail: sglangTail,
  reportsCreatedTokens: false,
};

function sglangDelta(index: number, delta: string, finishReason: string): string {
  return `{"index":${index},"delta":{${delta}},"logprobs":null,"finish_reason":${finishReason},"matched_stop":null}]`;
}

/** `POST /v1/chat/completions` */
export function chatCompletions(context: EngineContext, exchange: Exchange, body: JsonObject): void {
  const model = modelOf(context, body);
  refuseTokenIds(context, body);
  const { tokens, media } = context.text.chat(chatPromptOf(body));
  answerOpenAi({
    ...{ context, exchange, body, model, prompts: [tokens], media, begun: begunOf(context, body) },
    outputLimit: outputLimit(context, body, "max_completion_tokens", "max_tokens"),
    write: chatAnswer(context.text, body),
    logprobs: () => chatLogprobs(context.text.words, body),
    ...{ idPrefix: "chatcmpl", shapes: { vllm: vllmShape, sglang: sglangShape } },
  });
}

/**
 * The beginning of an answer, which a request with `continue_final_message` has as its last message.
 *
 * @throws ApiError 400 when the request asks for a new answer too, as vLLM's
 */
function begunOf({ flavour, text }: EngineContext, body: JsonObject) {
  if (!optionalBoolean(body, "continue_final_message")) return undefined;
  const opensTurn = optionalBoolean(body, "add_generation_prompt") ?? true;
  if (opensTurn && flavour === "vllm") {
    throw new ApiError(400, "Cannot set both `continue_final_message` and `add_generation_prompt` to True.");
  }
  const { continue_final_message: _, add_generation_prompt: __, messages, ...rest } = body;
  const [last, ...others] = messagesOf(body).toReversed();
  if (last?.role !== "assistant" || others.length === 0) return undefined;
  const before = { ...rest, messages: (messages as readonly unknown[]).slice(0, -1) };
  const written = last.parts.map((part) => ("text" in part ? part.text : "")).join("");
  return { prompt: text.chat(chatPromptOf(before)).tokens, text: written };
}

/** @throws ApiError 400 for what SGLang's chats do not stream (openai/serving_chat.py) */
function refuseTokenIds({ flavour }: EngineContext, body: JsonObject): void {
  if (flavour !== "sglang" || !optionalBoolean(body, "stream") || !optionalBoolean(body, "return_token_ids")) return;
  throw new ApiError(400, "return_token_ids is not supported with streaming on /v1/chat/completions.");
}

/**
 * The conversation, tools and documents of a chat request.
 *
 * @throws ApiError 400 when the messages are absent or malformed
 */
export function chatPromptOf(body: JsonObject): ChatPrompt {
  const tools = jsonText(body.tools);
  const documents = jsonText(body.documents);
  return {
    messages: messagesOf(body),
    body,
    ...(tools === undefined ? {} : { tools }),
    ...(documents === undefined ? {} : { documents }),
  };
}
