import { isJsonObject, type JsonObject } from "../files/json-object.ts";
import type { PromptHasher } from "../prompt/prompt-hasher.ts";
import { isTextPart } from "./prompt-request.ts";

/** Control characters that no chat is written with: ends of a message, of a field, of a field's name. */
export const [messageEnd, fieldEnd, nameEnd] = ["\u001d", "\u001e", "\u001f"];

/** Fields that come before the messages in a prompt. */
export const contextNames = ["tools", "functions", "documents", "system", "instructions"] as const;

/** Longer values that are not text (images in the request itself) stand as their hash. */
const maxVerbatimLength = 256;

/**
 * One text for a chat, such that the text of a conversation's next turn starts with that of this one: what comes before
 * the messages in every turn, then each message by itself. It stands for the prompt where there is no tokenizer.
 */
export function canonicalChat(fields: JsonObject, messages: readonly unknown[], hasher: PromptHasher): string {
  let text = "";
  for (const name of contextNames) {
    const value = fields[name];
    if (value === undefined || value === null) continue;
    text += `${name}${nameEnd}${textOf(value, hasher)}${fieldEnd}`;
  }
  return text + canonicalMessages(messages, hasher);
}

/** The part of `canonicalChat` for some of its messages. */
export function canonicalMessages(messages: readonly unknown[], hasher: PromptHasher): string {
  let text = messageEnd;
  for (const message of messages) text += canonicalMessage(message, hasher) + messageEnd;
  return text;
}

/** One of its messages. */
export function canonicalMessage(message: unknown, hasher: PromptHasher): string {
  if (!isJsonObject(message)) return textOf(message, hasher);
  let text = `${String(message.role ?? message.type ?? "")}${fieldEnd}${textOf(message.content ?? message.text, hasher)}`;
  for (const name of Object.keys(message)) {
    const value = message[name];
    if (name === "role" || name === "content" || value === undefined || value === null) continue;
    text += `${fieldEnd}${name}${nameEnd}${textOf(value, hasher)}`;
  }
  return text;
}

/** A field's value, or a message's content. */
export function textOf(value: unknown, hasher: PromptHasher): string {
  if (typeof value === "string") return value;
  if (Array.isArray(value)) return value.map((part) => partText(part, hasher)).join(fieldEnd);
  return value === undefined || value === null ? "" : bounded(JSON.stringify(value), hasher);
}

function partText(part: unknown, hasher: PromptHasher): string {
  if (typeof part === "string") return part;
  if (isTextPart(part) && isJsonObject(part)) {
    const text = part.text ?? part.refusal ?? part.thinking;
    if (typeof text === "string") return text;
  }
  return bounded(JSON.stringify(part) ?? "", hasher);
}

function bounded(text: string, { text: running }: PromptHasher): string {
  if (text.length <= maxVerbatimLength) return text;
  running.reset();
  running.update(text);
  return `${text.length}:${running.high.toString(16)}:${running.low.toString(16)}`;
}
