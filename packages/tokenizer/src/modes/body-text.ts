import type { JsonBody } from "@espalier/json-body";
import type { PromptHasher } from "../prompt/prompt-hasher.ts";
import { canonicalMessage, contextNames, fieldEnd, messageEnd, nameEnd, textOf } from "./canonical-chat.ts";

type Piece = number | string;

/**
 * The text that stands for a request's prompt where there is no tokenizer, taken from the body as it lies: the bytes are
 * those of `canonicalChat`, or of the prompt itself, without a copy of the messages as objects.
 *
 * @returns bytes that stay until the next body is read; undefined for a prompt that is no text, or not in one piece
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
  const behind = body.after(list);
  for (let message = list + 1; message < behind; message = body.after(message)) {
    addMessage(pieces, body, message, hasher);
    pieces.push(messageEnd);
  }
  return body.join(pieces);
}

/** An input that is a text is one message of the user. */
function inputText(body: JsonBody, input: number | undefined, hasher: PromptHasher): Uint8Array | undefined {
  if (input === undefined || body.kindOf(input) !== "string") return chatText(body, input, hasher);
  return body.join([...contextPieces(body, hasher), "user", fieldEnd, input, messageEnd]);
}

/** What comes before the first message. */
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

/** Nearly every message has a role and a content and nothing else, both of them strings. */
function addMessage(pieces: Piece[], body: JsonBody, message: number, hasher: PromptHasher): void {
  let role: number | undefined;
  let content: number | undefined;
  let isPlain = body.kindOf(message) === "object";
  const behind = body.after(message);
  for (let key = message + 1; isPlain && key < behind; key += 2) {
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
