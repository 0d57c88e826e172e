import type { Cancel, Clock, Scheduler } from "@espalier/common";

/** Blocks that another engine may fetch. */
export interface KvOffer {
  /** What they were computed for: the prompt. */
  readonly tokens: Uint32Array;
  /** Gives the blocks back. */
  release(): void;
}

/** A prompt that is computed here for another engine. */
interface KvExport {
  /** Resolves when the other engine has asked; rejects when it did not in time, or this engine lost interest. */
  readonly joined: Promise<void>;
  /** Resolves when the other engine has fetched everything; rejects when it never will. */
  readonly fetched: Promise<void>;
  /** The blocks are there. */
  offer(offer: KvOffer): void;
  /** There will be no blocks, or no more. Nothing happens when they were fetched already. */
  cancel(reason: string): void;
}

/** The hold of another engine on blocks that it fetches. */
interface KvClaim {
  readonly tokens: Uint32Array;
  /** Resolves when they are fetched; rejects when they are gone before. */
  readonly over: Promise<void>;
}

/** What happens when the engine that fetches goes away: the blocks wait for it, or nobody wants them any more. */
type AfterLoss = "hold" | "drop";

interface ExportState {
  readonly ticket: string;
  /** Asked for but not begun, being computed, or held for whoever fetches it. */
  readonly phase: "asked" | "computing" | "held";
  readonly isClaimed: boolean;
  readonly tokens: number;
  readonly ageMs: number;
}

/** Tickets at a time. */
export const maxExports = 4_096;

interface Entry {
  readonly ticket: string;
  readonly sinceMs: number;
  phase: ExportState["phase"];
  afterLoss: AfterLoss;
  offer: KvOffer | undefined;
  isClaimed: boolean;
  /** The other engine said that it wants nothing, before there was anything. */
  isUnwanted: boolean;
  cancelTimer: Cancel | undefined;
  readonly joined: Deferred<void>;
  readonly offered: Deferred<KvOffer>;
  readonly fetched: Deferred<void>;
}

interface ExportBoardOptions {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** How long a ticket waits for the other engine, in real milliseconds. */
  readonly timeoutMs: number;
}

/** Prompts that are, or shall be, computed here for other engines, each under a ticket that both engines know. */
export class ExportBoard {
  /** Since the engine's process began. */
  readonly totals = {
    offered: 0,
    fetched: 0,
    /** Given back because nobody fetched them in time. */
    expired: 0,
    /** Times that an engine was lost that fetched. */
    lost: 0,
  };
  readonly #options: ExportBoardOptions;
  readonly #entries = new Map<string, Entry>();

  constructor(options: ExportBoardOptions) {
    this.#options = options;
  }

  /** @throws RangeError when the ticket is in use or there are `maxExports` */
  begin(ticket: string, afterLoss: AfterLoss): KvExport {
    const known = this.#entries.get(ticket);
    if (known && known.phase !== "asked") throw new RangeError(`the ticket ${ticket} is in use`);
    const entry = known ?? this.#open(ticket, "computing");
    entry.phase = "computing";
    entry.afterLoss = afterLoss;
    return {
      joined: entry.joined.promise,
      fetched: entry.fetched.promise,
      offer: (offer) => this.#hold(entry, offer),
      cancel: (reason) => this.#end(entry, reason),
    };
  }

  /**
   * Asks for blocks, and waits for them if `waits`.
   *
   * @returns what they were computed for, and what resolves or rejects when there is nothing more to fetch
   * @throws (rejects) Error when they are not there, do not come in time, or are fetched by somebody else
   */
  async claim(ticket: string, waits: boolean): Promise<KvClaim> {
    const known = this.#entries.get(ticket);
    if (!known && !waits) throw new Error(`there is nothing for ${ticket}`);
    const entry = known ?? this.#open(ticket, "asked");
    if (entry.isClaimed) throw new Error(`${ticket} is being fetched already`);
    entry.isClaimed = true;
    entry.joined.resolve();
    if (entry.phase === "held") entry.cancelTimer?.();
    const { tokens } = await entry.offered.promise;
    return { tokens, over: entry.fetched.promise };
  }

