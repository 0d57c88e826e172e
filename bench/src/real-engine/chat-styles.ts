/** The form of a conversation's requests: engines turn such requests into prompts by special rules. */
export type ChatStyle = "chat" | "developer" | "tools" | "messages";

export const chatStyles: readonly ChatStyle[] = ["chat", "developer", "tools", "messages"];

export interface Message {
  readonly role: "system" | "developer" | "user" | "assistant";
  readonly content: string;
}

/** One request of a conversation. */
export interface StyledRequest {
  readonly path: string;
  readonly body: Readonly<Record<string, unknown>>;
}

/** The contents of an answer, in any API. */
export interface StyledAnswer {
  readonly text: string;
  readonly promptTokens: number;
  /** Undefined when the answer does not say. */
  readonly cachedTokens: number | undefined;
}

const maxAnswerTokens = 24;

/** A turn with an instruction in the middle, which vLLM moves to the front. */
const instructedTurn = 2;

/** A function with additional fields from clients: vLLM drops unknown fields. */
const tool = {
  type: "function",
  cache_control: { type: "ephemeral" },
  function: {
    name: "read_page",
    description: "Reads a page of the logbook.",
    parameters: { type: "object", properties: { day: { type: "integer" } }, required: ["day"] },
    cache_control: { type: "ephemeral" },
    examples: [{ day: 3 }],
  },
};

/** The first message of a conversation, and what comes before a turn's question. */
export function instructionsOf(style: ChatStyle, systemPrompt: string, turn: number): readonly Message[] {
  const role = style === "developer" ? "developer" : "system";
  if (turn === 0) return [{ role, content: systemPrompt }];
  return style === "developer" && turn === instructedTurn
    ? [{ role, content: "From here on name the tide, too." }]
    : [];
}

/** The request for a conversation's next answer. */
export function requestOf(style: ChatStyle, model: string, messages: readonly Message[]): StyledRequest {
  const common = { model, max_tokens: maxAnswerTokens, temperature: 0 };
  if (style === "messages") {
    const [system, ...rest] = messages;
    return { path: "/v1/messages", body: { ...common, system: system?.content ?? "", messages: rest } };
  }
  const tools = style === "tools" ? { tools: [tool], tool_choice: "none" } : {};
  return { path: "/v1/chat/completions", body: { ...common, messages, ...tools } };
}

export function readAnswer(style: ChatStyle, answer: unknown): StyledAnswer {
  return style === "messages" ? readMessage(answer as MessageAnswer) : readChat(answer as ChatAnswer);
}

interface ChatAnswer {
  readonly choices: readonly { readonly message: { readonly content: string | null } }[];
  readonly usage: {
    readonly prompt_tokens: number;
    readonly prompt_tokens_details?: { readonly cached_tokens?: number } | null;
  };
}

function readChat({ choices, usage }: ChatAnswer): StyledAnswer {
  return {
    text: choices[0]?.message.content ?? "",
    promptTokens: usage.prompt_tokens,
    cachedTokens: usage.prompt_tokens_details?.cached_tokens,
  };
}

interface MessageAnswer {
  readonly content: readonly { readonly type: string; readonly text?: string }[];
  readonly usage: {
    readonly input_tokens: number;
    readonly cache_read_input_tokens?: number | null;
    readonly cache_creation_input_tokens?: number | null;
  };
}

/** In this API the input's tokens exclude those read from the cache or written to it. */
function readMessage({ content, usage }: MessageAnswer): StyledAnswer {
  const { input_tokens: fresh, cache_read_input_tokens: read, cache_creation_input_tokens: created } = usage;
  return {
    text: content.find(({ type }) => type === "text")?.text ?? "",
    promptTokens: fresh + (read ?? 0) + (created ?? 0),
    cachedTokens: read ?? undefined,
  };
}
