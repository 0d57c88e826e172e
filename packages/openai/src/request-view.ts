import { isAscii, isUtf8 } from "node:buffer";
import { EspalierError } from "@espalier/common";
import type { Endpoint } from "./endpoints.ts";
import {
  type IntegerRange,
  invalidType,
  invalidValue,
  isJsonObject,
  isPresent,
  type JsonObject,
  missingField,
  readBoolean,
  readInteger,
  readObject,
  readString,
} from "./field-readers.ts";
import { type Member, memberKey, type Span, scanObject } from "./json-scan.ts";
import { syntaxErrorAt } from "./json-syntax.ts";
import { measurePrompt } from "./prompt-size.ts";
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
  /** The parsed body. Shared by all readers: never to be changed. */
  readonly fields: JsonObject;
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
 * Reads what the router needs from a request body, and refuses a body that two JSON readers could understand
 * differently. Fields it does not read are left to the engine to judge.
 *
 * @param body the bytes as received
 * @throws EspalierError `invalid_utf8`, `invalid_json`, `invalid_body`, `duplicate_key`, `forbidden_key`,
 *   `nesting_too_deep`, `missing_field`, `invalid_type` or `invalid_value`; never with text of the prompt in it
 */
export function readRequestView(endpoint: Endpoint, body: Buffer, limits: BodyLimits): RequestView {
  const ascii = isAscii(body);
  if (!ascii && !isUtf8(body)) throw new EspalierError("invalid_utf8");
  // Latin-1 keeps one character for each byte, which makes offsets bytes and searches native.
  const text = body.toString("latin1");
  const scan = scanObject(text, 0, { maxDepth: limits.maxDepth, maxMembers: maxTopLevelKeys });
  const fields = parse(body, text, ascii);
  if (scan.hasForbiddenKey) {
    throw new EspalierError("forbidden_key", "The key __proto__ is not accepted.", { param: "__proto__" });
  }
  const spans = indexMembers(text, scan.members);
  const model = readModel(endpoint, fields);
  for (const name of endpoint.requiredFields) if (!isPresent(fields[name])) throw missingField(name);
  const sampling = endpoint.family === "sglang" ? readSamplingParams(endpoint, fields) : undefined;
  return {
    endpoint,
    model,
    stream: endpoint.streams && readBoolean(fields, "stream"),
    wantsUsage: endpoint.usageInjectable && readWantsUsage(fields),
    promptBytes: measurePrompt(endpoint, fields, spans),
    maxOutputTokens: sampling ? sampling.maxOutputTokens : readOutputLimit(endpoint, fields),
    choices: (sampling ? sampling.choices : readInteger(fields, "n", choiceRange)) ?? 1,
    bodySession: readSessionFields(endpoint, fields),
    priority: readInteger(fields, "priority", priorityRange),
    previousResponseId:
      endpoint.id === "responses" ? readString(fields, "previous_response_id", maxResponseIdLength) : undefined,
    fields,
    spans,
  };
}

function parse(body: Buffer, text: string, ascii: boolean): JsonObject {
  let parsed: unknown;
  try {
    parsed = JSON.parse(ascii ? text : body.toString("utf8"));
  } catch {
    const at = syntaxErrorAt(text);
    const what = at >= text.length ? "it ends too early" : "unexpected character";
    throw new EspalierError("invalid_json", `The body is not valid JSON: ${what} at byte ${at}.`);
  }
  if (!isJsonObject(parsed)) throw new EspalierError("invalid_body");
  return parsed;
}

function indexMembers(text: string, members: readonly Member[]): ReadonlyMap<string, Span> {
  const spans = new Map<string, Span>();
  for (const member of members) {
    const key = memberKey(text, member);
    if (spans.has(key)) {
      const name = key.slice(0, maxNamedKeyLength);
      throw new EspalierError("duplicate_key", `The key ${JSON.stringify(name)} stands twice.`, { param: name });
    }
    spans.set(key, { start: member.valueStart, end: member.valueEnd });
  }
  return spans;
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
