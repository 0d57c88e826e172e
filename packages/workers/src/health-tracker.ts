import { backoffDelayMs, type Random } from "@espalier/common";
import type { HealthOptions } from "./fleet-options.ts";

/**
 * After a failed probe of an engine that is up, the next one begins after this share of the interval. With the default
 * options an engine that goes silent is so known to be down at most 2 + 2 x 1.4 + 1 = 5.8 s after its last healthy
 * probe began.
 */
const confirmShare = 0.7;

/** Turns the results of probes into a state. Pure but for the randomness of its delays. */
export class HealthTracker {
  readonly #options: HealthOptions;
  readonly #random: Random;
  state: "starting" | "up" | "down" = "starting";
  consecutiveFailures = 0;
  consecutiveSuccesses = 0;
  /** Probes since the engine was last seen to change; paces the probing of one that is not up. */
  #attempts = 0;

  constructor(options: HealthOptions, random: Random) {
    this.#options = options;
    this.#random = random;
  }

  /** @returns whether the state changed */
  record(healthy: boolean): boolean {
    if (healthy) {
      this.consecutiveSuccesses += 1;
      this.consecutiveFailures = 0;
      this.#attempts = 0;
      const needed = this.state === "down" ? this.#options.upAfter : 1;
      return this.state !== "up" && this.consecutiveSuccesses >= needed && this.#become("up");
    }
    this.consecutiveFailures += 1;
    this.consecutiveSuccesses = 0;
    this.#attempts += 1;
    return this.state === "up" && this.consecutiveFailures >= this.#options.downAfter && this.#become("down");
  }

  /**
   * @param changed what `record` said
   * @param elapsedMs since the last probe began
   * @returns milliseconds until the next probe should begin
   */
  nextDelayMs(changed: boolean, elapsedMs: number): number {
    const { intervalMs, firstRetryMs } = this.#options;
    if (this.state !== "up") {
      const limits = { firstDelayMs: firstRetryMs, maxDelayMs: intervalMs };
      return backoffDelayMs(Math.max(0, this.#attempts - 1), limits, this.#random);
    }
    // Engines that came up together are spread over the interval once, and keep their phase from then on.
    if (changed) return Math.max(1, this.#random.float() * intervalMs);
    return Math.max(1, (this.consecutiveFailures > 0 ? confirmShare : 1) * intervalMs - elapsedMs);
  }

  #become(state: "up" | "down"): true {
    this.state = state;
    this.#attempts = 0;
    return true;
  }
}
