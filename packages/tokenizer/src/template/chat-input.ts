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
}

/**
 * Reads the fields of a chat completion's body that its prompt depends on, with the defaults of vLLM 0.32: the
 * assistant's turn is opened, and tools stay in the prompt whatever `tool_choice` says.
 *
 * @returns undefined when the body has no messages
 */
export function chatInputOf(body: Readonly<Record<string, unknown>>): ChatInput | undefined {
  const { messages, tools, documents, chat_template_kwargs: given, reasoning_effort: effort } = body;
  if (!Array.isArray(messages)) return undefined;
  const variables = typeof given === "object" && given !== null && !Array.isArray(given) ? given : {};
  return {
    messages,
    tools: Array.isArray(tools) && tools.length > 0 ? tools : null,
    documents: Array.isArray(documents) ? documents : null,
    addGenerationPrompt: body.add_generation_prompt !== false,
    continueFinalMessage: body.continue_final_message === true,
    variables: effort === undefined || effort === null ? { ...variables } : { ...variables, reasoning_effort: effort },
  };
}
