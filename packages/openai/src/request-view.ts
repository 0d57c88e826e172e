import { isUtf8 } from "node:buffer";
import { EspalierError } from "@espalier/common";
import { forbiddenKey, type JsonBody, type JsonFault, type JsonObject, scanBody } from "@espalier/json-body";
import { type Endpoint, endpoints, type PromptField, type PromptShape } from "./endpoints.ts";
import {
  type IntegerRange,
  invalidType,
  invalidValue,
  isJsonObject,
  isPresent,
  missingField,
  readBoolean,
  readInteger,
  readObject,
  readString,
} from "./field-readers.ts";
import { type Span, syntaxErrorAt } from "./json-scan.ts";

/** What the router knows of one request body. */
export interface RequestView {
  readonly endpoint: Endpoint;
  readonly model: string | undefined;
  /** Whether the answer is a stream of server-sent events. */
  readonly stream: boolean;
  /** Whether the client itself asked for usage in the stream. */
  readonly wantsUsage: boolean;
  /** Size of the prompt: UTF-8 bytes of its text, plus four per token id and the JSON bytes of tools. */
  readonly promptBytes: number;
  /** The client's limit on the output of one choice, in tokens. */
  readonly maxOutputTokens: number | undefined;
  /** Number of completions requested. */
  readonly choices: number;
  readonly bodySession: SessionFields;
  /** As the client sent it. vLLM serves lower values first, SGLang higher ones. */
  readonly priority: number | undefined;
  readonly previousResponseId: string | undefined;
  /** The body of this view, for everything the view lacks. Reading it has its own cost. */
  readonly body: JsonBody;
  /** Byte range of each top-level key's value in the body. */
  readonly spans: ReadonlyMap<string, Span>;
}

/** Fields of a body that identify its session. `user` is `metadata.user_id` in Anthropic's API. */
export interface SessionFields {
  readonly user: string | undefined;
  readonly session_id: string | undefined;
  readonly prompt_cache_key: string | undefined;
}

export interface BodyLimits {
  /** Most levels of nesting; the body's own object is level 1. */
  readonly maxDepth: number;
}

/** A member of the body's own object: the range of its value, and its node. */
interface BodyMember extends Span {
  readonly node: number;
}

type Members = ReadonlyMap<string, BodyMember>;

const maxTopLevelKeys = 1_024;
const maxModelLength = 256;
const maxResponseIdLength = 256;

/** Longest session key, in UTF-16 units. */
export const maxSessionKeyLength = 1_024;

/** vLLM's default limit (`VLLM_MAX_N_SEQUENCES`). */
const choiceRange: IntegerRange = { min: 1, max: 16_384 };
const priorityRange: IntegerRange = { min: Number.MIN_SAFE_INTEGER, max: Number.MAX_SAFE_INTEGER };
/** How many characters of a key an error quotes. */
const maxNamedKeyLength = 64;

/**
 * Finds the values of a request body.
 *
 * @param bytes the bytes as received; they must not change afterwards
 * @throws EspalierError `invalid_utf8`, `invalid_json`, `invalid_body`, `forbidden_key`, `nesting_too_deep` or
 *   `body_too_large`
 */
export function scanRequest(bytes: Buffer, limits: BodyLimits): JsonBody {
  if (!isUtf8(bytes)) throw new EspalierError("invalid_utf8");
  const body = scanBody(bytes, limits.maxDepth);
  if (typeof body === "string") throw faultOf(body, bytes, limits);
  return body;
}

/**
 * Reads what the router needs from a request body. Refuses a body that two JSON readers could understand differently.
 * The engine judges all fields that are not read here.
 *
 * @throws EspalierError `duplicate_key`, `missing_field`, `invalid_type` or `invalid_value`; never quotes the prompt
 */
