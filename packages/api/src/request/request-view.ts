import { isUtf8 } from "node:buffer";
import {
  EspalierError,
  forbiddenKey,
  isJsonObject,
  type JsonBody,
  type JsonFault,
  type JsonObject,
  scanBody,
} from "@espalier/core";
import { type Endpoint, endpoints, type PromptField } from "../endpoints.ts";
import { type Span, syntaxErrorAt } from "../json-scan.ts";
import { invalidType, invalidValue, missingField, readBoolean, readInteger, readText } from "./field-readers.ts";

/** What the router knows of one request body. */
export interface RequestView {
  readonly endpoint: Endpoint;
  /** Undefined when the body names none, or an empty one: the engine then takes its own. */
  readonly model: string | undefined;
  /** The LoRA adapter in `lora_path`, SGLang's field for it, if it is one name. */
  readonly adapter: string | undefined;
  /** Whether the answer is a stream of server-sent events. */
  readonly stream: boolean;
  /** Whether the answer is a stream without usage, and the router can ask for it without changing anything else. */
  readonly canAddUsage: boolean;
  /** Size of the prompt: UTF-8 bytes of its text, plus four per token id and the JSON bytes of tools. */
  readonly promptBytes: number;
  /** The prompt field that has an unknown layout, and counts by its bytes in the body; undefined for none. */
  readonly unreadPrompt: string | undefined;
  /** The client's limit on the output of one choice, in tokens; undefined if there is none, or none that can be read. */
  readonly maxOutputTokens: number | undefined;
  /** Number of completions requested. */
  readonly choices: number;
  readonly bodySession: SessionFields;
  /** vLLM serves lower values first, SGLang higher ones. NaN for a value that cannot be read. */
  readonly priority: number | undefined;
  /** OpenAI's `service_tier`. */
  readonly serviceTier: string | undefined;
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

/** Top-level keys of a request body. A body with more is rejected. */
const maxTopLevelKeys = 1_024;
/** Longest `model` of a request, in UTF-16 units. */
const maxModelLength = 256;
/** Longest `previous_response_id` that the router reads, in UTF-16 units. */
const maxResponseIdLength = 256;

/** Most choices: vLLM's default limit (`VLLM_MAX_N_SEQUENCES`). Other engines have none, and more exhaust them. */
const maxChoices = 16_384;
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
 * Reads what the router needs from a request body. Refuses a body that two JSON readers could understand differently,
 * one without any prompt, and one that asks for too much; a value of another type than expected is the engine's to
 * judge.
 *
 * @throws EspalierError `duplicate_key`, `missing_field`, `invalid_type` or `invalid_value`; never quotes the prompt
 */
export function viewRequest(endpoint: Endpoint, body: JsonBody): RequestView {
  const members = indexMembers(body);
  const repeated = body.repeatedKey();
  if (repeated !== undefined) throw duplicateKey(repeated);
  const fields: Record<string, unknown> = {};
  for (const [name, { node }] of members) if (readFields.has(name)) fields[name] = body.valueAt(node);
  return {
    endpoint,
    model: readModel(fields.model),
    adapter: readText(fields.lora_path),
    stream: endpoint.streams && readBoolean(fields.stream) === true,
    canAddUsage: endpoint.usageInjectable && fields.stream === true && lacksUsage(fields.stream_options),
    ...measurePrompt(endpoint, body, members),
    ...(endpoint.id === "generate" || endpoint.id === "token_generate"
      ? readSamplingParams(fields.sampling_params)
      : { maxOutputTokens: readOutputLimit(endpoint, fields), choices: readChoices(fields.n, "n") }),
    bodySession: readSessionFields(endpoint, fields),
    priority: fields.priority === undefined || fields.priority === null ? undefined : readPriority(fields.priority),
    serviceTier: readText(fields.service_tier),
    previousResponseId: endpoint.id === "responses" ? readResponseId(fields.previous_response_id) : undefined,
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
  ...["model", "lora_path", "stream", "stream_options", "n", "priority", "previous_response_id", "sampling_params"],
  ...["user", "session_id", "prompt_cache_key", "metadata", "service_tier"],
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
  return new EspalierError("duplicate_key", `Duplicate key ${JSON.stringify(param)}.`, { param });
}

/** @throws EspalierError for what no engine takes for a name, and cannot be routed */
function readModel(model: unknown): string | undefined {
  if (model === undefined || model === null) return undefined;
  if (typeof model !== "string") throw invalidType("model", "a string");
  if (model.length > maxModelLength) throw invalidValue("model", `at most ${maxModelLength} characters long`);
  return model === "" ? undefined : model;
}

/** Whether these stream options ask for no usage, and can be made to ask for it at the end of the stream only. */
function lacksUsage(options: unknown): boolean {
  if (options === undefined || options === null) return true;
  if (!isJsonObject(options) || readBoolean(options.include_usage)) return false;
  // With usage on, vLLM adds it to every chunk.
  return !readBoolean(options.continuous_usage_stats);
}

/** A negative limit is none: llama.cpp's clients send -1. */
function readLimit(value: unknown): number | undefined {
  const limit = readInteger(value);
  return limit !== undefined && limit >= 0 ? Math.min(limit, Number.MAX_SAFE_INTEGER) : undefined;
}

function readOutputLimit(endpoint: Endpoint, fields: JsonObject): number | undefined {
  for (const name of endpoint.outputLimitFields) {
    const limit = readLimit(fields[name]);
    if (limit !== undefined) return limit;
  }
  return undefined;
}

/** @throws EspalierError `invalid_value` for more than 16,384 */
function readChoices(value: unknown, path: string): number {
  const choices = readInteger(value) ?? 1;
  if (choices > maxChoices) throw invalidValue(path, `at most ${maxChoices}`);
  return Math.max(1, choices);
}

/**
 * SGLang and vLLM's API of token ids have these in `sampling_params`: one object, or one for each prompt of a batch, of
 * which the largest value counts.
 */
function readSamplingParams(params: unknown): Pick<RequestView, "maxOutputTokens" | "choices"> {
  let maxOutputTokens: number | undefined;
  let choices = 1;
  for (const entry of Array.isArray(params) ? params : [params]) {
    if (!isJsonObject(entry)) continue;
    const limit = readLimit(entry.max_new_tokens ?? entry.max_tokens);
    if (limit !== undefined) maxOutputTokens = Math.max(maxOutputTokens ?? 0, limit);
    choices = Math.max(choices, readChoices(entry.n, "sampling_params.n"));
  }
  return { maxOutputTokens, choices };
}

function readPriority(value: unknown): number {
  const priority = readInteger(value);
  return Number.isSafeInteger(priority) ? (priority as number) : Number.NaN;
}

/** No response of a router has a longer id. */
function readResponseId(value: unknown): string | undefined {
  const id = readText(value);
  return id !== undefined && id.length <= maxResponseIdLength ? id : undefined;
}

function readSessionFields(endpoint: Endpoint, { user, session_id, prompt_cache_key, metadata }: JsonObject) {
  const isOfAnthropic = endpoint.family === "anthropic" && isJsonObject(metadata);
  return {
    user: readText(isOfAnthropic ? metadata.user_id : user),
    session_id: readText(session_id),
    prompt_cache_key: readText(prompt_cache_key),
  };
}

/** Whether a member is present. Null counts as absent, since some clients serialise every optional field. */
function isThere(body: JsonBody, member: BodyMember | undefined): member is BodyMember {
  return member !== undefined && body.kindOf(member.node) !== "null";
}

/** Bytes that a token id counts as: English and code average about four bytes per token. */
const bytesPerTokenId = 4;

/**
 * Adds up the sizes of the prompt fields: UTF-8 bytes of text, four bytes per token id, the bytes in the body of tools
 * and other JSON. Images and audio count as nothing. A field of an unknown layout counts by its bytes in the body.
 *
 * @throws EspalierError `missing_field` where there is no prompt
 */
function measurePrompt(
  endpoint: Endpoint,
  body: JsonBody,
  members: Members,
): Pick<RequestView, "promptBytes" | "unreadPrompt"> {
  let promptBytes = 0;
  let unreadPrompt: string | undefined;
  let found = false;
  for (const { name, shape } of endpoint.promptFields) {
    const member = members.get(name);
    if (!isThere(body, member)) continue;
    found = true;
    const bytes = sizeOfField({ name, shape }, body, member);
    if (bytes === undefined) unreadPrompt ??= name;
    promptBytes += bytes ?? member.end - member.start;
  }
  if (!found) throw missingField(endpoint.promptFields[0]?.name ?? "prompt");
  for (const name of endpoint.contextFields) {
    const member = members.get(name);
    if (isThere(body, member)) promptBytes += member.end - member.start;
  }
  return { promptBytes, unreadPrompt };
}

/** @returns undefined for a layout that is not the field's */
function sizeOfField(
  { name, shape }: PromptField,
  body: JsonBody,
  { node, start, end }: BodyMember,
): number | undefined {
  switch (shape) {
    case "messages":
      return body.kindOf(node) === "array" ? sizeOfEntries(body, node, sizeOfMessage) : undefined;
    case "text":
    case "items":
    case "ids":
      return sizeOfText({ name, shape }, body, node);
    case "json":
      return ["string", "array", "object"].includes(body.kindOf(node)) ? end - start : undefined;
  }
}

/** The sum over a list; undefined when it is empty or one of its entries has no size. */
function sizeOfEntries(
  body: JsonBody,
  list: number,
  sizeOf: (body: JsonBody, entry: number) => number | undefined,
): number | undefined {
  const end = body.after(list);
  if (end === list + 1) return undefined;
  let bytes = 0;
  for (let entry = list + 1; entry < end; entry = body.after(entry)) {
    const size = sizeOf(body, entry);
    if (size === undefined) return undefined;
    bytes += size;
  }
  return bytes;
}

const contentKinds: ReadonlySet<string> = new Set(["string", "array", "null"]);

function sizeOfMessage(body: JsonBody, message: number): number | undefined {
  if (body.kindOf(message) !== "object") return undefined;
  const end = body.after(message);
  for (let key = message + 1; key < end; key = body.after(key + 1)) {
    if (body.isText(key, "content") && !contentKinds.has(body.kindOf(key + 1))) return undefined;
  }
  return sizeOfPart(body, message);
}

function sizeOfText({ name, shape }: PromptField, body: JsonBody, node: number): number | undefined {
  const kind = body.kindOf(node);
  if (kind === "string" && shape !== "ids") return body.textBytes(node);
  if (kind !== "array") return undefined;
  // Token ids are needed as numbers later too, and the fields are parsed once.
  const entries = (): readonly unknown[] => body.fields[name] as readonly unknown[];
  if (body.after(node) > node + 1 && body.kindOf(node + 1) === "number") return sizeOfTokenIds(entries());
  let index = 0;
  return sizeOfEntries(body, node, (_, entry) => {
    const at = index++;
    const entryKind = body.kindOf(entry);
    if (entryKind === "array") return sizeOfTokenIds(entries()[at] as readonly unknown[]);
    if (shape === "ids") return undefined;
    if (entryKind === "string") return body.textBytes(entry);
    return shape === "items" ? sizeOfMessage(body, entry) : undefined;
  });
}

function sizeOfTokenIds(ids: readonly unknown[]): number | undefined {
  return ids.every((id) => typeof id === "number" && id >>> 0 === id) ? ids.length * bytesPerTokenId : undefined;
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
