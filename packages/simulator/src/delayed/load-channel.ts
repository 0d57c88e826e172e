import type { Clock, Scheduler } from "@espalier/common";
import type { DeliveryTimes } from "./delivery-times.ts";
import { DueQueue } from "./due-queue.ts";
import type { LoadBoard, LoadReport } from "./load-board.ts";

/** Brings reports of load to the board when they are due, all that are due at a moment together. */
export class LoadChannel {
  readonly #board: LoadBoard;
  readonly #loadDueMs: DeliveryTimes["loadDueMs"];
  readonly #clock: Clock;
  readonly #scheduler: Scheduler;
  readonly #queue = new DueQueue<LoadReport>();
  #isArmed = false;

  constructor(
    board: LoadBoard,
    options: { readonly times: DeliveryTimes; readonly clock: Clock; readonly scheduler: Scheduler },
  ) {
    this.#board = board;
    this.#loadDueMs = options.times.loadDueMs;
    this.#clock = options.clock;
    this.#scheduler = options.scheduler;
  }

  send(report: LoadReport): void {
    const nowMs = this.#clock.nowMs();
    const dueMs = this.#loadDueMs(nowMs);
    if (dueMs <= nowMs) {
      this.#board.heard(report);
      return;
    }
    this.#queue.push(dueMs, report);
    this.#arm();
  }

  #arm(): void {
    if (this.#isArmed || this.#queue.size === 0) return;
    this.#isArmed = true;
    this.#scheduler.after(this.#queue.nextDueMs - this.#clock.nowMs(), () => {
      this.#isArmed = false;
      const nowMs = this.#clock.nowMs();
      while (this.#queue.nextDueMs <= nowMs) this.#board.heard(this.#queue.take());
      this.#arm();
    });
  }
}