export function viewRequest(endpoint: Endpoint, body: JsonBody): RequestView {
  const members = indexMembers(body);
  const repeated = body.repeatedKey();
  if (repeated !== undefined) throw duplicateKey(repeated);
  const fields: Record<string, unknown> = {};
  for (const [name, { node }] of members) if (readFields.has(name)) fields[name] = body.valueAt(node);
  const model = readModel(endpoint, fields);
  for (const name of endpoint.requiredFields) if (!isThere(body, members.get(name))) throw missingField(name);
  const sampling = endpoint.family === "sglang" ? readSamplingParams(endpoint, fields) : undefined;
  return {
    endpoint,
    model,
    stream: endpoint.streams && readBoolean(fields, "stream"),
    wantsUsage: endpoint.usageInjectable && readWantsUsage(fields),
    promptBytes: measurePrompt(endpoint, body, members),
    maxOutputTokens: sampling ? sampling.maxOutputTokens : readOutputLimit(endpoint, fields),
    choices: (sampling ? sampling.choices : readInteger(fields, "n", choiceRange)) ?? 1,
    bodySession: readSessionFields(endpoint, fields),
    priority: readInteger(fields, "priority", priorityRange),
    previousResponseId:
      endpoint.id === "responses" ? readString(fields, "previous_response_id", maxResponseIdLength) : undefined,
    body,
    spans: members,
  };
}

/** `scanRequest`, then `viewRequest`. */
export function readRequestView(endpoint: Endpoint, bytes: Buffer, limits: BodyLimits): RequestView {
  return viewRequest(endpoint, scanRequest(bytes, limits));
}

/** The fields read here, in the order of this file. All others stay unread. */
const readFields: ReadonlySet<string> = new Set([
  ...["model", "stream", "stream_options", "n", "priority", "previous_response_id", "sampling_params"],
  ...["user", "session_id", "prompt_cache_key", "metadata"],
  ...endpoints.flatMap(({ outputLimitFields }) => outputLimitFields),
]);

function faultOf(fault: JsonFault, bytes: Buffer, { maxDepth }: BodyLimits): EspalierError {
  switch (fault) {
    case "too_deep":
      return new EspalierError("nesting_too_deep", `The body nests deeper than ${maxDepth} levels.`);
    case "too_large":
      return new EspalierError("body_too_large");
    case "no_object":
      return new EspalierError("invalid_body");
    case "forbidden_key":
      return new EspalierError("forbidden_key", `The key ${forbiddenKey} is not accepted.`, { param: forbiddenKey });
    case "invalid": {
      const at = syntaxErrorAt(bytes.toString("latin1"));
      const what = at >= bytes.length ? "it ends too early" : "unexpected character";
      return new EspalierError("invalid_json", `The body is not valid JSON: ${what} at byte ${at}.`);
    }
  }
}

/** @throws EspalierError `duplicate_key`, or `invalid_value` for more than 1,024 keys */
function indexMembers(body: JsonBody): ReadonlyMap<string, BodyMember> {
  const members = new Map<string, BodyMember>();
  const end = body.after(0);
  for (let key = 1; key < end; key = body.after(key + 1)) {
    const name = body.textOf(key);
    if (members.has(name)) throw duplicateKey(name);
    if (members.size === maxTopLevelKeys) {
      throw new EspalierError("invalid_value", `The body has more than ${maxTopLevelKeys} top-level keys.`);
    }
    members.set(name, { start: body.startOf(key + 1), end: body.endOf(key + 1), node: key + 1 });
  }
  return members;
}

function duplicateKey(name: string): EspalierError {
  const param = name.slice(0, maxNamedKeyLength);
  return new EspalierError("duplicate_key", `The key ${JSON.stringify(param)} stands twice.`, { param });
}

function readModel(endpoint: Endpoint, fields: JsonObject): string | undefined {
  const model = readString(fields, "model", maxModelLength);
  if (model !== undefined) return model;
  if (fields.model === "") throw invalidValue("model", "a non-empty string");
  if (endpoint.modelRequired) throw missingField("model");
  return undefined;
}

function readWantsUsage(fields: JsonObject): boolean {
  const options = readObject(fields, "stream_options");
  return options !== undefined && readBoolean(options, "include_usage", "stream_options.include_usage");
}

function outputRange(endpoint: Endpoint): IntegerRange {
  return { min: endpoint.minOutputTokens, max: Number.MAX_SAFE_INTEGER };
}

function readOutputLimit(endpoint: Endpoint, fields: JsonObject): number | undefined {
  let limit: number | undefined;
  const range = outputRange(endpoint);
  for (const name of endpoint.outputLimitFields) {
    const value = readInteger(fields, name, range);
    limit ??= value;
  }
  return limit;
}

interface SamplingParams {
  readonly maxOutputTokens: number | undefined;
  readonly choices: number | undefined;
}

/**
 * SGLang has these in `sampling_params`: one object, or one for each prompt of a batch, of which the largest value
 * counts.
 */
