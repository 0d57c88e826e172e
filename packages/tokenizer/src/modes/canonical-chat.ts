import { isJsonObject, type JsonBody, type JsonObject } from "@espalier/core";
import type { PromptHasher } from "../prompt/prompt-blocks.ts";
import { isTextPart } from "../prompt-request.ts";

/** Control characters that do not occur in chats: ends of a message, of a field, of a field's name. */
const [messageEnd, fieldEnd, nameEnd] = ["\u001d", "\u001e", "\u001f"];

/** Fields that precede the messages in a prompt. */
const contextNames = ["tools", "functions", "documents", "system", "instructions"] as const;

/** Longer values that are not text (such as inline images) are replaced by their hash. */
const maxVerbatimLength = 256;

/**
 * One text for a chat, such that the text of a conversation's next turn starts with it: first what precedes the
 * messages in every turn, then each message by itself. It replaces the prompt where there is no tokenizer.
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
function canonicalMessage(message: unknown, hasher: PromptHasher): string {
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
function textOf(value: unknown, hasher: PromptHasher): string {
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

type Piece = number | string;

/**
 * The text that replaces a request's prompt where there is no tokenizer, read from the body in place. The bytes equal
 * those of `canonicalChat`, or of the prompt itself, without copying the messages to objects.
 *
 * @returns bytes that are valid until the next body is read; undefined for a prompt that is no text or not in one piece
 */
export function bodyText(endpoint: string, body: JsonBody, hasher: PromptHasher): Uint8Array | undefined {
  switch (endpoint) {
    case "chat":
    case "messages":
      return chatText(body, body.member("messages"), hasher);
    case "responses":
      return inputText(body, body.member("input"), hasher);
    case "completions":
      return plainText(body, body.member("prompt"));
    case "generate":
      return isAbsent(body, body.member("input_ids")) ? plainText(body, body.member("text")) : undefined;
    default:
      return undefined;
  }
}

function plainText(body: JsonBody, node: number | undefined): Uint8Array | undefined {
  return node !== undefined && body.kindOf(node) === "string" ? body.join([node]) : undefined;
}

function chatText(body: JsonBody, list: number | undefined, hasher: PromptHasher): Uint8Array | undefined {
  if (list === undefined || body.kindOf(list) !== "array") return undefined;
  const pieces = contextPieces(body, hasher);
  const end = body.after(list);
  for (let message = list + 1; message < end; message = body.after(message)) {
    addMessage(pieces, body, message, hasher);
    pieces.push(messageEnd);
  }
  return body.join(pieces);
}

/** A text input is one message of the user. */
function inputText(body: JsonBody, input: number | undefined, hasher: PromptHasher): Uint8Array | undefined {
  if (input === undefined || body.kindOf(input) !== "string") return chatText(body, input, hasher);
  return body.join([...contextPieces(body, hasher), "user", fieldEnd, input, messageEnd]);
}

/** The fields before the first message. */
function contextPieces(body: JsonBody, hasher: PromptHasher): Piece[] {
  const pieces: Piece[] = [];
  for (const name of contextNames) {
    const node = body.member(name);
    if (node === undefined || body.kindOf(node) === "null") continue;
    pieces.push(name, nameEnd, body.kindOf(node) === "string" ? node : textOf(body.valueAt(node), hasher), fieldEnd);
  }
  pieces.push(messageEnd);
  return pieces;
}

/** Nearly every message consists of a role and a content, both strings. */
function addMessage(pieces: Piece[], body: JsonBody, message: number, hasher: PromptHasher): void {
  let role: number | undefined;
  let content: number | undefined;
  let isPlain = body.kindOf(message) === "object";
  const end = body.after(message);
  for (let key = message + 1; isPlain && key < end; key += 2) {
    if (body.kindOf(key + 1) !== "string") isPlain = false;
    else if (role === undefined && body.isText(key, "role")) role = key + 1;
    else if (content === undefined && body.isText(key, "content")) content = key + 1;
    else isPlain = false;
  }
  if (isPlain && role !== undefined && content !== undefined) pieces.push(role, fieldEnd, content);
  else pieces.push(canonicalMessage(body.valueAt(message), hasher));
}

const isAbsent = (body: JsonBody, node: number | undefined): boolean =>
  node === undefined || body.kindOf(node) === "null";
