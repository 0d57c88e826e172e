import type { Logger } from "@espalier/common";

/** What did not count for so long is worth a line in the log. */
const pauseMs = 1_000;
/** Who used so much of the time for computing was at work and not stopped; the rest may have gone to other processes. */
const busyShare = 0.5;

export interface PauseReportDeps {
  /** CPU time that this process has used so far, of all its threads. */
  readonly cpuMs: () => number;
  readonly paused: () => void;
  readonly logger: Logger;
}

/** Tells operators of time in which nothing was done for other routers, and whether this process spent it itself. */
export class PauseReport {
  readonly #deps: PauseReportDeps;
  #cpuMs: number;

  constructor(deps: PauseReportDeps) {
    this.#deps = deps;
    this.#cpuMs = deps.cpuMs();
  }

  /** @param lostMs since the last tick, that did not count; to be told at every tick */
  tick(lostMs: number): void {
    const { logger, paused } = this.#deps;
    const before = this.#cpuMs;
    this.#cpuMs = this.#deps.cpuMs();
    if (lostMs < pauseMs) return;
    paused();
    const [lost, spent] = [Math.round(lostMs), Math.round(this.#cpuMs - before)];
    const what =
      spent >= busyShare * lostMs
        ? `the event loop was busy for ${lost} ms`
        : `this process did not run for ${lost} ms: it was stopped, or had no CPU`;
    logger.warn(`${what}; the other routers get their time again`, { lostMs: lost, cpuMs: spent });
  }
}
