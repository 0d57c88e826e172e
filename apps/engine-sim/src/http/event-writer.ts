import type { ServerResponse } from "node:http";
import type { Cancel, Clock, Scheduler } from "@espalier/common";
import type { Fault } from "../admin/faults.ts";

/** A client with more bytes than this still to read is behind. */
const maxBufferedBytes = 1024 * 1024;

/**
 * How long a client may be behind before it loses its connection, in real milliseconds. A burst after the process was
 * held up is no reason to drop a client that reads.
 */
const maxBehindMs = 2_000;

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
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** Called once, when the answer is complete or the client was dropped. Not called after a fault broke the stream. */
  readonly ended: (how: "finished" | "dropped-slow-client") => void;
}

export function createEventWriter(options: EventWriterOptions): EventWriter {
  const { response, fault, clock, scheduler, ended } = options;
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
  let behindSinceMs = Number.POSITIVE_INFINITY;

  const isTooSlow = (): boolean => {
    if (response.writableLength <= maxBufferedBytes) behindSinceMs = Number.POSITIVE_INFINITY;
    else behindSinceMs = Math.min(behindSinceMs, clock.nowMs());
    return clock.nowMs() - behindSinceMs >= maxBehindMs;
  };
  const releaseHeld = (): void => {
    cancelHeld = undefined;
    pending += held.shift() ?? "";
    flush();
  };
  function flush(): void {
    if (over) return;
    if (isTooSlow()) {
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
