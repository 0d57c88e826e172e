import type { Server } from "node:http";
import type { Clock } from "@espalier/core";

/** Holds back requests while connections are being accepted. */
export interface AcceptFirst {
  watch(server: Server): void;
  /** Calls `go` at once, or once connections that were waiting have been accepted; in the order of the calls. */
  pass(go: () => void): void;
}

/** Requests wait no longer, however many connections there are. */
export const maxAcceptMs = 100;
/** After a wait, none begins for so many times as long: clients that connect for each request would wait all the time. */
const restFactor = 9;

/**
 * Node accepts one connection in each turn of its event loop, and serves every request that has arrived in the same turn. When
 * many clients connect at once, the first ones would get dozens of answers each before the last one is accepted: the
 * waits add up with the square of the connections, to seconds where V8 has yet to compile what serves them. So requests wait
 * while each turn brings a connection.
 *
 * @param afterPoll resolves when the current turn has accepted and read
 */
export function createAcceptFirst(clock: Clock, afterPoll: () => Promise<void>): AcceptFirst {
  let waiting: (() => void)[] = [];
  let isAccepting = false;
  let hasAccepted = false;
  let restUntilMs = 0;

  const accept = async (): Promise<void> => {
    const startMs = clock.nowMs();
    let isMore = true;
    while (isMore && clock.nowMs() < startMs + maxAcceptMs) {
      await afterPoll();
      isMore = hasAccepted;
      hasAccepted = false;
    }
    isAccepting = false;
    const nowMs = clock.nowMs();
    restUntilMs = nowMs + restFactor * (nowMs - startMs);
    const ready = waiting;
    waiting = [];
    for (const go of ready) go();
  };
  return {
    watch(server) {
      server.on("connection", () => {
        hasAccepted = true;
        if (isAccepting || clock.nowMs() < restUntilMs) return;
        isAccepting = true;
        void accept();
      });
    },
    pass(go) {
      if (isAccepting) waiting.push(go);
      else go();
    },
  };
}
