import type { Cancel, Clock, Scheduler } from "@espalier/core";
import { schedulerOf, TimerHeap } from "@espalier/testing";

/** Real clocks drift by millionths. Faults draw far larger rates, up to this share. */
export const maxDriftRate = 0.1;

/** The clocks and timers of one simulated process. */
export interface NodeTime {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /**
   * From now on, both clocks and all timers run faster than virtual time by the share `rate`.
   *
   * @throws RangeError when it is not between -`maxDriftRate` and `maxDriftRate`
   */
  setDrift(rate: number): void;
  /** Shifts the wall clock. The monotonic clock and timers are not affected. */
  jumpWall(byMs: number): void;
  /** SIGSTOP: no timer runs, but both clocks continue. */
  pause(): void;
  /** SIGCONT: timers that came due in the meantime run at once, in order of their due times. */
  resume(): void;
  readonly isPaused: boolean;
  /** Kills the process: none of its timers runs, and none can be set. */
  kill(): void;
  /** Pending timers. */
  readonly pendingCount: number;
  /** The time of the next process on the same machine. Clock errors outlive processes. */
  next(): NodeTime;
}

interface World {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
}

/** @param world virtual time, shared by all processes */
export function createNodeTime(world: World): NodeTime {
  return new ProcessTime(world, { rate: 0, wallOffsetMs: 0 });
}

class ProcessTime implements NodeTime {
  readonly clock: Clock = { nowMs: () => this.#nowMs(), wallMs: () => Math.floor(this.#wallMs()) };
  readonly scheduler: Scheduler = schedulerOf((delayMs, task) => this.#after(delayMs, task));
  readonly #world: World;
  readonly #heap = new TimerHeap();
  /** When the rate was last set: in virtual time and in this process's own. */
  #baseWorldMs: number;
  #baseOwnMs: number;
  #rate: number;
  /** The process's clock never shows less. Rounding must not run a timer early or move time backwards. */
  #leastMs: number;
  #wallOffsetMs: number;
  /** Due time of the timer in the world's scheduler, in process time. */
  #armedMs = Number.POSITIVE_INFINITY;
  #cancelArmed: Cancel = () => {};
  #isFiring = false;
  #state: "running" | "paused" | "dead" = "running";

  constructor(world: World, { rate, wallOffsetMs }: { readonly rate: number; readonly wallOffsetMs: number }) {
    this.#world = world;
    this.#rate = rate;
    this.#wallOffsetMs = wallOffsetMs;
    this.#baseWorldMs = world.clock.nowMs();
    this.#baseOwnMs = this.#baseWorldMs;
    this.#leastMs = this.#baseWorldMs;
  }

  get isPaused(): boolean {
    return this.#state === "paused";
  }

  get pendingCount(): number {
    return this.#heap.size;
  }

  setDrift(rate: number): void {
    if (!(Math.abs(rate) <= maxDriftRate)) throw new RangeError(`no clock drifts by ${rate}`);
    this.#baseOwnMs = this.#nowMs();
    this.#baseWorldMs = this.#world.clock.nowMs();
    this.#rate = rate;
    this.#disarm();
    this.#arm();
  }

  jumpWall(byMs: number): void {
    this.#wallOffsetMs += byMs;
  }

  pause(): void {
    if (this.#state !== "running") return;
    this.#state = "paused";
    this.#disarm();
  }

  resume(): void {
    if (this.#state !== "paused") return;
    this.#state = "running";
    this.#arm();
  }

  kill(): void {
    this.#state = "dead";
    this.#disarm();
    this.#heap.clear();
  }

  next(): NodeTime {
    return new ProcessTime(this.#world, {
      rate: this.#rate,
      wallOffsetMs: this.#wallMs() - this.#world.clock.wallMs(),
    });
  }

  #nowMs(): number {
    const worldMs = this.#world.clock.nowMs() - this.#baseWorldMs;
    const ownMs = this.#baseOwnMs + (this.#rate === 0 ? worldMs : worldMs * (1 + this.#rate));
    if (ownMs > this.#leastMs) this.#leastMs = ownMs;
    return this.#leastMs;
  }

  /** With a fractional part, unlike the wall clocks of machines. */
  #wallMs(): number {
    return this.#world.clock.wallMs() + (this.#nowMs() - this.#world.clock.nowMs()) + this.#wallOffsetMs;
  }

  #after(delayMs: number, task: () => void): Cancel {
    if (this.#state === "dead") return () => {};
    const dueMs = this.#nowMs() + Math.max(0, delayMs);
    const cancel = this.#heap.add(dueMs, task);
    if (dueMs < this.#armedMs) this.#arm();
    return cancel;
  }

  /** Sets this process's one timer in the world's scheduler, for the first of its own timers. */
  #arm(): void {
    if (this.#state !== "running" || this.#isFiring) return;
    const dueMs = this.#heap.nextDueMs;
    if (dueMs === this.#armedMs) return;
    this.#disarm();
    if (dueMs === Number.POSITIVE_INFINITY) return;
    this.#armedMs = dueMs;
    const ownMs = dueMs - this.#nowMs();
    const worldMs = this.#rate === 0 ? ownMs : ownMs / (1 + this.#rate);
    this.#cancelArmed = this.#world.scheduler.after(worldMs, () => this.#fire());
  }

  #disarm(): void {
    this.#cancelArmed();
    this.#cancelArmed = () => {};
    this.#armedMs = Number.POSITIVE_INFINITY;
  }

  /** Runs due timers. Timers that they set for the same moment run after those of other processes. */
  #fire(): void {
    this.#leastMs = Math.max(this.#leastMs, this.#armedMs);
    this.#armedMs = Number.POSITIVE_INFINITY;
    const untilMs = this.#nowMs();
    const orderedBefore = this.#heap.added;
    this.#isFiring = true;
    try {
      while (this.#state === "running" && this.#heap.nextOrder < orderedBefore) {
        const task = this.#heap.take(untilMs);
        if (!task) break;
        task();
      }
    } finally {
      this.#isFiring = false;
      this.#arm();
    }
  }
}
