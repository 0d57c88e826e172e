import { controlFetch, describeOutcome, type Fetched, ownOutcomes } from "./control-fetch.ts";
import type { Engine, EngineDeps } from "./engine.ts";
import { HealthTracker } from "./health-tracker.ts";
import { createRepeatLoop } from "./repeat-loop.ts";

/** An answer to a health probe is a few bytes; more than this is something else. */
const maxHealthBytes = 64 * 1024;
/** Probes the engine's health and moves it between `starting`, `up` and `down`. */
export function createHealthProbe(
  deps: EngineDeps,
  engine: Engine,
  { onUp, onDown }: { onUp(): void; onDown(): void },
): { start(): void; stop(): void } {
  const { clock, scheduler, random } = deps;
  const { health: options } = deps.options;
  let tracker = new HealthTracker(options, random);

  const record = (fetched: Fetched): boolean => {
    const changed = tracker.record(fetched.outcome === "ok");
    const { consecutiveFailures, consecutiveSuccesses } = tracker;
    engine.meters.probe(fetched.outcome);
    engine.health = { lastOutcome: fetched.outcome, consecutiveFailures, consecutiveSuccesses };
    if (changed) {
      const failure = `${consecutiveFailures} failed probes, last: ${describeOutcome(fetched)}`;
      engine.enter(tracker.state, tracker.state === "up" ? "healthy" : failure);
    } else if (tracker.state === "starting" && consecutiveFailures === 1) {
      engine.logger.warn("engine is not healthy yet", { reason: describeOutcome(fetched), url: engine.url });
    }
    return changed;
  };
  const loop = createRepeatLoop(scheduler, async (isCurrent) => {
    const startedMs = clock.nowMs();
    const url = engine.url + options.path;
    const fetched = await controlFetch(deps, { url, timeoutMs: options.timeoutMs, maxBytes: maxHealthBytes });
    if (!isCurrent()) return 0;
    if (ownOutcomes.has(fetched.outcome)) {
      engine.meters.probe(fetched.outcome);
      const reason = fetched.outcome === "late" ? "this router was late" : "this router could open no connection";
      engine.logger.debug("a health probe counts for nothing", { url: engine.url, reason });
      return tracker.nextDelayMs(false, options.timeoutMs);
    }
    const changed = record(fetched);
    // A listener that heard of the change may have stopped or removed the engine.
    if (changed && isCurrent()) {
      if (tracker.state === "up") onUp();
      else onDown();
    }
    return tracker.nextDelayMs(changed, clock.nowMs() - startedMs);
  });
  return {
    start() {
      tracker = new HealthTracker(options, random);
      loop.start(0);
    },
    stop: loop.stop,
  };
}
