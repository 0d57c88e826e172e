import { backoffDelayMs, type Cancel, type Clock, type Logger, type Random, type Scheduler } from "@espalier/common";

/** The place of a process in its group. Sent, as all messages here, over the channel between it and the first process. */
export interface Place {
  /** From 0. */
  readonly index: number;
  /** Where those of the others that serve already are reached by routers. */
  readonly seeds: readonly string[];
  /** Shared secret of the processes, where the configuration has no mesh with other machines. */
  readonly meshSecret: string;
  /** Whether the others serve already. */
  readonly isServing: boolean;
}

/** Where one process serves. */
export interface MemberAddresses {
  readonly url: string;
  readonly adminUrl: string;
  /** Where other routers reach it; null when they do not. */
  readonly meshAddress: string | null;
}

/** To a process. */
export type GroupOrder =
  | { readonly type: "place"; readonly place: Place }
  /** All processes have been ready. */
  | { readonly type: "serving" }
  | { readonly type: "reload"; readonly trigger: "signal" | "admin" }
  /** The first one drains, `isPatient` with the delay for load balancers; the second one means now. */
  | { readonly type: "stop"; readonly isPatient: boolean };

/** From a process. */
export type MemberReport =
  /** It runs and asks for its place. */
  | { readonly type: "hello" }
  | ({ readonly type: "listening" } & MemberAddresses)
  | { readonly type: "ready" }
  /** An operator asked it to read its configuration again. */
  | { readonly type: "reload" };

/** A process of the group, as the first process holds it. */
export interface GroupProcess {
  readonly pid: number | undefined;
  /** Does nothing when the process is gone. */
  send(order: GroupOrder): void;
  /** Ends it at once. */
  kill(): void;
}

export interface ProcessObserver {
  said(report: MemberReport): void;
  /** Once, when it is gone: its exit code, or the signal that ended it. */
  ended(code: number | null, signal: string | null): void;
}

interface ProcessGroupOptions {
  readonly count: number;
  /** Shared secret of the processes, where no mesh is configured. */
  readonly meshSecret: string;
  /** Starts a process. The observer is not called before this has returned. */
  readonly launch: (observer: ProcessObserver) => GroupProcess;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly logger: Logger;
}

/** After the death of a process; doubled while it does not stay. */
const restartBackoff = { firstDelayMs: 200, maxDelayMs: 30_000 };
/** A process that ran for so long had started well. */
const stayedMs = 60_000;

interface Slot {
  readonly index: number;
  process: GroupProcess | undefined;
  addresses: MemberAddresses | undefined;
  startedMs: number;
  isReady: boolean;
  /** Restarts since it last stayed. */
  restarts: number;
  cancelRestart: Cancel;
  /** While the group starts: settled by how the process came up. */
  settle: { resolve(addresses: MemberAddresses): void; reject(error: Error): void } | undefined;
}

/** Routers that share the clients' port, each a process. One that ends unasked is started again. */
export class ProcessGroup {
  readonly #options: ProcessGroupOptions;
  readonly #slots: readonly Slot[];
  /** Resolves when all have ended after `stop`. */
  readonly ended: Promise<void>;
  #isStopping = false;
  /** Whether all have been ready; from then on each one's readiness is its own. */
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
   * Starts the first one, then the others together, since they find the mesh through it.
   *
   * @returns where they serve, in order
   * @throws Error when one ends before it serves; all are gone then
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

  /** Has all read their configuration again. */
  reload(): void {
    this.#tellServing({ type: "reload", trigger: "signal" });
  }

  /** Has all drain and end; the second call means now. @param isPatient with the delay for load balancers */
  stop(isPatient: boolean): void {
    this.#isStopping = true;
    for (const slot of this.#slots) {
      slot.cancelRestart();
      // One that does not serve yet has nothing to end.
      if (slot.addresses) slot.process?.send({ type: "stop", isPatient });
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
      const { url, adminUrl, meshAddress } = report;
      slot.addresses = { url, adminUrl, meshAddress };
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
    logger.error("a process ended; it is started again", { process: slot.index + 1, ...end, delayMs });
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
