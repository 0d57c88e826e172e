import { isJsonObject } from "@espalier/core";
import { readJson } from "../template/json.ts";
import { valueError } from "../template/template-error.ts";
import { isDict } from "../template/values.ts";
import type { ContentFormat } from "./chat-dialect.ts";
import type { ConvertMessage, TemplateMessage } from "./conversation.ts";

/** SGLang's fields of a message, in the order of its model; others are dropped. */
const messageFields = ["tool_call_id", "name", "phase", "reasoning_content", "tool_calls", "tools", "prefix"] as const;

/**
 * The rules of SGLang 0.5.23. Strings stay strings, whatever the template takes; for a template of strings, text parts
 * are joined with blanks.
 */
export function sglangMessages(format: ContentFormat): ConvertMessage {
  return (message, index) => {
    if (!isJsonObject(message)) throw valueError(`messages[${index}] is not an object`);
    const { content } = message;
    const hasParts = Array.isArray(content) && content.some((part) => isMedia(part));
    return { message: toMessage(message, format), hasParts };
  };
}

function toMessage(message: TemplateMessage, format: ContentFormat): TemplateMessage {
  const role = typeof message.role === "string" ? message.role.toLowerCase() : message.role;
  const result: TemplateMessage = { role, content: contentOf(message, role, format) };
  // A user's message has no other fields.
  if (role === "user") return result;
  for (const field of messageFields) {
    const value = message[field];
    if (value === undefined || value === null) continue;
    result[field] = field === "tool_calls" && Array.isArray(value) ? value.map((call) => toCall(call, role)) : value;
  }
  return result;
}

function contentOf({ content }: TemplateMessage, role: unknown, format: ContentFormat): unknown {
  if (typeof content === "string") return content;
  if (content === null || content === undefined) return "";
  if (!Array.isArray(content)) throw valueError("the content of a message is neither text nor parts");
  if (format === "string") return textsOf(content).join(" ");
  const parts = content.map(toPart).filter((part) => part !== undefined);
  return role === "tool" && parts.every(({ type }) => type === "text") ? textsOf(parts).join(" ") : parts;
}

const isText = (part: unknown): part is TemplateMessage =>
  isJsonObject(part) && (part.type === "text" || part.type === "input_text");

const textsOf = (parts: readonly unknown[]): unknown[] => parts.filter(isText).map(({ text }) => text);

/** Words of templates for parts that are not text. */
const mediaTypes: Readonly<Record<string, string>> = {
  image_url: "image",
  input_image: "image",
  video_url: "video",
  audio_url: "audio",
};

const mediaOf = (part: unknown): string | undefined =>
  isJsonObject(part) && typeof part.type === "string" && Object.hasOwn(mediaTypes, part.type)
    ? mediaTypes[part.type]
    : undefined;

const isMedia = (part: unknown): boolean => mediaOf(part) !== undefined;

function toPart(part: unknown): TemplateMessage | undefined {
  if (isText(part)) return { type: "text", text: part.text };
  const media = mediaOf(part);
  if (media !== undefined) return { type: media };
  return isJsonObject(part) && part.type === "tool_reference" ? { ...part } : undefined;
}

function toCall(call: unknown, role: unknown): TemplateMessage {
  if (!isJsonObject(call) || !isJsonObject(call.function)) throw valueError("a tool call has no function");
  const { id = null, index = null, type = "function" } = call;
  const { name = null, arguments: given = null } = call.function;
  const parsed = role === "assistant" && typeof given === "string" ? toArguments(given) : given;
  return { id, index, type, function: { name, arguments: parsed } };
}

function toArguments(given: string): unknown {
  const value = readJson(given)?.value;
  if (!isDict(value)) throw valueError("the arguments of a tool call are not a JSON object");
  return value;
}

/**
 * Removes the assistant's last message if it is text: it follows the opened turn, or else becomes the user's.
 *
 * @returns the messages, and the text after the opened turn
 */
export function withoutLastAnswer(
  messages: readonly TemplateMessage[],
  isOpen: boolean,
): { readonly messages: readonly TemplateMessage[]; readonly prefix: string } {
  const last = messages.at(-1);
  if (last?.role !== "assistant" || typeof last.content !== "string") return { messages, prefix: "" };
  const others = messages.slice(0, -1);
  if (isOpen) return { messages: others, prefix: last.content };
  return { messages: [...others, { role: "user", content: last.content }], prefix: "" };
}
