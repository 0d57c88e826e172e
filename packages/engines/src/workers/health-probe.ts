import { backoffDelayMs, type Random } from "@espalier/core";
import {
  controlFetch,
  createRepeatLoop,
  describeOutcome,
  type Fetched,
  isOwnOutcome,
  type OwnOutcome,
} from "./control-fetch.ts";
import type { Engine, EngineDeps } from "./engine.ts";
import type { EngineState } from "./engine-record.ts";
import type { HealthOptions } from "./fleet-options.ts";

/** Largest answer to a health probe, which is a few bytes. */
const maxHealthBytes = 64 * 1024;

/** Why a probe does not count, by its outcome. */
const whyIgnored: Readonly<Record<OwnOutcome, string>> = {
  local: "connection limit of this router",
  late: "event loop delay",
  busy: "the engine answers requests",
  paused: "the engine is paused",
};

/** Probes the engine's health and moves it between `starting`, `unreachable`, `up` and `down`. */
export function createHealthProbe(
  deps: EngineDeps,
  engine: Engine,
  { onUp, onDown }: { onUp(): void; onDown(): void },
): { start(): void; stop(): void } {
  const { clock, scheduler, random } = deps;
  const { health: options } = deps.options;
  let tracker = new HealthTracker(options, random);

  const record = (fetched: Fetched): boolean => {
    const changed = tracker.record(fetched.outcome === "ok", fetched.status > 0);
    const { consecutiveFailures, consecutiveSuccesses } = tracker;
    engine.meters.probe(fetched.outcome);
    engine.health = { lastOutcome: fetched.outcome, consecutiveFailures, consecutiveSuccesses };
    const failure = `${consecutiveFailures} failed probes, last: ${describeOutcome(fetched)}`;
    if (changed) {
      engine.enter(tracker.state, tracker.state === "up" ? "healthy" : failure);
    } else if (tracker.state === "starting" && consecutiveFailures > 0) {
      engine.stateReason = failure;
      if (consecutiveFailures > 1) return false;
      engine.logger.warn("engine is not healthy yet", { reason: describeOutcome(fetched), url: engine.url });
    }
    return changed;
  };
  const loop = createRepeatLoop(scheduler, async (isCurrent) => {
    const startedMs = clock.nowMs();
    const url = engine.url + options.path;
    const fetched = await controlFetch(deps, { url, timeoutMs: options.timeoutMs, maxBytes: maxHealthBytes });
    if (!isCurrent()) return 0;
    engine.measure();
    const isBusy = fetched.outcome === "timeout" && engine.lastAnswerMs > startedMs;
    const isFailed = fetched.outcome !== "ok";
    const outcome = isFailed && engine.isPaused ? "paused" : isBusy ? "busy" : fetched.outcome;
    if (isOwnOutcome(outcome)) {
      engine.meters.probe(outcome);
      engine.logger.debug("health probe ignored", { url: engine.url, reason: whyIgnored[outcome] });
      return tracker.nextDelayMs(false, clock.nowMs() - startedMs, deps.pace().probeMs);
    }
    const changed = record(fetched);
    // A listener that heard of the change may have stopped or removed the engine.
    if (changed && isCurrent()) {
      if (tracker.state === "up") onUp();
      else onDown();
    }
    return tracker.nextDelayMs(changed, clock.nowMs() - startedMs, deps.pace().probeMs);
  });
  return {
    start() {
      tracker = new HealthTracker(options, random);
      loop.start(0);
    },
    stop: loop.stop,
  };
}

/**
 * After a failed probe of an engine that is up, the next one begins after this share of the interval. With the default
 * options an engine that refuses connections is so known to be down at most 2 + 2 x 1.4 = 4.8 s after its last healthy
 * probe began, and one that goes silent 2 + 3 x 3 = 11 s after it.
 */
const confirmShare = 0.7;

/** A new engine is unreachable after this many probes without any answer: within a minute of refused connections. */
const unreachableAfter = 30;

/** Turns the results of probes into a state. Pure except for the jitter of its delays. */
export class HealthTracker {
  readonly #options: HealthOptions;
  readonly #random: Random;
  state: Exclude<EngineState, "removed"> = "starting";
  consecutiveFailures = 0;
  consecutiveSuccesses = 0;
  /** Probes since the last change of state; paces the probing of an engine that is not up. */
  #attempts = 0;
  /** Probes in a row without any answer. */
  #unanswered = 0;

  constructor(options: HealthOptions, random: Random) {
    this.#options = options;
    this.#random = random;
  }

  /**
   * @param answered whether it answered at all: engines say 503 while they load
   * @returns whether the state changed
   */
  record(healthy: boolean, answered = healthy): boolean {
    this.#unanswered = answered ? 0 : this.#unanswered + 1;
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
    if (this.state === "starting" || this.state === "unreachable") {
      const before = this.state;
      this.state = this.#unanswered < unreachableAfter ? "starting" : "unreachable";
      return this.state !== before;
    }
    return this.state === "up" && this.consecutiveFailures >= this.#options.downAfter && this.#become("down");
  }

  /**
   * @param changed what `record` said
   * @param elapsedMs since the last probe began
   * @param atLeastMs from one probe to the next, unless the last one of an engine that is up failed
   * @returns milliseconds until the next probe should begin
   */
  nextDelayMs(changed: boolean, elapsedMs: number, atLeastMs = 0): number {
    const { firstRetryMs } = this.#options;
    const intervalMs = Math.max(this.#options.intervalMs, atLeastMs);
    if (this.state !== "up") {
      const limits = { firstDelayMs: firstRetryMs, maxDelayMs: intervalMs };
      return backoffDelayMs(Math.max(0, this.#attempts - 1), limits, this.#random);
    }
    // Engines that came up together are spread over the interval once, and keep their phase from then on.
    if (changed) return Math.max(1, this.#random.float() * intervalMs);
    const dueMs = this.consecutiveFailures > 0 ? confirmShare * this.#options.intervalMs : intervalMs;
    return Math.max(1, dueMs - elapsedMs);
  }

  #become(state: "up" | "down"): true {
    this.state = state;
    this.#attempts = 0;
    return true;
  }
}
