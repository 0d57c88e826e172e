import { isJsonObject, type JsonBody, type JsonObject } from "@espalier/core";
import type { PromptRequest } from "../prompt-request.ts";
import { readJson } from "../template/json.ts";
import { valueError } from "../template/template-error.ts";
import { type ChatDialect, newestDialect } from "./chat-dialect.ts";
import type { TemplateMessage } from "./conversation.ts";

/** The input of a chat request to its model's template. */
export interface ChatInput {
  /** Messages of the OpenAI API, with strings or parts as content. */
  readonly messages: readonly unknown[];
  readonly tools?: readonly unknown[] | null;
  readonly documents?: readonly unknown[] | null;
  /** Whether the prompt ends with the opening of the assistant's turn. */
  readonly addGenerationPrompt?: boolean;
  /** Whether the last message is left open for the model to continue. */
  readonly continueFinalMessage?: boolean;
  /** Further variables of the template: `chat_template_kwargs` of the request. */
  readonly variables?: Readonly<Record<string, unknown>>;
  /** The dialect whose rules apply; the newest vLLM's by default. */
  readonly dialect?: ChatDialect;
}

/**
 * The fields of a chat completion's body, besides its messages, that its prompt depends on. No others are read here.
 */
export const termFields = [
  ...["tools", "tool_choice", "documents", "add_generation_prompt", "continue_final_message"],
  ...["chat_template_kwargs", "reasoning_effort"],
] as const;

/**
 * A value of a body as Python reads it: for `JSON.parse`, `1.0` is `1`, and keys that are numbers come first. So schemas
 * of tools would be rendered differently.
 */
export function exactValue(body: JsonBody, node: number): unknown {
  const read = readJson(body.bytes.toString("utf8", body.startOf(node), body.endOf(node)));
  return read ? read.value : body.valueAt(node);
}

/** The fields of a request, with exact values for those besides the messages if its body is at hand. */
export function exactFields({ fields, body }: PromptRequest): JsonObject {
  if (!body) return fields;
  const exact = termFields.flatMap((name) => {
    const node = body.member(name);
    return node === undefined ? [] : [[name, exactValue(body, node)] as const];
  });
  return { ...fields, ...Object.fromEntries(exact) };
}

/**
 * Reads the fields of a chat completion's body that its prompt depends on, with the engine's defaults. The assistant's
 * turn is opened, and tools stay in the prompt whatever `tool_choice` says, except with SGLang.
 *
 * @returns undefined when the body has no messages
 */
export function chatInputOf(
  body: Readonly<Record<string, unknown>>,
  dialect: ChatDialect = newestDialect,
): ChatInput | undefined {
  const { messages, tools, tool_choice: choice, documents } = body;
  if (!Array.isArray(messages)) return undefined;
  return {
    messages,
    tools: chosenTools(tools, choice, dialect),
    documents: Array.isArray(documents) ? documents : null,
    addGenerationPrompt: body.add_generation_prompt !== false,
    continueFinalMessage: body.continue_final_message === true,
    variables: variablesOf(body, dialect),
    dialect,
  };
}

/**
 * The variables of a request's template besides the messages. With vLLM the request's effort overrides that of
 * `chat_template_kwargs`, and decides whether the model thinks unless they do; with SGLang they override it.
 */
export function variablesOf(
  body: Readonly<Record<string, unknown>>,
  dialect: ChatDialect,
): Readonly<Record<string, unknown>> {
  const { chat_template_kwargs: kwargs, reasoning_effort: effort } = body;
  const given = isJsonObject(kwargs) ? kwargs : {};
  if (effort === undefined || effort === null) return given;
  if (dialect === "sglang-0.5.23") return { reasoning_effort: effort, ...given };
  return { enable_thinking: effort !== "none", ...given, ...(effort === "auto" ? {} : { reasoning_effort: effort }) };
}

/**
 * Tools as an engine passes them to the template.
 *
 * @throws TemplateError for a tool that the engine would refuse
 */
export function toTools(tools: readonly unknown[], dialect: ChatDialect): TemplateMessage[] {
  return tools.map((tool) => {
    if (!isJsonObject(tool) || !isJsonObject(tool.function)) throw valueError("a tool has no function");
    return dialect === "sglang-0.5.23" ? sglangTool(tool, tool.function) : vllmTool(tool, tool.function, dialect);
  });
}

/** The fields of vLLM's own model come first, present or not; 0.32 drops all others. */
function vllmTool(tool: JsonObject, described: JsonObject, dialect: ChatDialect): TemplateMessage {
  const { type = "function", function: _function, defer_loading: isDeferred, ...others } = tool;
  const { name, description = null, parameters = null, strict, defer_loading: isOwnDeferred, ...rest } = described;
  const keepsOthers = dialect === "vllm-0.23";
  const fields = {
    ...{ name, description, parameters },
    ...(keepsOthers ? {} : given({ strict })),
    ...given({ defer_loading: isOwnDeferred ?? isDeferred }),
    ...(keepsOthers ? unchanged({ strict }, rest) : {}),
  };
  return { type, function: fields, ...given({ defer_loading: isDeferred }), ...(keepsOthers ? others : {}) };
}

/** Fields of the function keep the request's order; the tool's other fields are always written, even as null. */
function sglangTool(tool: JsonObject, described: JsonObject): TemplateMessage {
  const { type = "function", defer_loading: isDeferred = null } = tool;
  const { name, description = null, parameters = null, strict, defer_loading: isOwnDeferred } = described;
  const known: JsonObject = {
    ...{ description, name, parameters },
    ...given({ strict, defer_loading: isOwnDeferred ?? isDeferred }),
  };
  const order = Object.keys(described).filter((key) => Object.hasOwn(known, key));
  const ordered = Object.fromEntries([...order, ...Object.keys(known)].map((key) => [key, known[key]]));
  return { type, function: ordered, defer_loading: isDeferred };
}

/**
 * The tools that a request's choice leaves in the prompt. vLLM keeps all, whatever is chosen; SGLang removes those that
 * the model may not call.
 *
 * @returns null for none
 */
function chosenTools(tools: unknown, choice: unknown, dialect: ChatDialect): readonly unknown[] | null {
  if (!Array.isArray(tools) || tools.length === 0) return null;
  if (dialect !== "sglang-0.5.23") return tools;
  if (choice === "none") return null;
  if (!isJsonObject(choice)) return tools;
  const wanted = isJsonObject(choice.function) ? choice.function.name : undefined;
  const chosen = tools.filter(
    (tool) => isJsonObject(tool) && isJsonObject(tool.function) && tool.function.name === wanted,
  );
  return chosen.length > 0 ? chosen : null;
}

/** The fields that are neither absent nor null. */
function given(fields: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined && value !== null));
}

/** A field that is present stays before the others, even if null. */
function unchanged(first: JsonObject, rest: JsonObject): JsonObject {
  return { ...Object.fromEntries(Object.entries(first).filter(([, value]) => value !== undefined)), ...rest };
}
