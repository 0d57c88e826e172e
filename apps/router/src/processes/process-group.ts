import { backoffDelayMs, type Cancel, type Clock, type Logger, type Random, type Scheduler } from "@espalier/core";
import type { Router } from "@espalier/server";

/** The place of a process in its group. All messages here use the channel between the process and the first one. */
export interface Place {
  /** From 0. */
  readonly index: number;
  /** Mesh addresses of the other processes that already serve. */
  readonly seeds: readonly string[];
  /** Shared secret of the processes, when the configuration has no mesh with other machines. */
  readonly meshSecret: string;
  /** Whether the others serve already. */
  readonly isServing: boolean;
}

/** Addresses at which one process serves. */
export interface MemberAddresses {
  readonly url: string;
  readonly adminUrl: string;
  /** Where RL frameworks reach it; null when that listener is off. */
  readonly rolloutsUrl: string | null;
  /** Its mesh address; null without a mesh. */
  readonly meshAddress: string | null;
  readonly picker: Router["picker"];
}

/** Messages to a process. */
export type GroupOrder =
  | { readonly type: "place"; readonly place: Place }
  /** All processes have become ready. */
  | { readonly type: "serving" }
  | { readonly type: "reload"; readonly trigger: "signal" | "admin" }
  /** The first one drains; `isDelayed` includes the delay for load balancers. The second one stops at once. */
  | { readonly type: "stop"; readonly isDelayed: boolean };

/** Messages from a process. */
export type MemberReport =
  /** It runs and asks for its place. */
  | { readonly type: "hello" }
  | ({ readonly type: "listening" } & MemberAddresses)
  | { readonly type: "ready" }
  /** An operator asked it to reload its configuration. */
  | { readonly type: "reload" };

/** A process of the group, as seen by the first process. */
export interface GroupProcess {
  readonly pid: number | undefined;
  /** Does nothing when the process is gone. */
  send(order: GroupOrder): void;
  /** Kills it. */
  kill(): void;
}

export interface ProcessObserver {
  said(report: MemberReport): void;
  /** Called once, when it has ended, with its exit code or the signal that ended it. */
  ended(code: number | null, signal: string | null): void;
}

interface ProcessGroupOptions {
  readonly count: number;
  /** Shared secret of the processes, when no mesh is configured. */
  readonly meshSecret: string;
  /** Starts a process. Never calls the observer before returning. */
  readonly launch: (observer: ProcessObserver) => GroupProcess;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly logger: Logger;
}

/** Delay after a process dies; doubled while it keeps dying. */
const restartBackoff = { firstDelayMs: 200, maxDelayMs: 30_000 };
/** A process that ran for this long had started well. */
const stayedMs = 60_000;

interface Slot {
  readonly index: number;
  process: GroupProcess | undefined;
  addresses: MemberAddresses | undefined;
  startedMs: number;
  isReady: boolean;
  /** Restarts since it last ran that long. */
  restarts: number;
  cancelRestart: Cancel;
  /** While the group starts: settled by the outcome of the process's start. */
  settle: { resolve(addresses: MemberAddresses): void; reject(error: Error): void } | undefined;
}

/** Routers that share the clients' port, each a process. One that ends unexpectedly is restarted. */
export class ProcessGroup {
  readonly #options: ProcessGroupOptions;
  readonly #slots: readonly Slot[];
  /** Resolves when all have ended after `stop`. */
  readonly ended: Promise<void>;
  #isStopping = false;
  /** Whether all have been ready; from then on each reports its own readiness. */
  #isServing = false;
  #tellEnd: () => void = () => {};

  constructor(options: ProcessGroupOptions) {
    this.#options = options;
    this.#slots = Array.from({ length: options.count }, (_, index) => newSlot(index));
    this.ended = new Promise((resolve) => {
      this.#tellEnd = resolve;
    });
  }

