import { type ChatSession, chatSessions, wordTokenIds } from "@espalier/simulator";
import { benchModel } from "../support/bench-model.ts";

/**
 * How a prompt is sent. As the text of a chat, routers without a tokenizer see its bytes. As the token ids of a
 * completion, it can be compared with the engines' KV events.
 */
type PromptForm = "text" | "tokens";

/** One request of a conversation. */
export interface Turn {
  /** For example `/v1/chat/completions`. */
  readonly path: string;
  makeBody(): string;
}

/** Two requests; the second one begins with all of the first. */
export interface Conversation {
  readonly first: Turn;
  readonly second: Turn;
}

export interface ConversationsOptions {
  readonly count: number;
  readonly form: PromptForm;
  /** Conversations with different seeds share nothing. */
  readonly seed: number;
}

/** Tokens of the system prompt shared by all conversations with a seed: 6 % of the first prompt. */
export const systemTokens = 96;
export const firstMessageTokens = 1_504;
/** Tokens of the invented answer to the first turn, and of the second message. */
export const laterMessageTokens = 96;
const outputTokens = 8;

/**
 * Conversations of two turns. The second turn does not wait for the answer to the first, so it contains an invented
 * answer.
 */
export function createConversations({ count, form, seed }: ConversationsOptions): readonly Conversation[] {
  const sessions = chatSessions({
    users: count,
    turns: 3,
    firstMessageTokens,
    newTokensPerTurn: laterMessageTokens,
    outputTokens,
    thinkTimeMeanMs: 0,
    sharedPrefixTokens: systemTokens,
    seed,
  });
  return sessions.map((session) => ({ first: turnOf(session, 1, form), second: turnOf(session, 3, form) }));
}

const roles = ["user", "assistant", "user"] as const;

/** @param messages after the system prompt */
function turnOf(session: ChatSession, messages: number, form: PromptForm): Turn {
  const { systemText: system = "" } = session;
  const texts = (): readonly string[] => Array.from({ length: messages }, (_, at) => session.userText(at));
  const bodyWith = (prompt: object): string =>
    JSON.stringify({ model: benchModel, max_tokens: outputTokens, ignore_eos: true, ...prompt });
  if (form === "tokens") {
    return {
      path: "/v1/completions",
      makeBody: () => bodyWith({ prompt: wordTokenIds([system, ...texts()].join("")) }),
    };
  }
  return {
    path: "/v1/chat/completions",
    makeBody: () =>
      bodyWith({
        messages: [
          { role: "system", content: system },
          ...texts().map((content, at) => ({ role: roles[at], content })),
        ],
      }),
  };
}
