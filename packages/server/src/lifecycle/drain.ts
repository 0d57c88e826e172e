import type { Server } from "node:http";
import { type Clock, type Logger, type Scheduler, systemAfterPoll } from "@espalier/common";

export interface DrainOptions {
  /** How long new work is still accepted after readiness went false, so that load balancers and DNS can notice. */
  readonly delayMs: number;
  /** How long open answers may go on after that. */
  readonly graceMs: number;
}

/** Ends a listener's life without cutting an answer. */
export interface Drain {
  /** True from the first call of `run` on: answers carry `connection: close` and readiness is false. */
  readonly started: boolean;
  /**
   * Runs the whole sequence once; further calls wait for the same end.
   *
   * @returns the number of answers that were cut because the grace was over
   */
  run(options: DrainOptions): Promise<number>;
  /** Skips what is left: closes every connection now. */
  force(): void;
}

const sweepPeriodMs = 50;

export interface DrainDependencies {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly logger: Logger;
  /** Listeners to close. */
  readonly servers: () => readonly Server[];
  /** Answers that have not ended. */
  readonly activeCount: () => number;
  /** Told once, when the drain begins. */
  readonly onStart?: () => void;
}

/**
 * Node keeps idle keep-alive connections open after `close()`, which would hold a drain back for as long as clients
 * like; so idle connections are swept until no answer is open.
 */
export function createDrain({ clock, scheduler, logger, servers, activeCount, onStart }: DrainDependencies): Drain {
  let running: Promise<number> | undefined;
  let forced = false;
  let cut = 0;

  const closeAll = (): void => {
    cut += activeCount();
    for (const server of servers()) server.closeAllConnections();
  };
  const wait = (delayMs: number): Promise<void> =>
    new Promise((resolve) => {
      if (forced) resolve();
      else scheduler.after(delayMs, resolve);
    });
  const waitUntil = async (deadlineMs: number, done: () => boolean): Promise<void> => {
    for (;;) {
      // What has come is taken in first: a connection that is closed with a request in it is reset.
      await systemAfterPoll();
      if (forced || done() || clock.nowMs() >= deadlineMs) return;
      await wait(sweepPeriodMs);
    }
  };

  const sequence = async ({ delayMs, graceMs }: DrainOptions): Promise<number> => {
    onStart?.();
    logger.info("draining", { delayMs, graceMs, openAnswers: activeCount() });
    await waitUntil(clock.nowMs() + delayMs, () => false);
    for (const server of servers()) server.close();
    await waitUntil(clock.nowMs() + graceMs, () => {
      for (const server of servers()) server.closeIdleConnections();
      return activeCount() === 0;
    });
    closeAll();
    if (cut > 0) logger.warn("answers were cut at the end of the drain", { cut, forced });
    return cut;
  };

  return {
    get started() {
      return running !== undefined;
    },
    run(options) {
      running ??= sequence(options);
      return running;
    },
    force() {
      if (forced) return;
      forced = true;
      closeAll();
    },
  };
}
