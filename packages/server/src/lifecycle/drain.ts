import type { Server } from "node:http";
import { Server as NetServer } from "node:net";
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

const lookPeriodMs = 50;
/** After the last answer, and after the listener closed, connections are left open so long for a request that is on its way. */
const lateRequestMs = 500;
/** A turn of the event loop is quiet when it took no connection in, and less time: hardly anybody can have come meanwhile. */
const quietTurnMs = 1;
/** On a loop that has no quiet turn. */
const maxTurns = 200;

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
 * Closing a connection that a client takes from its pool at this moment is a reset, and no client knows whether its request was
 * heard. So connections without an answer stay open while others have one: what comes on them is served, and closes them. They do not
 * hold the drain back for as long as clients like: once no answer is open, they have half a second.
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
  const waitUntil = async (deadlineMs: number, done: () => boolean | Promise<boolean>): Promise<void> => {
    for (;;) {
      // What has come is taken in first: a connection that is closed with a request in it is reset.
      await systemAfterPoll();
      if (forced || (await done()) || clock.nowMs() >= deadlineMs) return;
      await wait(lookPeriodMs);
    }
  };

  const sequence = async ({ delayMs, graceMs }: DrainOptions): Promise<number> => {
    onStart?.();
    logger.info("draining", { delayMs, graceMs, openAnswers: activeCount() });
    await waitUntil(clock.nowMs() + delayMs, () => false);
    await closeListeners(servers(), clock);
    let lastBusyMs = clock.nowMs();
    await waitUntil(lastBusyMs + graceMs, async () => {
      if (activeCount() > 0) lastBusyMs = clock.nowMs();
      return clock.nowMs() - lastBusyMs >= lateRequestMs || (activeCount() === 0 && !(await hasConnections(servers())));
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

/**
 * What waits to be accepted when a listener closes is reset by the system, so it closes when nothing does. Node accepts one
 * connection in a turn of its loop (seen with libuv 1.46).
 */
async function closeListeners(servers: readonly Server[], clock: Clock): Promise<void> {
  let accepted = 0;
  const count = (): void => void accepted++;
  for (const server of servers) server.on("connection", count);
  for (let turn = 0; turn < maxTurns; turn++) {
    const fromMs = clock.nowMs();
    const before = accepted;
    await systemAfterPoll();
    if (accepted === before && clock.nowMs() - fromMs < quietTurnMs) break;
  }
  for (const server of servers) server.off("connection", count);
  // Not that of an HTTP server, which closes idle connections with it.
  for (const server of servers) NetServer.prototype.close.call(server);
}

async function hasConnections(servers: readonly Server[]): Promise<boolean> {
  const counts = await Promise.all(servers.map(connectionsOf));
  return counts.some((count) => count > 0);
}

function connectionsOf(server: Server): Promise<number> {
  return new Promise((resolve) => server.getConnections((error, count) => resolve(error ? 0 : count)));
}
