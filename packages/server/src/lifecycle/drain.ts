import type { Server } from "node:http";
import { Server as NetServer } from "node:net";
import { type Clock, type Logger, type Scheduler, systemAfterPoll } from "@espalier/core";

interface DrainOptions {
  /**
   * How long new requests are still accepted after readiness becomes false, so that load balancers and DNS can notice.
   */
  readonly delayMs: number;
  /** How long open answers may take after that. */
  readonly graceMs: number;
}

/** Closes a listener without cutting answers. */
export interface Drain {
  /** True from the first call of `run` on: answers carry `connection: close` and readiness is false. */
  readonly started: boolean;
  /**
   * Runs the whole sequence once; further calls wait for the same end.
   *
   * @returns how many answers were cut at the end of the grace period
   */
  run(options: DrainOptions): Promise<number>;
  /** Skips the remaining steps and closes every connection now. */
  force(): void;
}

const lookPeriodMs = 50;
/** How long connections stay open after the last answer, for requests in transit. */
const lateRequestMs = 500;
/** A turn of the event loop is quiet when it accepted no connection and took less than this. */
const quietTurnMs = 1;
/** Most turns to wait for a quiet one. */
const maxTurns = 200;

/** What a drain closes. */
export interface DrainedListeners {
  readonly servers: () => readonly Server[];
  /** Closes the listener for gateways, which use other routers then. */
  readonly closePicker?: () => void;
}

export interface DrainDependencies extends DrainedListeners {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly logger: Logger;
  /** Answers that have not ended. */
  readonly activeCount: () => number;
  /** Closes connections that no longer belong to their listener. */
  readonly closeSockets?: () => void;
  /** Called once, when the drain begins. */
  readonly onStart?: () => void;
}

/**
 * Closing a connection while its client sends a request resets it, and the client cannot know whether the request was
 * processed. So idle connections stay open while other answers are open; a request on one of them is served, and then
 * the connection closes. This delays the drain by at most half a second after the last answer.
 */
export function createDrain(dependencies: DrainDependencies): Drain {
  const { clock, scheduler, logger, servers, activeCount, onStart, closePicker, closeSockets } = dependencies;
  let running: Promise<number> | undefined;
  let forced = false;
  let cut = 0;

  const closeAll = (): void => {
    cut += activeCount();
    for (const server of servers()) server.closeAllConnections();
    closeSockets?.();
  };
  const wait = (delayMs: number): Promise<void> =>
    new Promise((resolve) => {
      if (forced) resolve();
      else scheduler.after(delayMs, resolve);
    });
  const waitUntil = async (deadlineMs: number, done: () => boolean | Promise<boolean>): Promise<void> => {
    for (;;) {
      // Reads requests that have arrived first: closing a connection with an unread request resets it.
      await systemAfterPoll();
      if (forced || (await done()) || clock.nowMs() >= deadlineMs) return;
      await wait(lookPeriodMs);
    }
  };

  const sequence = async ({ delayMs, graceMs }: DrainOptions): Promise<number> => {
    onStart?.();
    logger.info("draining", { delayMs, graceMs, openAnswers: activeCount() });
    await waitUntil(clock.nowMs() + delayMs, () => false);
    closePicker?.();
    await closeListeners(servers(), clock);
    let lastBusyMs = clock.nowMs();
    await waitUntil(lastBusyMs + graceMs, async () => {
      if (activeCount() > 0) lastBusyMs = clock.nowMs();
      return clock.nowMs() - lastBusyMs >= lateRequestMs || (activeCount() === 0 && !(await hasConnections(servers())));
    });
    closeAll();
    if (cut > 0) logger.warn("drain timeout: answers cut", { cut, forced });
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
 * Closing a listener resets connections that wait to be accepted, so it closes once there are none. Node accepts one
 * connection per turn of its event loop (seen with libuv 1.46).
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
  // Not `close` of the HTTP server, which would also close idle connections.
  for (const server of servers) NetServer.prototype.close.call(server);
}

async function hasConnections(servers: readonly Server[]): Promise<boolean> {
  const counts = await Promise.all(servers.map(connectionsOf));
  return counts.some((count) => count > 0);
}

function connectionsOf(server: Server): Promise<number> {
  return new Promise((resolve) => server.getConnections((error, count) => resolve(error ? 0 : count)));
}
