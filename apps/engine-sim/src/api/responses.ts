import { isJsonObject, type JsonObject } from "@espalier/core";
import type { RequestReport } from "@espalier/engine-model";
import type { SequenceRequest } from "../engine/simulated-engine.ts";
import { jsonText, optionalBoolean, optionalString, required } from "../http/body-fields.ts";
import { ApiError, type Exchange, jsonType, send, sendJson, wrongField } from "../http/exchange.ts";
import type { AnswerFormat } from "../serving/answer.ts";
import { deliver } from "../serving/deliver.ts";
import type { EngineContext } from "../serving/engine-context.ts";
import type { ChatMessage } from "../text/model-text.ts";
import { messageOf } from "./chat-messages.ts";
import { modelOf, outputLimit, planSequence } from "./planning.ts";

/** `POST /v1/responses`; answers are stored unless `store` is false. */
export function createResponse(context: EngineContext, exchange: Exchange, body: JsonObject): void {
  const model = modelOf(context, body);
  const previousId = optionalString(body, "previous_response_id");
  const conversation = conversationOf(context, body, previousId);
  const instructions = optionalString(body, "instructions");
  const tools = jsonText(body.tools);
  const { tokens: prompt, media } = context.text.chat({
    ...(previousId === undefined ? { body, endpoint: "responses" } : {}),
    messages: [...(instructions === undefined ? [] : [textMessage("system", instructions)]), ...conversation],
    ...(tools === undefined ? {} : { tools }),
  });
  const limit = outputLimit(context, body, "max_output_tokens");
  const sequence = planSequence({ context, exchange, body, prompt, media, outputLimit: limit });
  const store = optionalBoolean(body, "store") ?? true;
  const fields = { model, instructions: instructions ?? null, previous_response_id: previousId ?? null, store };
  const { id, format } = createResponseFormat(context, fields, sequence);
  deliver(context, exchange, {
    model,
    stream: optionalBoolean(body, "stream") ?? false,
    sequences: [sequence],
    format,
    completed(reports) {
      if (!store) return;
      const answer = textMessage("assistant", sequence.text.text(sequence.outputTokens));
      context.storedResponses.add(id, {
        body: format.whole(reports, {}),
        messages: [...conversation, answer],
      });
    },
  });
}

/** `GET /v1/responses/{id}` */
export function readResponse(context: EngineContext, exchange: Exchange, id: string): void {
  const stored = context.storedResponses.get(id);
  if (!stored) throw notFound(id);
  send(exchange, 200, jsonType, stored.body);
}

/** `DELETE /v1/responses/{id}` */
export function deleteResponse(context: EngineContext, exchange: Exchange, id: string): void {
  if (!context.storedResponses.remove(id)) throw notFound(id);
  sendJson(exchange, 200, { id, object: "response", deleted: true });
}

const textMessage = (role: string, text: string): ChatMessage => ({ role, parts: [{ text }] });
const notFound = (id: string): ApiError => new ApiError(404, `Response with id '${id}' not found.`, "response_id");

/** The stored conversation, then the input. */
function conversationOf(context: EngineContext, body: JsonObject, previousId: string | undefined): ChatMessage[] {
  const previous = previousId === undefined ? undefined : context.storedResponses.get(previousId);
  if (previousId !== undefined && !previous) throw notFound(previousId);
  const input = required(body.input ?? undefined, "input");
  if (typeof input === "string") return [...(previous?.messages ?? []), textMessage("user", input)];
  if (!Array.isArray(input) || input.length === 0) throw wrongField("input", "a string or a list of items");
  const items = input.map((item, at) =>
    isJsonObject(item) && item.role === undefined && item.type !== undefined && item.type !== "message"
      ? textMessage("tool", JSON.stringify(item))
      : messageOf(item, `input.${at}`),
  );
  return [...(previous?.messages ?? []), ...items];
}

function usageOf(reports: readonly RequestReport[]) {
  const { promptTokens = 0, cachedTokens = 0, outputTokens = 0 } = reports[0] ?? {};
  return {
    input_tokens: promptTokens,
    input_tokens_details: { cached_tokens: cachedTokens },
    output_tokens: outputTokens,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: promptTokens + outputTokens,
  };
}

function createResponseFormat(
  context: EngineContext,
  fields: JsonObject,
  { text, outputTokens, finishReason }: SequenceRequest,
): { readonly id: string; readonly format: AnswerFormat } {
  const id = `resp_${context.newId()}`;
  const itemId = `msg_${context.newId()}`;
  const isCut = finishReason === "length";
  const status = isCut ? "incomplete" : "completed";
  const base = { id, object: "response", created_at: Math.floor(context.clock.wallMs() / 1000), ...fields };
  const running = { ...base, status: "in_progress", output: [], usage: null, incomplete_details: null };
  const place = { item_id: itemId, output_index: 0, content_index: 0 };
  const emptyPart = { type: "output_text", text: "", annotations: [], logprobs: [] };
  const item = { id: itemId, type: "message", role: "assistant" };
  const outputItem = () => {
    const part = { ...emptyPart, text: text.text(outputTokens) };
    return { ...item, status, content: [part] };
  };
  const done = (reports: readonly RequestReport[]) => ({
    ...base,
    status,
    output: [outputItem()],
    usage: usageOf(reports),
    incomplete_details: isCut ? { reason: "max_output_tokens" } : null,
  });
  const beforeDelta = `event: response.output_text.delta\ndata: {"type":"response.output_text.delta","item_id":"${itemId}","output_index":0,"content_index":0,"logprobs":[],"sequence_number":`;
  const openingEvents = 4;
  const format: AnswerFormat = {
    token(_sequence, index) {
      const delta = `${beforeDelta}${index + openingEvents},"delta":"${text.inJson(index)}"}\n\n`;
      if (index > 0) return delta;
      return (
        event("response.created", 0, { response: running }) +
        event("response.in_progress", 1, { response: running }) +
        event("response.output_item.added", 2, {
          output_index: 0,
          item: { ...item, status: "in_progress", content: [] },
        }) +
        event("response.content_part.added", 3, { ...place, part: emptyPart }) +
        delta
      );
    },
    end(reports) {
      const next = openingEvents + outputTokens;
      const finished = outputItem();
      return (
        event("response.output_text.done", next, { ...place, text: finished.content[0]?.text, logprobs: [] }) +
        event("response.content_part.done", next + 1, { ...place, part: finished.content[0] }) +
        event("response.output_item.done", next + 2, { output_index: 0, item: finished }) +
        event("response.completed", next + 3, { response: done(reports) })
      );
    },
    whole: (reports) => JSON.stringify(done(reports)),
  };
  return { id, format };
}

const event = (type: string, sequenceNumber: number, data: JsonObject): string =>
  `event: ${type}\ndata: ${JSON.stringify({ type, sequence_number: sequenceNumber, ...data })}\n\n`;
