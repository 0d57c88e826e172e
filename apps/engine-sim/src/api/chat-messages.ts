import { isJsonObject, type JsonObject } from "@espalier/core";
import { jsonText, required } from "../http/body-fields.ts";
import { missingField, wrongField } from "../http/exchange.ts";
import type { ChatMessage, ContentPart } from "../text/model-text.ts";

/**
 * The messages of a chat request, as OpenAI and Anthropic write them.
 *
 * @throws ApiError 400 when they are absent or malformed
 */
export function messagesOf(body: JsonObject): ChatMessage[] {
  const messages = required(body.messages ?? undefined, "messages");
  if (!Array.isArray(messages) || messages.length === 0) throw wrongField("messages", "a list of messages");
  return messages.map((message, at) => messageOf(message, `messages.${at}`));
}

/** @throws ApiError 400 when it has no role, or content of an unknown type */
export function messageOf(message: unknown, where: string): ChatMessage {
  if (!isJsonObject(message)) throw wrongField(where, "an object");
  const role = message.role;
  if (role === undefined) throw missingField(`${where}.role`);
  if (typeof role !== "string") throw wrongField(`${where}.role`, "a string");
  const toolCalls = jsonText(message.tool_calls);
  return {
    role,
    parts: partsOf(message.content, `${where}.content`),
    ...(toolCalls === undefined ? {} : { toolCalls }),
  };
}

/** @throws ApiError 400 when it is neither text, nor null, nor a list of parts */
export function partsOf(content: unknown, where: string): readonly ContentPart[] {
  if (content === undefined || content === null) return [];
  if (typeof content === "string") return [{ text: content }];
  if (!Array.isArray(content)) throw wrongField(where, "a string or a list of parts");
  return content.flatMap((part, at) => {
    if (typeof part === "string") return [{ text: part }];
    if (!isJsonObject(part)) throw wrongField(`${where}.${at}`, "an object");
    return partOf(part, `${where}.${at}`);
  });
}

/** Text parts by their text, tool results by their content, tool calls as JSON, anything else by its bytes. */
function partOf(part: JsonObject, where: string): readonly ContentPart[] {
  switch (part.type) {
    case "text":
    case "input_text":
    case "output_text":
      if (typeof part.text !== "string") throw missingField(`${where}.text`);
      return [{ text: part.text }];
    case "tool_result":
      return partsOf(part.content, `${where}.content`);
    case "tool_use":
      return [{ text: JSON.stringify({ name: part.name, input: part.input }) }];
    case undefined:
      throw missingField(`${where}.type`);
    default: {
      const { type, ...rest } = part;
      return [{ image: JSON.stringify(rest[String(type)] ?? rest) }];
    }
  }
}