  /** The other engine has what it wants, or wants nothing. */
  done(ticket: string): void {
    const entry = this.#entries.get(ticket);
    if (entry?.phase === "held") this.#end(entry, undefined);
    else if (entry) entry.isUnwanted = true;
  }

  /** The engine that asked is gone, before it was done. */
  lost(ticket: string): void {
    const entry = this.#entries.get(ticket);
    if (!entry?.isClaimed) return;
    this.totals.lost++;
    entry.isClaimed = false;
    if (entry.afterLoss === "drop" || entry.phase === "asked")
      this.#end(entry, "the engine that fetches might be dead");
    else this.#restartTimer(entry);
  }

  /** Forgets everything without giving anything back: the engine's memory is gone. */
  clear(): void {
    for (const entry of [...this.#entries.values()]) {
      entry.offer = undefined;
      this.#end(entry, "the engine has started over");
    }
  }

  describe(): readonly ExportState[] {
    const nowMs = this.#options.clock.nowMs();
    return [...this.#entries.values()].map(({ ticket, phase, isClaimed, offer, sinceMs }) => {
      return { ticket, phase, isClaimed, tokens: offer?.tokens.length ?? 0, ageMs: nowMs - sinceMs };
    });
  }

  #open(ticket: string, phase: ExportState["phase"]): Entry {
    if (this.#entries.size >= maxExports) throw new RangeError(`more than ${maxExports} prompts are for other engines`);
    const entry: Entry = {
      ticket,
      phase,
      sinceMs: this.#options.clock.nowMs(),
      afterLoss: "hold",
      offer: undefined,
      isClaimed: false,
      isUnwanted: false,
      cancelTimer: undefined,
      joined: createDeferred(),
      offered: createDeferred(),
      fetched: createDeferred(),
    };
    this.#entries.set(ticket, entry);
    this.#restartTimer(entry);
    return entry;
  }

  #restartTimer(entry: Entry): void {
    const { scheduler, timeoutMs } = this.#options;
    entry.cancelTimer?.();
    entry.cancelTimer = scheduler.after(timeoutMs, () => {
      // What is computed for an engine that has asked takes as long as it takes.
      if (entry.phase === "computing" && entry.isClaimed) return;
      if (entry.offer) this.totals.expired++;
      this.#end(entry, `timed out after ${timeoutMs} ms`);
    });
  }

  #hold(entry: Entry, offer: KvOffer): void {
    this.totals.offered++;
    if (this.#entries.get(entry.ticket) !== entry) {
      offer.release();
      return;
    }
    entry.phase = "held";
    entry.offer = offer;
    if (entry.isUnwanted) {
      this.#end(entry, undefined);
      return;
    }
    if (entry.isClaimed) entry.cancelTimer?.();
    else this.#restartTimer(entry);
    entry.offered.resolve(offer);
  }

  /** @param reason why it was not fetched; undefined when it was, or was not wanted */
  #end(entry: Entry, reason: string | undefined): void {
    if (this.#entries.get(entry.ticket) !== entry) return;
    this.#entries.delete(entry.ticket);
    entry.cancelTimer?.();
    const error = new Error(reason ?? "it is not wanted");
    entry.joined.reject(error);
    entry.offered.reject(error);
    if (reason === undefined) {
      this.totals.fetched++;
      entry.fetched.resolve();
    } else {
      entry.fetched.reject(error);
    }
    entry.offer?.release();
  }
}

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

/** A promise that is settled from outside. */
interface Deferred<T> {
  readonly promise: Promise<T>;
  resolve(value: T): void;
  reject(error: Error): void;
}

/** Nobody need listen when it is rejected. */
function createDeferred<T>(): Deferred<T> {
  let resolve: (value: T) => void = () => {};
  let reject: (error: Error) => void = () => {};
  const promise = new Promise<T>((onValue, onError) => {
    resolve = onValue;
    reject = onError;
  });
  promise.catch(() => {});
  return { promise, resolve: (value) => resolve(value), reject: (error) => reject(error) };
}
