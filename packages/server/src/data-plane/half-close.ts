import type { Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Cancel, Scheduler } from "@espalier/common";
import type { OpenAnswers } from "../lifecycle/open-answers.ts";

/** From the first word to the second one, and from then on twice as long each time. */
const firstPauseMs = 50;
const maxPauseMs = 5_000;
/** A client that has closed its half is gone when its answer, once begun, has had nothing new for so long. */
const maxSilenceMs = 1_000;

/**
 * Lets clients close their half of a connection once they have sent their request. A client that is gone looks the same at
 * first, so it is sent `102 Processing` now and then, which means nothing to one that waits: the system of one that is gone
 * resets the connection at the first, the next one fails of that, and the request ends. Where the answer has begun, its pieces
 * do the same, and one that pauses is given up: an engine must not go on for somebody who most likely is not there.
 *
 * Connections with TLS end as a whole; Node has no half of them.
 */
export function allowHalfClose(server: Server, openAnswers: OpenAnswers, scheduler: Scheduler): void {
  // Not among the types; by default Node ends the requests of such a connection.
  Object.assign(server, { httpAllowHalfOpen: true });
  server.on("connection", (socket: Socket) => {
    socket.once("end", () => {
      const [answer] = openAnswers.on(socket);
      if (!answer) return;
      if (answer.headersSent) endWhenSilent(answer, socket, scheduler);
      // Older clients know no answers before the answer.
      else if (answer.req.httpVersion === "1.1") tryNowAndThen(answer, socket, scheduler);
      else socket.destroy();
    });
  });
}

function tryNowAndThen(answer: ServerResponse, socket: Socket, scheduler: Scheduler): void {
  let cancel: Cancel = () => {};
  const tryAfter = (pauseMs: number): void => {
    if (answer.destroyed) return;
    if (answer.headersSent) {
      endWhenSilent(answer, socket, scheduler);
      return;
    }
    answer.writeProcessing();
    cancel = scheduler.after(pauseMs, () => tryAfter(Math.min(2 * pauseMs, maxPauseMs)));
  };
  answer.once("close", () => cancel());
  tryAfter(firstPauseMs);
}

function endWhenSilent(answer: ServerResponse, socket: Socket, scheduler: Scheduler): void {
  let cancel: Cancel = () => {};
  const watch = (writtenBytes: number): void => {
    cancel = scheduler.after(maxSilenceMs, () => {
      // What waits for a client that reads slowly is no silence.
      if (socket.bytesWritten > writtenBytes || answer.writableLength > 0) watch(socket.bytesWritten);
      else socket.destroy();
    });
  };
  answer.once("close", () => cancel());
  watch(socket.bytesWritten);
}
