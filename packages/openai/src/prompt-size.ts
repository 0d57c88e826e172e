import type { JsonBody } from "@espalier/json-body";
import type { Endpoint, PromptField, PromptShape } from "./endpoints.ts";
import { invalidType, invalidValue, missingField } from "./field-readers.ts";
import type { BodyMember } from "./request-view.ts";

type TextShape = Extract<PromptShape, "text" | "items" | "ids">;
type Members = ReadonlyMap<string, BodyMember>;

/** What a token id counts for: English and code average about four bytes a token. */
const bytesPerTokenId = 4;

/** Whether a member is there. Null stands for absent, as clients that serialise every optional field send it. */
export function isThere(body: JsonBody, member: BodyMember | undefined): member is BodyMember {
  return member !== undefined && body.kindOf(member.node) !== "null";
}

/**
 * Checks the fields that hold the prompt and adds up their sizes: text by its UTF-8 bytes, token ids as four bytes
 * each, tools and other JSON by the bytes they take in the body. Images and audio count nothing.
 *
 * @throws EspalierError `missing_field`, `invalid_type` or `invalid_value`, naming the field
 */
export function measurePrompt(endpoint: Endpoint, body: JsonBody, members: Members): number {
  let bytes = 0;
  let found = false;
  for (const field of endpoint.promptFields) {
    const member = members.get(field.name);
    if (!isThere(body, member)) continue;
    found = true;
    bytes += sizeOfField(field, body, member);
  }
  if (!found) throw missingField(endpoint.promptFields[0]?.name ?? "prompt");
  for (const name of endpoint.contextFields) {
    const member = members.get(name);
    if (isThere(body, member)) bytes += member.end - member.start;
  }
  return bytes;
}

function sizeOfField({ name, shape }: PromptField, body: JsonBody, { node, start, end }: BodyMember): number {
  switch (shape) {
    case "messages":
      return sizeOfMessages(name, body, node);
    case "text":
    case "items":
    case "ids":
      return sizeOfText(name, shape, body, node);
    case "list":
      requireEntries(name, body, node);
      return end - start;
    case "json":
      if (!["string", "array", "object"].includes(body.kindOf(node))) {
        throw invalidType(name, "a string, an array or an object");
      }
      return end - start;
  }
}

function requireEntries(name: string, body: JsonBody, node: number): void {
  if (body.kindOf(node) !== "array") throw invalidType(name, "an array");
  if (body.after(node) === node + 1) throw invalidValue(name, "a non-empty array");
}

function sizeOfMessages(name: string, body: JsonBody, list: number): number {
  requireEntries(name, body, list);
  const behind = body.after(list);
  let bytes = 0;
  let index = 0;
  for (let message = list + 1; message < behind; message = body.after(message), index++) {
    if (body.kindOf(message) !== "object") throw invalidType(`${name}[${index}]`, "an object");
    bytes += sizeOfMessage(name, index, body, message);
  }
  return bytes;
}

function sizeOfMessage(name: string, index: number, body: JsonBody, message: number): number {
  const behind = body.after(message);
  for (let key = message + 1; key < behind; key = body.after(key + 1)) {
    if (body.isText(key, "content") && !contentKinds.has(body.kindOf(key + 1))) {
      throw invalidType(`${name}[${index}].content`, "a string or an array");
    }
  }
  return sizeOfPart(body, message);
}

const contentKinds: ReadonlySet<string> = new Set(["string", "array", "null"]);

function sizeOfText(name: string, shape: TextShape, body: JsonBody, node: number): number {
  const kind = body.kindOf(node);
  if (kind === "string" && shape !== "ids") return body.textBytes(node);
  if (kind !== "array") throw invalidType(name, shape === "ids" ? "an array" : "a string or an array");
  requireEntries(name, body, node);
  // Token ids are wanted as numbers later on as well, and the fields are parsed once.
  const entries = (): readonly unknown[] => body.fields[name] as readonly unknown[];
  if (body.kindOf(node + 1) === "number") return sizeOfTokenIds(name, entries());
  const behind = body.after(node);
  let bytes = 0;
  let index = 0;
  for (let entry = node + 1; entry < behind; entry = body.after(entry), index++) {
    const entryKind = body.kindOf(entry);
    if (entryKind === "array") bytes += sizeOfTokenIds(`${name}[${index}]`, entries()[index] as readonly unknown[]);
    else if (entryKind === "string" && shape !== "ids") bytes += body.textBytes(entry);
    else if (entryKind === "object" && shape === "items") bytes += sizeOfMessage(name, index, body, entry);
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

/** Members of a message, a content part, a tool call or a tool result that hold text, by their lengths. */
const textKeys = new Map(
  ["content", "text", "tool_calls", "function", "arguments", "output"].map((name) => [name.length, name]),
);

/**
 * The text in a message, a content part, a tool call or a tool result, whichever of the known members it has. Other
 * members are left to the engine to judge. The body's depth limit bounds the recursion.
 */
function sizeOfPart(body: JsonBody, part: number): number {
  const kind = body.kindOf(part);
  if (kind === "string") return body.textBytes(part);
  if (kind === "object") return sizeOfMembers(body, part);
  if (kind !== "array") return 0;
  const behind = body.after(part);
  let bytes = 0;
  for (let entry = part + 1; entry < behind; entry = body.after(entry)) bytes += sizeOfPart(body, entry);
  return bytes;
}

function sizeOfMembers(body: JsonBody, object: number): number {
  const behind = body.after(object);
  let bytes = 0;
  for (let key = object + 1; key < behind; key = body.after(key + 1)) {
    const name = textKeys.get(body.textBytes(key));
    if (name !== undefined && body.isText(key, name)) bytes += sizeOfPart(body, key + 1);
  }
  return bytes;
}
