import type { Conversation } from "./conversation.ts";
import type { RequestOutcome, SimRequest, WorkloadDriver } from "./workload.ts";

/** The behaviour of one session. It has its own random source, so it is the same under every policy. */
export interface SessionScript {
  /** Requests, at least 1. */
  readonly turns: number;
  readonly className?: string;
  /** The LoRA adapter for all its requests. Sessions with different adapters must not share text. */
  readonly adapter?: string;
  /** Approximate tokens of the whole conversation at its end. */
  readonly expectedTokens: number;
  /** Milliseconds before a turn's request: after the previous answer, or after the session's start. Called in order. */
  pauseMs(turn: number): number;
  /**
   * Appends a turn's new text to the prompt. Called in order, after the turn's pause.
   *
   * @returns output tokens
   */
  write(turn: number, conversation: Conversation): number;
}

/** Creates the script of a session from its number, from 0. */
export type ScriptOf = (session: number) => SessionScript;

/**
 * Runs a session from its start to its last answer. A failed request counts as answered: the session continues with its
 * next turn.
 *
 * @param done called after the last answer, unless sending has ended before
 */
export function runSession(
  sender: Sender,
  session: {
    readonly script: SessionScript;
    readonly conversation: Conversation;
    /** Whether its last request ends it. */
    readonly ends?: boolean;
    readonly group?: number;
  },
  done: () => void,
): void {
  const { script, conversation, ends = false, group } = session;
  const next = (): void => {
    const { turn } = conversation;
    if (turn >= script.turns) {
      done();
      return;
    }
    sender.after(script.pauseMs(turn), () => {
      const outputTokens = script.write(turn, conversation);
      const { className, adapter } = script;
      const endsSession = ends && turn === script.turns - 1;
      sender.send(conversation, { outputTokens, className, adapter, endsSession, group }, next);
    });
  };
  next();
}

const rollout = (endsSession: boolean, group: number | undefined): Pick<SimRequest, "endsSession" | "group"> => ({
  ...(endsSession && { endsSession }),
  ...(group !== undefined && { group }),
});

/** Limits that end sending before the workload does. */
export interface SendLimits {
  readonly requests?: number | undefined;
  readonly durationS?: number | undefined;
}

/** The options of one request, besides its conversation. */
interface Sending {
  readonly outputTokens: number;
  readonly maxOutputTokens?: number | undefined;
  readonly className?: string | undefined;
  readonly adapter?: string | undefined;
  readonly endsSession?: boolean;
  readonly group?: number | undefined;
}

/** Sends the requests of all clients of a run to the run's driver. It numbers them and stops at the limits. */
interface Sender {
  readonly isOver: boolean;
  /** Virtual milliseconds since the start of the run. */
  nowMs(): number;
  /** Runs `task` after a delay, unless sending is over by then. */
  after(delayMs: number, task: () => void): void;
  /** Sends the current prompt of a conversation. Does nothing once sending is over. */
  send(conversation: Pick<Conversation, "ask">, sending: Sending, ended: (outcome: RequestOutcome) => void): void;
  /** Ends sending because all clients are done. */
  finish(): void;
}

/** @param limits sending ends at the first one reached */
export function createSender(driver: WorkloadDriver, { requests, durationS }: SendLimits): Sender {
  const startMs = driver.clock.nowMs();
  const most = requests ?? Number.POSITIVE_INFINITY;
  let sent = 0;
  let isOver = false;
  const finish = (): void => {
    if (isOver) return;
    isOver = true;
    cancelEnd?.();
    driver.finished();
  };
  const cancelEnd = durationS === undefined ? undefined : driver.scheduler.after(durationS * 1_000, finish);
  return {
    get isOver() {
      return isOver;
    },
    nowMs: () => driver.clock.nowMs() - startMs,
    after(delayMs, task) {
      driver.scheduler.after(Math.max(0, delayMs), () => {
        if (!isOver) task();
      });
    },
    send(conversation, { className, endsSession = false, group, ...sending }, ended) {
      if (isOver) return;
      const asked = conversation.ask({ index: sent, className, ...sending });
      const request = endsSession || group !== undefined ? { ...asked, ...rollout(endsSession, group) } : asked;
      sent += 1;
      driver.send(request, ended);
      if (sent >= most) finish();
    },
    finish,
  };
}
