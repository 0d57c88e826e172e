import type { JsonObject } from "@espalier/core";
import type { RequestReport } from "@espalier/engine-model";
import type { SequenceRequest } from "../engine/simulated-engine.ts";
import { jsonText, optionalBoolean, required } from "../http/body-fields.ts";
import { type Exchange, sendJson } from "../http/exchange.ts";
import type { AnswerFormat } from "../serving/answer.ts";
import { deliver } from "../serving/deliver.ts";
import type { EngineContext } from "../serving/engine-context.ts";
import type { ChatTokens } from "../text/model-text.ts";
import { messagesOf, partsOf } from "./chat-messages.ts";
import { modelOf, outputLimit, planSequence } from "./planning.ts";

/** `POST /v1/messages`, the API of Anthropic. */
export function messages(context: EngineContext, exchange: Exchange, body: JsonObject): void {
  const model = modelOf(context, body);
  const limit = required(outputLimit(context, body, "max_tokens"), "max_tokens");
  const { tokens: prompt, media } = promptOf(context, body);
  const sequence = planSequence({ context, exchange, body, prompt, media, outputLimit: limit });
  const format = anthropicFormat(`msg_${context.newId()}`, model, sequence);
  const stream = optionalBoolean(body, "stream") ?? false;
  deliver(context, exchange, { model, stream, sequences: [sequence], format });
}

/** `POST /v1/messages/count_tokens`: how long the prompt of such a request is. */
export function countTokens(context: EngineContext, exchange: Exchange, body: JsonObject): void {
  modelOf(context, body);
  sendJson(exchange, 200, { input_tokens: promptOf(context, body).tokens.length });
}

function promptOf({ text }: EngineContext, body: JsonObject): ChatTokens {
  const system = partsOf(body.system, "system");
  const tools = jsonText(body.tools);
  return text.chat({
    ...{ body, endpoint: "messages" },
    messages: [...(system.length > 0 ? [{ role: "system", parts: system }] : []), ...messagesOf(body)],
    ...(tools === undefined ? {} : { tools }),
  });
}

const event = (type: string, data: JsonObject = {}): string =>
  `event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`;

/** Anthropic counts only uncached tokens as input. */
function usageOf(reports: readonly RequestReport[]) {
  const { promptTokens = 0, cachedTokens = 0, outputTokens = 0 } = reports[0] ?? {};
  return {
    input_tokens: promptTokens - cachedTokens,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: cachedTokens,
    output_tokens: outputTokens,
  };
}

function anthropicFormat(id: string, model: string, sequence: SequenceRequest): AnswerFormat {
  const { prompt, text, outputTokens } = sequence;
  const stop = { stop_reason: sequence.finishReason === "stop" ? "end_turn" : "max_tokens", stop_sequence: null };
  const message = { id, type: "message", role: "assistant", model };
  const before =
    'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"';
  return {
    token(_sequence, index) {
      const delta = `${before}${text.inJson(index)}"}}\n\n`;
      if (index > 0) return delta;
      // Cached tokens are reported at the end; until then the whole prompt counts as input.
      const usage = { input_tokens: prompt.length, output_tokens: 0 };
      const start = { ...message, content: [], stop_reason: null, stop_sequence: null, usage };
      return (
        event("message_start", { message: start }) +
        event("content_block_start", { index: 0, content_block: { type: "text", text: "" } }) +
        delta
      );
    },
    end: (reports) =>
      event("content_block_stop", { index: 0 }) +
      event("message_delta", { delta: stop, usage: usageOf(reports) }) +
      event("message_stop"),
    whole: (reports) =>
      JSON.stringify({
        ...message,
        content: [{ type: "text", text: text.text(outputTokens) }],
        ...stop,
        usage: usageOf(reports),
      }),
  };
}
