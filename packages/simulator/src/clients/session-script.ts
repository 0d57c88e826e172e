import type { Conversation } from "./conversation.ts";
import type { Sender } from "./sender.ts";

/** What one session does. Its draws are its own, so it does the same under every policy. */
export interface SessionScript {
  /** Requests, at least 1. */
  readonly turns: number;
  readonly className?: string;
  /** The LoRA adapter that all of its requests are for; sessions with different ones must share no text. */
  readonly adapter?: string;
  /** Tokens of the whole conversation at its end, roughly. */
  readonly expectedTokens: number;
  /** Milliseconds before a turn's request: after the previous answer, or after the session's start. Asked in order. */
  pauseMs(turn: number): number;
  /**
   * Adds what the prompt of a turn has anew. Called in order, after the turn's pause.
   *
   * @returns output tokens
   */
  write(turn: number, conversation: Conversation): number;
}

/** Makes the script of a session by its number, from 0. */
export type ScriptOf = (session: number) => SessionScript;

/**
 * Runs a session from its start to its last answer. A failed request counts as answered: the session goes on with its
 * next turn.
 *
 * @param done called after the last answer, unless sending is over before
 */
export function runSession(
  sender: Sender,
  session: { readonly script: SessionScript; readonly conversation: Conversation },
  done: () => void,
): void {
  const { script, conversation } = session;
  const next = (): void => {
    const { turn } = conversation;
    if (turn >= script.turns) {
      done();
      return;
    }
    sender.after(script.pauseMs(turn), () => {
      const outputTokens = script.write(turn, conversation);
      const { className, adapter } = script;
      sender.send(conversation, { outputTokens, className, adapter }, next);
    });
  };
  next();
}
