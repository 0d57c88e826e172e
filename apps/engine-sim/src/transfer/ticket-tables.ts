import type { Cancel, Clock, Scheduler } from "@espalier/core";

/** Blocks for another engine. */
export interface KvOffer {
  /** Their prompt. */
  readonly tokens: Uint32Array;
  /** Unpins the blocks. */
  release(): void;
}

/** A prompt computed here for another engine. */
interface KvExport {
  /** Resolves when the other engine has claimed it; rejects on timeout, or when the export was cancelled. */
  readonly joined: Promise<void>;
  /** Resolves when the other engine has fetched everything; rejects when it never will. */
  readonly fetched: Promise<void>;
  /** The blocks are computed. */
  offer(offer: KvOffer): void;
  /** There are no blocks, or no longer. No effect when they were fetched already. */
  cancel(reason: string): void;
}

/** Another engine's claim on blocks. */
interface KvClaim {
  readonly tokens: Uint32Array;
  /** Resolves when they are fetched; rejects when they are released before. */
  readonly over: Promise<void>;
}

/** When the fetching engine disconnects: keep the blocks until the timeout, or release them. */
type AfterLoss = "hold" | "drop";

interface ExportState {
  readonly ticket: string;
  /** Claimed but not begun, being computed, or kept until fetched. */
  readonly phase: "asked" | "computing" | "held";
  readonly isClaimed: boolean;
  readonly tokens: number;
  readonly ageMs: number;
}

/** Maximum concurrent tickets. */
export const maxExports = 4_096;

interface Entry {
  readonly ticket: string;
  readonly sinceMs: number;
  phase: ExportState["phase"];
  afterLoss: AfterLoss;
  offer: KvOffer | undefined;
  isClaimed: boolean;
  /** The other engine released it before it was computed. */
  isUnwanted: boolean;
  cancelTimer: Cancel | undefined;
  readonly joined: Deferred<void>;
  readonly offered: Deferred<KvOffer>;
  readonly fetched: Deferred<void>;
}

interface ExportTableOptions {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** How long a ticket waits for the other engine, real time. */
  readonly timeoutMs: number;
}

/** Prompts computed here for other engines, each under a ticket that both engines know. */
export class ExportTable {
  /** Since the engine's process began. */
  readonly totals = {
    offered: 0,
    fetched: 0,
    /** Released because no engine fetched them in time. */
    expired: 0,
    /** Fetching engines that disconnected. */
    lost: 0,
  };
  readonly #options: ExportTableOptions;
  readonly #entries = new Map<string, Entry>();

  constructor(options: ExportTableOptions) {
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
   * Claims blocks, and waits for them if `waits`.
   *
   * @throws (rejects) Error when they are absent, late, or claimed by another engine
   */
  async claim(ticket: string, waits: boolean): Promise<KvClaim> {
    const known = this.#entries.get(ticket);
    if (!known && !waits) throw new Error(`unknown ticket ${ticket}`);
    const entry = known ?? this.#open(ticket, "asked");
    if (entry.isClaimed) throw new Error(`${ticket} is already being fetched`);
    entry.isClaimed = true;
    entry.joined.resolve();
    if (entry.phase === "held") entry.cancelTimer?.();
    const { tokens } = await entry.offered.promise;
    return { tokens, over: entry.fetched.promise };
  }

  /** The other engine has fetched the blocks, or does not need them. */
  done(ticket: string): void {
    const entry = this.#entries.get(ticket);
    if (entry?.phase === "held") this.#end(entry, undefined);
    else if (entry) entry.isUnwanted = true;
  }

  /** The engine that claimed it has disconnected before it was done. */
  lost(ticket: string): void {
    const entry = this.#entries.get(ticket);
    if (!entry?.isClaimed) return;
    this.totals.lost++;
    entry.isClaimed = false;
    if (entry.afterLoss === "drop" || entry.phase === "asked") this.#end(entry, "the fetching engine is lost");
    else this.#restartTimer(entry);
  }

  /** Drops everything without releasing blocks: the engine has restarted. */
  clear(): void {
    for (const entry of [...this.#entries.values()]) {
      entry.offer = undefined;
      this.#end(entry, "the engine restarted");
    }
  }

  describe(): readonly ExportState[] {
    const nowMs = this.#options.clock.nowMs();
    return [...this.#entries.values()].map(({ ticket, phase, isClaimed, offer, sinceMs }) => {
      return { ticket, phase, isClaimed, tokens: offer?.tokens.length ?? 0, ageMs: nowMs - sinceMs };
    });
  }

  #open(ticket: string, phase: ExportState["phase"]): Entry {
    if (this.#entries.size >= maxExports) throw new RangeError(`more than ${maxExports} prompts exported`);
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
      // No timeout while a claimed prompt is being computed.
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

  /** @param reason why it was not fetched; undefined when it was fetched or not needed */
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

/** Prompts that other engines computed and pushed here, as vLLM's P2P-NCCL does, each under the id of its request. */
export type Inbox = ReturnType<typeof createInbox>;

/** Most prompts without a request, and most requests without a prompt. */
export const maxInbox = 256;

/** A pushed prompt is a ticket with an offer from the beginning; a request that comes before it claims the ticket. */
export function createInbox(options: ExportTableOptions) {
  const table = new ExportTable(options);
  const held = () => table.describe().filter(({ phase, isClaimed }) => phase === "held" && !isClaimed);
  const asked = () => table.describe().filter(({ phase }) => phase === "asked");
  const holds = (ticket: string): boolean => held().some((entry) => entry.ticket === ticket);
  return {
    /** Stores a pushed prompt, in place of an earlier one. When there are too many, the oldest is dropped. */
    put(ticket: string, tokens: Uint32Array): void {
      if (holds(ticket)) table.done(ticket);
      table.begin(ticket, "drop").offer({ tokens, release() {} });
      const [oldest, ...others] = held();
      if (others.length === maxInbox) table.done(oldest!.ticket);
    },
    /**
     * Waits for a pushed prompt, and removes it.
     *
     * @throws (rejects) Error when it does not arrive in time or is no longer wanted
     */
    async take(ticket: string, signal: AbortSignal): Promise<Uint32Array> {
      if (asked().length >= maxInbox && !holds(ticket)) {
        throw new Error(`more than ${maxInbox} requests wait for a pushed prompt`);
      }
      const stop = (): void => table.lost(ticket);
      signal.addEventListener("abort", stop);
      try {
        const { tokens } = await table.claim(ticket, true);
        table.done(ticket);
        return tokens;
      } finally {
        signal.removeEventListener("abort", stop);
      }
    },
    /** Prompts without a request. */
    size: (): number => held().length,
    /** Requests without a prompt. */
    waiting: (): number => asked().length,
    clear: (): void => table.clear(),
  };
}

/** A promise that is settled from outside. */
interface Deferred<T> {
  readonly promise: Promise<T>;
  resolve(value: T): void;
  reject(error: Error): void;
}

/** Its rejection needs no handler. */
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
