import type { Cancel, Scheduler } from "@espalier/common";
import { createDeferred, type Deferred } from "./deferred.ts";

/** Prompts that other engines computed and sent here, as vLLM's P2P-NCCL does, each under the id of its request. */
export interface Inbox {
  /** Takes in what was sent. When too much waits, the oldest gives way. */
  put(ticket: string, tokens: Uint32Array): void;
  /**
   * Waits for what is to be sent, and takes it out.
   *
   * @throws (rejects) Error when it does not come in time or is not wanted any more
   */
  take(ticket: string, signal: AbortSignal): Promise<Uint32Array>;
  /** Prompts that nobody has asked for yet. */
  readonly size: () => number;
  /** Requests that wait for one. */
  readonly waiting: () => number;
  clear(): void;
}

/** Prompts that wait for their request, and requests that wait for their prompt. */
export const maxInbox = 256;

interface Parcel {
  readonly tokens: Uint32Array;
  readonly cancelTimer: Cancel;
}

interface InboxOptions {
  readonly scheduler: Scheduler;
  /** How long either side waits for the other, in real milliseconds. */
  readonly timeoutMs: number;
}

export function createInbox({ scheduler, timeoutMs }: InboxOptions): Inbox {
  const parcels = new Map<string, Parcel>();
  const waiting = new Map<string, Deferred<Uint32Array>>();

  const drop = (ticket: string): void => {
    parcels.get(ticket)?.cancelTimer();
    parcels.delete(ticket);
  };
  return {
    put(ticket, tokens) {
      const waiter = waiting.get(ticket);
      if (waiter) {
        waiter.resolve(tokens);
        return;
      }
      drop(ticket);
      parcels.set(ticket, { tokens, cancelTimer: scheduler.after(timeoutMs, () => drop(ticket)) });
      if (parcels.size > maxInbox) drop(parcels.keys().next().value as string);
    },
    async take(ticket, signal) {
      const parcel = parcels.get(ticket);
      drop(ticket);
      if (parcel) return parcel.tokens;
      if (waiting.size >= maxInbox) throw new Error(`more than ${maxInbox} requests wait for what is to be sent`);
      if (waiting.has(ticket)) throw new Error(`${ticket} is waited for already`);
      const waiter = createDeferred<Uint32Array>();
      waiting.set(ticket, waiter);
      const cancelTimer = scheduler.after(timeoutMs, () => waiter.reject(new Error(`timed out after ${timeoutMs} ms`)));
      const stop = (): void => waiter.reject(new Error("the request is over"));
      signal.addEventListener("abort", stop);
      try {
        return await waiter.promise;
      } finally {
        waiting.delete(ticket);
        cancelTimer();
        signal.removeEventListener("abort", stop);
      }
    },
    size: () => parcels.size,
    waiting: () => waiting.size,
    clear() {
      for (const ticket of [...parcels.keys()]) drop(ticket);
      for (const waiter of waiting.values()) waiter.reject(new Error("the engine has started over"));
    },
  };
}
