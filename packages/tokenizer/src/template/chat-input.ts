import { type ChatDialect, newestDialect } from "./chat-dialect.ts";
import { chosenTools } from "./chat-tools.ts";
import { isFields } from "./fields.ts";

/** What a chat request gives to its model's template. Values are as `JSON.parse` gives them. */
export interface ChatInput {
  /** Messages of the OpenAI API, with strings or parts as content. */
  readonly messages: readonly unknown[];
  readonly tools?: readonly unknown[] | null;
  readonly documents?: readonly unknown[] | null;
  /** Whether the assistant's turn is opened at the end. */
  readonly addGenerationPrompt?: boolean;
  /** Whether the last message is left open for the model to go on with. */
  readonly continueFinalMessage?: boolean;
  /** Variables of the template beyond these: `chat_template_kwargs` of the request. */
  readonly variables?: Readonly<Record<string, unknown>>;
  /** Whose rules are applied; the newest vLLM's unless given. */
  readonly dialect?: ChatDialect;
}

/** The fields of a chat completion's body, beside its messages, that its prompt depends on: all that is read here. */
export const termFields = [
  ...["tools", "tool_choice", "documents", "add_generation_prompt", "continue_final_message"],
  ...["chat_template_kwargs", "reasoning_effort"],
] as const;

/**
 * Reads the fields of a chat completion's body that its prompt depends on, with the defaults of the engine: the
 * assistant's turn is opened, and tools stay in the prompt whatever `tool_choice` says, but for SGLang.
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
 * The variables of a request's template beyond the messages. With vLLM the effort of the request stands over that of its
 * `chat_template_kwargs` and decides whether the model thinks, where they do not say; with SGLang it stands under them.
 */
export function variablesOf(
  body: Readonly<Record<string, unknown>>,
  dialect: ChatDialect,
): Readonly<Record<string, unknown>> {
  const { chat_template_kwargs: kwargs, reasoning_effort: effort } = body;
  const given = isFields(kwargs) ? kwargs : {};
  if (effort === undefined || effort === null) return given;
  if (dialect === "sglang-0.5.23") return { reasoning_effort: effort, ...given };
  return { enable_thinking: effort !== "none", ...given, ...(effort === "auto" ? {} : { reasoning_effort: effort }) };
}
