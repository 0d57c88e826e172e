import type { Clock } from "@espalier/common";

/** Replays that one feed may start within a window. */
const maxStarts = 8;
const windowMs = 10_000;

/**
 * Says when a feed may ask for another replay. A stream in disorder (two publishers under one name, an engine that dies
 * again and again) would otherwise ask without end.
 */
export class ReplayAllowance {
  readonly #clock: Clock;
  readonly #cooldownMs: number;
  readonly #startsMs: number[] = [];
  #notBeforeMs = Number.NEGATIVE_INFINITY;

  /** @param cooldownMs how long a failed replay is not tried again */
  constructor(clock: Clock, cooldownMs: number) {
    this.#clock = clock;
    this.#cooldownMs = cooldownMs;
  }

  get isOpen(): boolean {
    const nowMs = this.#clock.nowMs();
    while (this.#startsMs.length > 0 && this.#startsMs[0]! <= nowMs - windowMs) this.#startsMs.shift();
    return nowMs >= this.#notBeforeMs && this.#startsMs.length < maxStarts;
  }

  started(): void {
    this.#startsMs.push(this.#clock.nowMs());
  }

  failed(): void {
    this.#notBeforeMs = this.#clock.nowMs() + this.#cooldownMs;
  }

  /** Another connection may have another process behind it: an earlier failure says nothing. */
  reconnected(): void {
    this.#notBeforeMs = Number.NEGATIVE_INFINITY;
  }
}
