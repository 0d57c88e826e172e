import type { Endpoint, PromptField, PromptShape } from "./endpoints.ts";
import { invalidType, invalidValue, isJsonObject, isPresent, type JsonObject, missingField } from "./field-readers.ts";
import type { Span } from "./json-scan.ts";

type TextShape = Extract<PromptShape, "text" | "items" | "ids">;

/** What a token id counts for: English and code average about four bytes a token. */
const bytesPerTokenId = 4;

/**
 * Checks the fields that hold the prompt and adds up their sizes: text by its UTF-8 bytes, token ids as four bytes
 * each, tools and other JSON by the bytes they take in the body. Images and audio count nothing.
 *
 * @throws EspalierError `missing_field`, `invalid_type` or `invalid_value`, naming the field
 */
export function measurePrompt(endpoint: Endpoint, fields: JsonObject, spans: ReadonlyMap<string, Span>): number {
  let bytes = 0;
  let found = false;
  for (const field of endpoint.promptFields) {
    if (!isPresent(fields[field.name])) continue;
    found = true;
    bytes += sizeOfField(field, fields[field.name], spans);
  }
  if (!found) throw missingField(endpoint.promptFields[0]?.name ?? "prompt");
  for (const name of endpoint.contextFields) if (isPresent(fields[name])) bytes += spanBytes(name, spans);
  return bytes;
}

function sizeOfField({ name, shape }: PromptField, value: unknown, spans: ReadonlyMap<string, Span>): number {
  switch (shape) {
    case "messages":
      return sizeOfMessages(name, value);
    case "text":
    case "items":
    case "ids":
      return sizeOfText(name, shape, value);
    case "list":
      nonEmptyArray(name, value);
      return spanBytes(name, spans);
    case "json":
      if (typeof value !== "string" && typeof value !== "object") {
        throw invalidType(name, "a string, an array or an object");
      }
      return spanBytes(name, spans);
  }
}

function spanBytes(name: string, spans: ReadonlyMap<string, Span>): number {
  const span = spans.get(name);
  return span ? span.end - span.start : 0;
}

function nonEmptyArray(name: string, value: unknown): readonly unknown[] {
  if (!Array.isArray(value)) throw invalidType(name, "an array");
  if (value.length === 0) throw invalidValue(name, "a non-empty array");
  return value;
}

function sizeOfMessages(name: string, value: unknown): number {
  const messages = nonEmptyArray(name, value);
  let bytes = 0;
  for (let index = 0; index < messages.length; index++) {
    const message = messages[index];
    if (!isJsonObject(message)) throw invalidType(`${name}[${index}]`, "an object");
    bytes += sizeOfMessage(name, index, message);
  }
  return bytes;
}

function sizeOfMessage(name: string, index: number, message: JsonObject): number {
  const content = message.content;
  if (isPresent(content) && typeof content !== "string" && !Array.isArray(content)) {
    throw invalidType(`${name}[${index}].content`, "a string or an array");
  }
  return sizeOfPart(message);
}

function sizeOfText(name: string, shape: TextShape, value: unknown): number {
  if (typeof value === "string" && shape !== "ids") return Buffer.byteLength(value);
  if (!Array.isArray(value)) throw invalidType(name, shape === "ids" ? "an array" : "a string or an array");
  const entries = nonEmptyArray(name, value);
  if (typeof entries[0] === "number") return sizeOfTokenIds(name, entries);
  let bytes = 0;
  for (let index = 0; index < entries.length; index++) {
    const entry = entries[index];
    if (Array.isArray(entry)) bytes += sizeOfTokenIds(`${name}[${index}]`, entry);
    else if (typeof entry === "string" && shape !== "ids") bytes += Buffer.byteLength(entry);
    else if (shape === "items" && isJsonObject(entry)) bytes += sizeOfMessage(name, index, entry);
    else throw invalidType(`${name}[${index}]`, expectedEntry[shape]);
  }
  return bytes;
}

const expectedEntry: Readonly<Record<TextShape, string>> = {
  text: "a string or an array of token ids",
  items: "a string, an object or an array of token ids",
  ids: "an array of token ids",
};

function sizeOfTokenIds(name: string, ids: readonly unknown[]): number {
  for (let index = 0; index < ids.length; index++) {
    const id = ids[index];
    if (typeof id !== "number") throw invalidType(`${name}[${index}]`, "a token id");
    if (id >>> 0 !== id) throw invalidValue(`${name}[${index}]`, "an integer from 0 to 4294967295");
  }
  return ids.length * bytesPerTokenId;
}

/**
 * The text in a message, a content part, a tool call or a tool result, whichever of the known members it has. Other
 * members are left to the engine to judge. The body's depth limit bounds the recursion.
 */
function sizeOfPart(part: unknown): number {
  if (typeof part === "string") return Buffer.byteLength(part);
  if (Array.isArray(part)) {
    let bytes = 0;
    for (const entry of part) bytes += sizeOfPart(entry);
    return bytes;
  }
  if (!isJsonObject(part)) return 0;
  return (
    sizeOfPart(part.content) +
    sizeOfPart(part.text) +
    sizeOfPart(part.tool_calls) +
    sizeOfPart(part.function) +
    sizeOfPart(part.arguments) +
    sizeOfPart(part.output)
  );
}
