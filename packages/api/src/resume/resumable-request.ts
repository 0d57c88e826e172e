import type { JsonBody } from "@espalier/core";
import type { RequestView } from "../request/request-view.ts";

/** Whether the value of a field leaves the rest of the answer to its beginning alone. */
type FieldRule = (body: JsonBody, node: number) => boolean;

const any: FieldRule = () => true;
const isOff: FieldRule = (body, node) => [false, 0, ""].includes(body.valueAt(node) as never);
const isOne: FieldRule = (body, node) => body.valueAt(node) === 1;
const isEmpty: FieldRule = (body, node) => body.kindOf(node) === "array" && body.after(node) === node + 1;
const isText =
  (text: string): FieldRule =>
  (body, node) =>
    body.kindOf(node) === "string" && body.isText(node, text);

/** One text, or the tokens of one. */
const isOnePrompt: FieldRule = (body, node) => {
  if (body.kindOf(node) === "string") return true;
  if (body.kindOf(node) !== "array" || body.after(node) === node + 1) return false;
  if (body.kindOf(node + 1) === "number") return hasFlag(body, "return_token_ids");
  return body.after(node + 1) === body.after(node) && isOnePrompt(body, node + 1);
};

/** An assistant's message at the end is one that engines differ about. */
const endsWithQuestion: FieldRule = (body, node) => {
  if (body.kindOf(node) !== "array") return false;
  let last: number | undefined;
  for (let entry = node + 1; entry < body.after(node); entry = body.after(entry)) last = entry;
  if (last === undefined || body.kindOf(last) !== "object") return false;
  const role = body.member("role", last);
  return role !== undefined && body.kindOf(role) === "string" && !body.isText(role, "assistant");
};

const hasFlag = (body: JsonBody, name: string): boolean => {
  const node = body.member(name);
  return node !== undefined && body.kindOf(node) === "true";
};

const named = (rule: FieldRule, ...names: readonly string[]) => names.map((name) => [name, rule] as const);

/**
 * Fields of both kinds of completions. A field that is not listed may be one whose effect does not survive a new start,
 * as the count of penalised tokens, the state of a grammar or log-probabilities of the beginning do not.
 */
const common: readonly (readonly [string, FieldRule])[] = [
  ...named(any, "model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "min_tokens"),
  ...named(any, "temperature", "top_p", "top_k", "min_p", "seed", "stop", "stop_token_ids", "ignore_eos", "logit_bias"),
  ...named(any, "repetition_penalty", "bad_words", "allowed_token_ids", "skip_special_tokens", "no_stop_trim"),
  ...named(any, "spaces_between_special_tokens", "include_stop_str_in_output", "add_special_tokens"),
  ...named(any, "user", "session_id", "prompt_cache_key", "metadata", "store", "service_tier", "safety_identifier"),
  ...named(any, "priority", "cache_salt", "request_id"),
  ...named(isOne, "n", "best_of"),
  ...named(isOff, "echo", "suffix", "use_beam_search", "frequency_penalty", "presence_penalty", "logprobs"),
  [
    "response_format",
    (body, node) => {
      const type = body.kindOf(node) === "object" ? body.member("type", node) : undefined;
      return type !== undefined && isText("text")(body, type);
    },
  ],
];

const rules: Readonly<Record<string, ReadonlyMap<string, FieldRule>>> = {
  completions: new Map<string, FieldRule>([
    ...common,
    // Zero asks for the log-probabilities of the chosen tokens.
    ["logprobs", () => false],
    ["prompt", isOnePrompt],
    ["return_token_ids", any],
  ]),
  chat: new Map<string, FieldRule>([
    ...common,
    ["messages", endsWithQuestion],
    ["tools", (body, node) => isEmpty(body, node) || isToolless(body)],
    ["functions", isEmpty],
    ["tool_choice", (body) => isToolless(body) || !hasTools(body)],
    ...named(any, "parallel_tool_calls", "chat_template_kwargs", "reasoning_effort", "verbosity"),
    ...named(isOff, "top_logprobs", "continue_final_message", "return_token_ids"),
    ["add_generation_prompt", (body, node) => body.kindOf(node) === "true"],
  ]),
};

function hasTools(body: JsonBody): boolean {
  const node = body.member("tools");
  return node !== undefined && body.kindOf(node) !== "null" && !isEmpty(body, node);
}

function isToolless(body: JsonBody): boolean {
  const choice = body.member("tool_choice");
  return choice !== undefined && isText("none")(body, choice);
}

/**
 * Whether another engine can go on with the answer to this request, given its beginning: the stream of one choice of
 * plain text, by fields that are known to have the same effect on the rest.
 */
export function isResumable({ endpoint, stream, choices, maxOutputTokens, spans, body }: RequestView): boolean {
  const known = rules[endpoint.id];
  if (!known || !stream || choices !== 1) return false;
  // Engines differ about the limit of a completion that names none.
  if (endpoint.id === "completions" && maxOutputTokens === undefined) return false;
  for (const name of spans.keys()) {
    const rule = known.get(name);
    if (rule === undefined) return false;
    if (rule === any) continue;
    const node = body.member(name)!;
    if (body.kindOf(node) !== "null" && !rule(body, node)) return false;
  }
  return true;
}
