import type { ServerResponse } from "node:http";
import type { Cancel, Scheduler } from "@espalier/common";
import type { Fault } from "../admin/faults.ts";

/** Bytes that wait for a client to read; a client that is further behind loses its connection. */
const maxBufferedBytes = 1024 * 1024;

/** Streams an answer, with the faults that happen in mid-stream. */
interface EventWriter {
  /** Queues the events of one token. */
  add(events: string): void;
  /** Queues the last events. */
  close(events: string): void;
  /** Sends what is queued, in one write. */
  flush(): void;
  stop(): void;
}

interface EventWriterOptions {
  readonly response: ServerResponse;
  readonly fault: Fault | undefined;
  readonly scheduler: Scheduler;
  /** Called once, when the answer is complete or the client was dropped. Not called after a fault broke the stream. */
  readonly ended: (how: "finished" | "dropped-slow-client") => void;
}

export function createEventWriter({ response, fault, scheduler, ended }: EventWriterOptions): EventWriter {
  const breaksAfter = breakPoint(fault);
  const slowsAfter =
    fault?.kind === "slow" ? (fault.afterTokens ?? Number.POSITIVE_INFINITY) : Number.POSITIVE_INFINITY;
  let tokens = 0;
  let pending = "";
  /** Events that `slow` holds back, to be sent one by one. */
  const held: string[] = [];
  let cancelHeld: Cancel | undefined;
  let last: string | undefined;
  let over = false;

  const releaseHeld = (): void => {
    cancelHeld = undefined;
    pending += held.shift() ?? "";
    flush();
  };
  function flush(): void {
    if (over) return;
    if (response.writableLength > maxBufferedBytes) {
      over = true;
      response.destroy();
      ended("dropped-slow-client");
    } else if (tokens >= breaksAfter) {
      over = true;
      breakAnswer(response, fault, pending);
    } else {
      if (pending !== "") response.write(pending);
      pending = "";
      if (held.length > 0) cancelHeld ??= scheduler.after(fault?.delayMs ?? 0, releaseHeld);
      else if (last !== undefined) {
        over = true;
        response.end(last);
        ended("finished");
      }
    }
  }
  return {
    add(events) {
      if (tokens >= breaksAfter) return;
      if (tokens++ < slowsAfter) pending += events;
      else held.push(events);
    },
    close(events) {
      last = events;
    },
    flush,
    stop() {
      over = true;
      cancelHeld?.();
    },
  };
}

/** After how many tokens a fault in mid-stream happens: never without one. */
export function breakPoint(fault: Fault | undefined): number {
  return fault?.kind.endsWith("-mid-stream") ? (fault.afterTokens ?? 1) : Number.POSITIVE_INFINITY;
}

/** Sends `rest` and then hangs, resets the connection, or closes it without the end of the answer. */
export function breakAnswer(response: ServerResponse, fault: Fault | undefined, rest: string): void {
  const { socket } = response;
  const act = (): void => {
    if (fault?.kind === "reset-mid-stream") socket?.resetAndDestroy();
    else if (fault?.kind === "cut-mid-stream") socket?.destroySoon();
  };
  if (rest === "") {
    response.flushHeaders();
    act();
  } else {
    response.write(rest, act);
  }
}
