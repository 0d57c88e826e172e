import { createSeededRandom, EspalierError } from "@espalier/core";
import { exponential } from "./arrivals.ts";
import { blockText, maxTextOwners, maxTextParts, ownTextId } from "./synthetic-text.ts";

export interface ChatSessionsOptions {
  /** Users who chat at the same time, each in one session. */
  readonly users: number;
  readonly turns: number;
  readonly firstMessageTokens: number;
  /** Tokens of the user's message in each turn but the first. */
  readonly newTokensPerTurn: number;
  readonly outputTokens: number;
  /** Mean of the exponential time that a user takes before each message. */
  readonly thinkTimeMeanMs: number;
  /** Tokens of a system message that all sessions share; 0 for none. */
  readonly sharedPrefixTokens: number;
  readonly seed: number;
}

interface ChatTurn {
  /**
   * Time from the end of the previous answer to this message. For the first turn it counts from the start of the run,
   * so that users do not begin in step.
   */
  readonly thinkMs: number;
  readonly userTokens: number;
  readonly outputTokens: number;
}

/** One user's conversation. The driver appends the engine's answers between the messages. */
export interface ChatSession {
  readonly id: string;
  readonly systemText: string | undefined;
  readonly turns: readonly ChatTurn[];
  /** The user's message of a turn, generated at each call so that idle sessions take no memory. */
  userText(turn: number): string;
}

/**
 * Closed-loop chats: every user sends a message, waits for the answer, thinks, and sends the next message with the
 * whole conversation so far. The same options give the same sessions.
 *
 * @throws EspalierError `config_invalid` for more users or turns than there are distinct texts
 */
export function chatSessions(options: ChatSessionsOptions): readonly ChatSession[] {
  const { users, turns, seed, sharedPrefixTokens, thinkTimeMeanMs, outputTokens } = options;
  requireBelow("users", users, maxTextOwners);
  requireBelow("turns", turns, maxTextParts);
  const random = createSeededRandom(seed);
  const userTokens = (turn: number): number => (turn === 0 ? options.firstMessageTokens : options.newTokensPerTurn);
  const sharedText = blockText(ownTextId({ seed, owner: maxTextOwners - 1, part: 0 }), sharedPrefixTokens);
  return Array.from({ length: users }, (_, user) => ({
    id: `chat-${seed}-${user}`,
    systemText: sharedPrefixTokens === 0 ? undefined : sharedText,
    turns: Array.from({ length: turns }, (_, turn) => ({
      thinkMs: exponential(thinkTimeMeanMs, random),
      userTokens: userTokens(turn),
      outputTokens,
    })),
    userText: (turn) => blockText(ownTextId({ seed, owner: user, part: turn }), userTokens(turn)),
  }));
}

function requireBelow(param: string, value: number, limit: number): void {
  if (Number.isInteger(value) && value >= 0 && value < limit) return;
  throw new EspalierError("config_invalid", `${param}: must be a whole number below ${limit}`, { param });
}