function readSamplingParams(endpoint: Endpoint, fields: JsonObject): SamplingParams {
  const value = fields.sampling_params;
  const entries: readonly unknown[] = Array.isArray(value) ? value : isPresent(value) ? [value] : [];
  let maxOutputTokens: number | undefined;
  let choices: number | undefined;
  for (const entry of entries) {
    if (!isJsonObject(entry)) throw invalidType("sampling_params", "an object or an array of objects");
    const limit = readInteger(entry, "max_new_tokens", outputRange(endpoint), "sampling_params.max_new_tokens");
    const count = readInteger(entry, "n", choiceRange, "sampling_params.n");
    if (limit !== undefined) maxOutputTokens = Math.max(maxOutputTokens ?? 0, limit);
    if (count !== undefined) choices = Math.max(choices ?? 0, count);
  }
  return { maxOutputTokens, choices };
}

/** @throws EspalierError `invalid_type`, or `invalid_value` for a value of more than 1,024 characters */
function readSessionFields(endpoint: Endpoint, fields: JsonObject): SessionFields {
  const metadata = endpoint.family === "anthropic" ? readObject(fields, "metadata") : undefined;
  return {
    user: metadata
      ? readString(metadata, "user_id", maxSessionKeyLength, "metadata.user_id")
      : readString(fields, "user", maxSessionKeyLength),
    session_id: readString(fields, "session_id", maxSessionKeyLength),
    prompt_cache_key: readString(fields, "prompt_cache_key", maxSessionKeyLength),
  };
}

/** Whether a member is present. Null counts as absent, since some clients serialise every optional field. */
function isThere(body: JsonBody, member: BodyMember | undefined): member is BodyMember {
  return member !== undefined && body.kindOf(member.node) !== "null";
}

/** Bytes that a token id counts as: English and code average about four bytes per token. */
const bytesPerTokenId = 4;

/**
 * Checks the prompt fields and adds up their sizes: UTF-8 bytes of text, four bytes per token id, the bytes in the body
 * of tools and other JSON. Images and audio count as nothing.
 *
 * @throws EspalierError `missing_field`, `invalid_type` or `invalid_value`, naming the field
 */
function measurePrompt(endpoint: Endpoint, body: JsonBody, members: Members): number {
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

type TextShape = Extract<PromptShape, "text" | "items" | "ids">;

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
  const end = body.after(list);
  let bytes = 0;
  let index = 0;
  for (let message = list + 1; message < end; message = body.after(message), index++) {
    if (body.kindOf(message) !== "object") throw invalidType(`${name}[${index}]`, "an object");
    bytes += sizeOfMessage(name, index, body, message);
  }
  return bytes;
}

function sizeOfMessage(name: string, index: number, body: JsonBody, message: number): number {
  const end = body.after(message);
  for (let key = message + 1; key < end; key = body.after(key + 1)) {
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
  // Token ids are needed as numbers later too, and the fields are parsed once.
  const entries = (): readonly unknown[] => body.fields[name] as readonly unknown[];
  if (body.kindOf(node + 1) === "number") return sizeOfTokenIds(name, entries());
  const end = body.after(node);
  let bytes = 0;
  let index = 0;
  for (let entry = node + 1; entry < end; entry = body.after(entry), index++) {
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

/** Text members of a message, a content part, a tool call or a tool result, by the length of their names. */
const textKeys = new Map(
  ["content", "text", "tool_calls", "function", "arguments", "output"].map((name) => [name.length, name]),
);

/**
 * Size of the text in a message, a content part, a tool call or a tool result, in all known members. The engine judges
 * other members. The body's depth limit bounds the recursion.
 */
function sizeOfPart(body: JsonBody, part: number): number {
  const kind = body.kindOf(part);
  if (kind === "string") return body.textBytes(part);
  if (kind === "object") return sizeOfMembers(body, part);
  if (kind !== "array") return 0;
  const end = body.after(part);
  let bytes = 0;
  for (let entry = part + 1; entry < end; entry = body.after(entry)) bytes += sizeOfPart(body, entry);
  return bytes;
}

function sizeOfMembers(body: JsonBody, object: number): number {
  const end = body.after(object);
  let bytes = 0;
  for (let key = object + 1; key < end; key = body.after(key + 1)) {
    const name = textKeys.get(body.textBytes(key));
    if (name !== undefined && body.isText(key, name)) bytes += sizeOfPart(body, key + 1);
  }
  return bytes;
}
