import type { Cancel, RouterId } from "@espalier/core";
import type { LinkLimits, ProcessPorts } from "./link.ts";

/** An address that is dialed until it is forgotten. */
export interface DialTarget {
  readonly address: string;
  /** The router that answered there last. */
  router: RouterId | undefined;
  isForgotten: boolean;
}

interface Entry {
  readonly target: DialTarget;
  state: "covered" | "waiting" | "dialing";
  lastDialMs: number;
  cancel: Cancel;
}

export interface DialerDeps extends Pick<ProcessPorts, "clock" | "scheduler" | "random"> {
  readonly limits: Pick<LinkLimits, "maxAddresses" | "redialMs">;
  /** Whether there is a link to the router at the address. */
  isCovered(target: DialTarget): boolean;
  /** Begins to dial. `ended` must be called once the attempt has failed, or has led to a link. */
  open(target: DialTarget): void;
}

/** Part of the time between two dials that is added at random, so that routers do not dial in step. */
const jitterShare = 0.25;
/** Time between two dials of an address that turned out to be this router's own; another router may get it one day. */
export const selfRedialMs = 30_000;

/** Keeps dialing addresses that have no link, each at most once in the redial time. */
export class Dialer {
  readonly #deps: DialerDeps;
  readonly #entries = new Map<string, Entry>();
  #isStopped = false;

  constructor(deps: DialerDeps) {
    this.#deps = deps;
  }

  /** @returns false when too many addresses are known */
  add(address: string): boolean {
    if (this.#isStopped) return false;
    if (this.#entries.has(address)) return true;
    if (this.#entries.size >= this.#deps.limits.maxAddresses) return false;
    const entry: Entry = {
      target: { address, router: undefined, isForgotten: false },
      state: "covered",
      lastDialMs: Number.NEGATIVE_INFINITY,
      cancel: () => {},
    };
    this.#entries.set(address, entry);
    this.#plan(entry, this.#deps.limits.redialMs);
    return true;
  }

  forget(address: string): void {
    const entry = this.#entries.get(address);
    if (!entry) return;
    entry.cancel();
    entry.target.isForgotten = true;
    this.#entries.delete(address);
  }

  /** An attempt has failed or has led to a link. */
  ended(target: DialTarget, isSelf = false): void {
    const entry = this.#entries.get(target.address);
    if (entry?.target !== target || entry.state !== "dialing") return;
    this.#plan(entry, isSelf ? selfRedialMs : this.#deps.limits.redialMs);
  }

  /** A link has ended: addresses that it covered are dialed again. */
  reconsider(): void {
    for (const entry of [...this.#entries.values()]) {
      if (entry.state === "covered") this.#plan(entry, this.#deps.limits.redialMs);
    }
  }

  stop(): void {
    this.#isStopped = true;
    for (const address of [...this.#entries.keys()]) this.forget(address);
  }

  #plan(entry: Entry, periodMs: number): void {
    const { clock, random, scheduler } = this.#deps;
    if (this.#deps.isCovered(entry.target)) {
      entry.state = "covered";
      return;
    }
    const dueMs = entry.lastDialMs + periodMs * (1 + jitterShare * random.float());
    entry.state = "waiting";
    entry.cancel = scheduler.after(Math.max(0, dueMs - clock.nowMs()), () => {
      if (this.#deps.isCovered(entry.target)) {
        entry.state = "covered";
        return;
      }
      entry.state = "dialing";
      entry.lastDialMs = clock.nowMs();
      this.#deps.open(entry.target);
    });
  }
}
