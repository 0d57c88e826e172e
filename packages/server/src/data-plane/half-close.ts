import type { Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Cancel, Scheduler } from "@espalier/common";
import type { OpenAnswers } from "../lifecycle/open-answers.ts";

/** From the first word to the second one, and from then on twice as long each time. */
const firstPauseMs = 50;
const maxPauseMs = 5_000;

/**
 * Lets clients close their half of a connection once they have sent their request. A client that is gone looks the same at
 * first, so it is sent `102 Processing` now and then, which means nothing to one that waits: the system of one that is gone
 * resets the connection at the first, the next one fails of that, and the request ends. Where the answer has begun, its pieces
 * do the same.
 *
 * Connections with TLS end as a whole; Node has no half of them.
 */
export function allowHalfClose(server: Server, openAnswers: OpenAnswers, scheduler: Scheduler): void {
  // Not among the types; by default Node ends the requests of such a connection.
  Object.assign(server, { httpAllowHalfOpen: true });
  server.on("connection", (socket: Socket) => {
    socket.once("end", () => {
      const [answer] = openAnswers.on(socket);
      if (!answer || answer.headersSent) return;
      // Older clients know no answers before the answer.
      if (answer.req.httpVersion === "1.1") tryNowAndThen(answer, scheduler);
      else socket.destroy();
    });
  });
}

function tryNowAndThen(answer: ServerResponse, scheduler: Scheduler): void {
  let cancel: Cancel = () => {};
  const tryAfter = (pauseMs: number): void => {
    if (answer.headersSent || answer.destroyed) return;
    answer.writeProcessing();
    cancel = scheduler.after(pauseMs, () => tryAfter(Math.min(2 * pauseMs, maxPauseMs)));
  };
  answer.once("close", () => cancel());
  tryAfter(firstPauseMs);
}
