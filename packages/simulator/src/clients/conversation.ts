import { createChainBuilder } from "./chain-builder.ts";
import { blockTokens, type SimRequest } from "./workload.ts";

/** Sessions of a run, turns of a session, and own texts of a turn that have names of their own. */
export const maxSessions = 2 ** 28;
export const maxTurns = 2 ** 20;
export const maxOwnTexts = 2 ** 4;

export interface ConversationOptions {
  readonly seed: number;
  /** Below `maxSessions`. */
  readonly session: number;
  /** The turn that its first request is, below `maxTurns`; 0 when absent. */
  readonly turn?: number;
  /** Tokens that it will have at its end, if that is known. */
  readonly expectedTokens?: number;
}

/** What is asked once the prompt stands. */
export interface Asked {
  /** Of the request, in order of sending. */
  readonly index: number;
  readonly outputTokens: number;
  readonly maxOutputTokens?: number | undefined;
  readonly className: string | undefined;
  readonly adapter?: string | undefined;
}

/** One conversation as it grows: prompt, answer, more prompt, and so on. */
export interface Conversation {
  readonly session: number;
  /** Of the next request. */
  readonly turn: number;
  /** Prompts and answers so far. */
  readonly tokens: number;
  /** Adds text to the prompt that others may have too: the same name is the same text. Names are 0 and up. */
  share(name: number, tokens: number): void;
  /**
   * Adds text to the prompt that no other turn and no other session has.
   *
   * @throws RangeError past `maxOwnTexts` in one turn, the answer among them
   */
  own(tokens: number): void;
  /** Forgets what lies past the last full block within the first `tokens` tokens. */
  cut(tokens: number): void;
  /** The request for the prompt as it stands. The answer becomes part of the conversation, and the next turn begins. */
  ask(asked: Asked): SimRequest;
}

/** @throws RangeError for a session or a turn past the bound */
export function createConversation(options: ConversationOptions): Conversation {
  const { seed, session, expectedTokens = 0 } = options;
  const chain = createChainBuilder({ seed, expectedTokens });
  let turn = options.turn ?? 0;
  let ownTexts = 0;
  requireBelow("session", session, maxSessions);

  /** Names below 0, each once: what a turn writes and what it is answered. */
  const append = (tokens: number): void => {
    requireBelow("own text", ownTexts, maxOwnTexts);
    requireBelow("turn", turn, maxTurns);
    chain.append(-1 - ((session * maxTurns + turn) * maxOwnTexts + ownTexts), tokens);
    ownTexts += 1;
  };
  return {
    session,
    get turn() {
      return turn;
    },
    get tokens() {
      return chain.tokens;
    },
    share(name, tokens) {
      if (name < 0) throw new RangeError(`a shared text has a name from 0 up, not ${name}`);
      chain.append(name, tokens);
    },
    own: append,
    cut: (tokens) => chain.cut(Math.min(chain.blocks, Math.floor(tokens / blockTokens))),
    ask({ index, outputTokens, maxOutputTokens, className, adapter }) {
      const promptTokens = chain.tokens;
      append(outputTokens);
      const named = {
        ...(maxOutputTokens !== undefined && { maxOutputTokens }),
        ...(className !== undefined && { className }),
        ...(adapter !== undefined && { adapter }),
      };
      const request = { index, session, turn, promptTokens, outputTokens, chain: chain.view(), ...named };
      turn += 1;
      ownTexts = 0;
      return request;
    },
  };
}

function requireBelow(what: string, value: number, limit: number): void {
  if (Number.isInteger(value) && value >= 0 && value < limit) return;
  throw new RangeError(`${what} ${value} is not a whole number below ${limit}`);
}