  /**
   * Starts the first process, then the others together, because they find the mesh through it.
   *
   * @returns their addresses, in order
   * @throws Error when one ends before it serves; all have ended then
   */
  async start(): Promise<readonly MemberAddresses[]> {
    try {
      const first = await this.#launchFirstTime(this.#slots[0]!);
      return [first, ...(await Promise.all(this.#slots.slice(1).map((slot) => this.#launchFirstTime(slot))))];
    } catch (thrown) {
      this.#isStopping = true;
      for (const { process } of this.#slots) process?.kill();
      await this.#allGone();
      throw thrown;
    }
  }

  /** Makes all reload their configuration. */
  reload(): void {
    this.#tellServing({ type: "reload", trigger: "signal" });
  }

  /**
   * Makes all drain and end; the second call stops them at once. @param isDelayed includes the delay for load balancers
   */
  stop(isDelayed: boolean): void {
    this.#isStopping = true;
    for (const slot of this.#slots) {
      slot.cancelRestart();
      // A process that does not serve yet has nothing to drain.
      if (slot.addresses) slot.process?.send({ type: "stop", isDelayed });
      else slot.process?.kill();
    }
    void this.#allGone();
  }

  #launchFirstTime(slot: Slot): Promise<MemberAddresses> {
    return new Promise((resolve, reject) => {
      slot.settle = { resolve, reject };
      this.#launch(slot);
    });
  }

  #launch(slot: Slot): void {
    slot.startedMs = this.#options.clock.nowMs();
    slot.process = this.#options.launch({
      said: (report) => this.#said(slot, report),
      ended: (code, signal) => this.#ended(slot, code, signal),
    });
  }

  #said(slot: Slot, report: MemberReport): void {
    if (report.type === "hello") slot.process?.send({ type: "place", place: this.#placeOf(slot) });
    else if (report.type === "ready") this.#ready(slot);
    else if (report.type === "reload") this.#tellServing({ type: "reload", trigger: "admin" }, slot);
    else {
      const { url, adminUrl, rolloutsUrl, meshAddress, picker } = report;
      slot.addresses = { url, adminUrl, rolloutsUrl, meshAddress, picker };
      slot.settle?.resolve(slot.addresses);
      slot.settle = undefined;
      if (this.#isStopping) slot.process?.kill();
    }
  }

  #placeOf({ index }: Slot) {
    const seeds = this.#slots.flatMap(({ addresses }) => addresses?.meshAddress ?? []);
    return { index, seeds, meshSecret: this.#options.meshSecret, isServing: this.#isServing };
  }

  #ready(slot: Slot): void {
    slot.isReady = true;
    if (this.#isServing || this.#slots.some(({ isReady }) => !isReady)) return;
    this.#isServing = true;
    this.#tellServing({ type: "serving" });
  }

  #tellServing(order: GroupOrder, except?: Slot): void {
    for (const slot of this.#slots) if (slot !== except && slot.addresses) slot.process?.send(order);
  }

  #ended(slot: Slot, code: number | null, signal: string | null): void {
    const pid = slot.process?.pid;
    slot.process = undefined;
    slot.addresses = undefined;
    slot.isReady = false;
    if (this.#isStopping) {
      slot.settle?.reject(new Error("the group was stopped"));
      this.#tellWhenGone();
      return;
    }
    const how = code === null ? `by ${signal}` : `with code ${code}`;
    if (slot.settle) {
      slot.settle.reject(new Error(`process ${slot.index + 1} of ${this.#slots.length} ended ${how} before it served`));
      slot.settle = undefined;
      return;
    }
    this.#restartLater(slot, { pid, code, signal });
  }

  #restartLater(slot: Slot, end: Readonly<Record<string, unknown>>): void {
    const { clock, scheduler, random, logger } = this.#options;
    if (clock.nowMs() - slot.startedMs >= stayedMs) slot.restarts = 0;
    const delayMs = Math.round(backoffDelayMs(slot.restarts, restartBackoff, random));
    slot.restarts += 1;
    logger.error("a process ended; restarting", { process: slot.index + 1, ...end, delayMs });
    slot.cancelRestart = scheduler.after(delayMs, () => this.#launch(slot));
  }

  #tellWhenGone(): void {
    if (this.#slots.every(({ process }) => !process)) this.#tellEnd();
  }

  #allGone(): Promise<void> {
    this.#tellWhenGone();
    return this.ended;
  }
}

function newSlot(index: number): Slot {
  return {
    index,
    process: undefined,
    addresses: undefined,
    startedMs: 0,
    isReady: false,
    restarts: 0,
    cancelRestart: () => {},
    settle: undefined,
  };
}
