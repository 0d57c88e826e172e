import type { JsonObject } from "../api/body-fields.ts";
import type { ChatMessage, ChatPrompt } from "./chat-template.ts";

/**
 * The body of a chat completion with a conversation in it, for chats that came in through another API.
 *
 * @param openTurn whether the assistant's next turn is opened at the end
 */
export function chatFields({ messages, tools, documents }: ChatPrompt, openTurn: boolean): JsonObject {
  return {
    messages: messages.map(messageFields),
    ...(tools !== undefined && { tools: JSON.parse(tools) as unknown }),
    ...(documents !== undefined && { documents: JSON.parse(documents) as unknown }),
    add_generation_prompt: openTurn,
  };
}

function messageFields({ role, parts, toolCalls }: ChatMessage): JsonObject {
  const content = parts.map((part) =>
    "text" in part ? { type: "text", text: part.text } : { type: "image_url", image_url: { url: part.image } },
  );
  return { role, content, ...(toolCalls !== undefined && { tool_calls: JSON.parse(toolCalls) as unknown }) };
}
