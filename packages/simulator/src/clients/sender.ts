import type { Conversation } from "./conversation.ts";
import type { RequestOutcome, WorkloadDriver } from "./workload.ts";

/** When sending ends before the workload does by itself. */
export interface SendLimits {
  readonly requests?: number | undefined;
  readonly durationS?: number | undefined;
}

/** What a client sends, besides its conversation. */
export interface Sending {
  readonly outputTokens: number;
  readonly maxOutputTokens?: number | undefined;
  readonly className?: string | undefined;
  readonly adapter?: string | undefined;
}

/** The way of all clients of a run to its driver: it numbers requests and ends sending at the limits. */
export interface Sender {
  readonly isOver: boolean;
  /** Virtual milliseconds since the start of the run. */
  nowMs(): number;
  /** Runs `task` so much later, unless sending is over by then. */
  after(delayMs: number, task: () => void): void;
  /** Sends the conversation as it stands; nothing happens once sending is over. */
  send(conversation: Conversation, sending: Sending, ended: (outcome: RequestOutcome) => void): void;
  /** The clients have nothing more to send. */
  finish(): void;
}

/** @param limits the first one that is reached ends sending */
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
    send(conversation, { className, ...sending }, ended) {
      if (isOver) return;
      const request = conversation.ask({ index: sent, className, ...sending });
      sent += 1;
      driver.send(request, ended);
      if (sent >= most) finish();
    },
    finish,
  };
}
