import { type ChatSession, chatSessions, wordTokenIds } from "@espalier/workload";

/**
 * How a prompt is sent: as the text of a chat, of which routers without a tokenizer see the bytes, or as the token ids of
 * a completion, which can be compared with what engines tell of their caches.
 */
export type PromptForm = "text" | "tokens";

/** One request of a conversation. */
export interface Turn {
  /** For instance `/v1/chat/completions`. */
  readonly path: string;
  makeBody(): string;
}

/** Two requests, of which the second one begins with all of the first one. */
export interface Conversation {
  readonly first: Turn;
  readonly second: Turn;
}

export interface ConversationsOptions {
  readonly count: number;
  readonly form: PromptForm;
  /** Other seeds give conversations that share nothing with these. */
  readonly seed: number;
}

export const benchModel = "bench-model";

/** Tokens of the system prompt that all conversations of a seed share: 6 % of the first prompt. */
export const systemTokens = 96;
export const firstMessageTokens = 1_504;
/** Tokens of the answer to the first turn, which is invented, and of the second message. */
export const laterMessageTokens = 96;
const outputTokens = 8;

/**
 * Conversations of two turns. The second one does not wait for the answer to the first, so the answer in it is made up.
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

/** @param messages that follow the system prompt */
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
