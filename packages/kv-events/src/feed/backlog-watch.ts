import type { Cancel, Clock, Scheduler } from "@espalier/common";

export interface BacklogWatchOptions {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** For so long something unread may wait before the reader is behind. */
  readonly behindMs: number;
  /** `isBehind` has changed. */
  readonly onChange: () => void;
}

/**
 * Says that a reader is behind: that it has not seen the end of what has come for longer than `behindMs`. Only our own clock
 * counts, as an engine's may jump. What still waits at the publisher is not seen, but while it does, what has come here
 * does not end either.
 */
export class BacklogWatch {
  readonly #options: BacklogWatchOptions;
  #sinceMs: number | undefined;
  /** One timer for many short backlogs: it looks again when it fires. */
  #cancelTimer: Cancel | undefined;
  #isBehind = false;

  constructor(options: BacklogWatchOptions) {
    this.#options = options;
  }

  get isBehind(): boolean {
    return this.#isBehind;
  }

  /** @param hasBacklog whether anything that has come is still unread */
  update(hasBacklog: boolean): void {
    if (hasBacklog) this.#begin();
    else this.#end();
  }

  stop(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    this.#end();
  }

  #begin(): void {
    if (this.#sinceMs !== undefined) return;
    const { clock, behindMs } = this.#options;
    this.#sinceMs = clock.nowMs();
    if (!this.#cancelTimer) this.#lookAfter(behindMs);
  }

  #end(): void {
    this.#sinceMs = undefined;
    this.#set(false);
  }

  #lookAfter(delayMs: number): void {
    this.#cancelTimer = this.#options.scheduler.after(delayMs, () => this.#look());
  }

  #look(): void {
    this.#cancelTimer = undefined;
    if (this.#sinceMs === undefined) return;
    const { clock, behindMs } = this.#options;
    const leftMs = this.#sinceMs + behindMs - clock.nowMs();
    if (leftMs > 0) this.#lookAfter(leftMs);
    else this.#set(true);
  }

  #set(isBehind: boolean): void {
    if (isBehind === this.#isBehind) return;
    this.#isBehind = isBehind;
    this.#options.onChange();
  }
}
