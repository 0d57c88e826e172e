import { isUtf8 } from "node:buffer";
import { EspalierError } from "@espalier/common";
import { forbiddenKey, type JsonBody, type JsonFault, type JsonObject, scanBody } from "@espalier/json-body";
import { type Endpoint, endpoints } from "./endpoints.ts";
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
import type { Span } from "./json-scan.ts";
import { syntaxErrorAt } from "./json-syntax.ts";
import { isThere, measurePrompt } from "./prompt-size.ts";
import { readSessionFields, type SessionFields } from "./session-fields.ts";

/** What the router knows of one request body. */
export interface RequestView {
  readonly endpoint: Endpoint;
  readonly model: string | undefined;
  /** Whether the answer is to be a stream of server-sent events. */
  readonly stream: boolean;
  /** Whether the client itself asked for usage in the stream. */
  readonly wantsUsage: boolean;
  /** Size of the prompt: UTF-8 bytes of its text, four for each token id, the JSON bytes of tools. */
  readonly promptBytes: number;
  /** The client's bound on the output of one choice, in tokens. */
  readonly maxOutputTokens: number | undefined;
  /** How many completions are asked for. */
  readonly choices: number;
  readonly bodySession: SessionFields;
  /** As the client sent it. In vLLM a lower value goes first, in SGLang a higher one. */
  readonly priority: number | undefined;
  readonly previousResponseId: string | undefined;
  /** What it was read from. What this view does not say is read there, at its own cost. */
  readonly body: JsonBody;
  /** Where the value of each top-level key stands in the body, in bytes. */
  readonly spans: ReadonlyMap<string, Span>;
}

export interface BodyLimits {
  /** Levels of nesting that are accepted; the body's own object is level 1. */
  readonly maxDepth: number;
}

const maxTopLevelKeys = 1_024;
const maxModelLength = 256;
const maxResponseIdLength = 256;
/** vLLM's own default bound (`VLLM_MAX_N_SEQUENCES`). */
const choiceRange: IntegerRange = { min: 1, max: 16_384 };
const priorityRange: IntegerRange = { min: Number.MIN_SAFE_INTEGER, max: Number.MAX_SAFE_INTEGER };
/** A key is named in an error by this many of its characters. */
const maxNamedKeyLength = 64;

/**
 * Finds the values of a request body.
 *
 * @param bytes the bytes as received, which must not change afterwards
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
 * Reads what the router needs from a request body, and refuses a body that two JSON readers could understand
 * differently. Fields it does not read are left to the engine to judge.
 *
 * @throws EspalierError `duplicate_key`, `missing_field`, `invalid_type` or `invalid_value`; never with text of the prompt
 *   in it
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

/** Both in one: `scanRequest`, then `viewRequest`. */
export function readRequestView(endpoint: Endpoint, bytes: Buffer, limits: BodyLimits): RequestView {
  return viewRequest(endpoint, scanRequest(bytes, limits));
}

/** The fields that are read here, in the order of this file. All others are left where they are. */
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

/** A member of the body's own object: where its value stands, and the node that it is. */
export interface BodyMember extends Span {
  readonly node: number;
}

/** @throws EspalierError `duplicate_key`, or `invalid_value` for more than 1,024 keys */
function indexMembers(body: JsonBody): ReadonlyMap<string, BodyMember> {
  const members = new Map<string, BodyMember>();
  const behind = body.after(0);
  for (let key = 1; key < behind; key = body.after(key + 1)) {
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

/** SGLang keeps these in `sampling_params`: one object, or one for each prompt of a batch, of which the largest counts. */
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
