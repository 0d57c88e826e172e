import type { IncomingMessage } from "node:http";
import type { Scheduler } from "@espalier/common";

/** A client that has sent nothing for so long waits for the answer, or is gone. */
const quietMs = 1_000;
const maxLingerMs = 10_000;

/**
 * Reads on and drops what a client still sends of a body that was refused. A connection that is closed with unread bytes in it
 * is reset, and the reset takes the refusal with it, which the client then never reads.
 *
 * @param done called once: the body has ended, the client is silent, or it has had ten seconds
 */
export function linger(request: IncomingMessage, scheduler: Scheduler, done: () => void): void {
  let isQuiet = false;
  let quietLooks = 0;
  const finish = (): void => {
    cancel();
    request.off("data", onData);
    request.off("close", finish);
    request.off("end", finish);
    done();
  };
  const cancel = scheduler.every(quietMs, () => {
    quietLooks += 1;
    if (isQuiet || quietLooks * quietMs >= maxLingerMs) finish();
    isQuiet = true;
  });
  const onData = (): void => {
    isQuiet = false;
  };
  request.on("data", onData);
  request.once("end", finish);
  request.once("close", finish);
  request.resume();
}
