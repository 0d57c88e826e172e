import type { Logger } from "@espalier/core";
import type { Engine, EngineChange } from "./engine.ts";
import { type EngineRecord, isEngineAsleep, type Target } from "./engine-record.ts";
import type { FleetOptions } from "./fleet-options.ts";

/**
 * Panic mode: when circuit breakers or health checks exclude too many engines of a model at once, they are ignored.
 * Some other failure is then more likely than a failure of that many engines. A `Retry-After` cooldown is ignored while it
 * excludes the last one.
 */
export interface PanicMode {
  /** Call it after every change, before listeners are notified. */
  changed(change: EngineChange | "added" | "gone", engine: Engine): void;
}

type Pools = Iterable<readonly [model: string, targets: readonly Target[]]>;

interface PanicModeDeps {
  readonly logger: Logger;
  readonly options: FleetOptions;
  /** Current targets of each model. */
  readonly pools: () => Pools;
  /** Whether the fleet still has this engine, removed ones with requests in flight included. */
  readonly has: (engine: Engine) => boolean;
}

export function createPanicMode({ logger, options, pools, has }: PanicModeDeps): PanicMode {
  /** Engines whose breaker is not closed, or is overruled. */
  const ejected = new Set<Engine>();
  /** Engines that are down, or are tried nevertheless. */
  const down = new Set<Engine>();
  /** Engines in a cooldown, or that have just been in one. */
  const cooling = new Set<Engine>();
  let panicked: ReadonlyMap<string, ModelInPanic> = new Map();

  /** Recomputes whose breakers are overruled. */
  const updateOverruled = (): void => {
    const overruled = overruledEngines(pools(), options.breaker.maxEjectedShare);
    for (const engine of ejected) {
      engine.overrule(overruled.has(engine));
      if (engine.breaker.state === "closed" || !has(engine)) ejected.delete(engine);
    }
  };
  /** Recomputes which engines are tried although they are down. */
  const updateTried = (): void => {
    const { models, tried } = findHealthPanic(pools(), options.health.panicThreshold);
    const before = panicked;
    panicked = models;
    for (const [model, counts] of models) {
      if (!before.has(model)) logger.warn("panic mode: too few engines of a model are up", { model, ...counts });
    }
    for (const model of before.keys()) {
      if (!models.has(model)) logger.info("panic mode ended", { model });
    }
    for (const engine of down) {
      engine.tryThoughDown(tried.has(engine));
      if (engine.state !== "down") down.delete(engine);
    }
  };
  /** Ends the latest cooldown of a model that has no usable engine. */
  const updateCooling = (): void => {
    for (const engine of cooling) if (!engine.isCoolingDown || !has(engine)) cooling.delete(engine);
    if (cooling.size === 0) return;
    for (const [, targets] of pools()) {
      if (targets.some(({ usable }) => usable)) continue;
      const last = [...cooling].findLast((engine) => {
        return targets.some((target) => target.engine === engine && target.exclusion === "cooldown");
      });
      last?.endCooldown();
    }
  };

  return {
    changed(change, engine) {
      if (engine.state === "down") down.add(engine);
      if (down.size > 0 && change !== "breaker") updateTried();
      if (change === "breaker" && engine.breaker.state !== "closed") ejected.add(engine);
      if (ejected.size > 0) updateOverruled();
      if (change === "cooldown") cooling.add(engine);
      if (cooling.size > 0) updateCooling();
    },
  };
}

/**
 * The engines whose circuit breakers are overruled, because those of too many engines of a model are open. Some other
 * failure is then more likely, and the remaining engines could not take the load of all. Engines that are down,
 * drained, paused or asleep do not count. Nor does a model's only engine, which cannot be compared with others.
 *
 * @param pools targets of each model
 * @param maxShare largest share, 0 to 1, of those engines of a model that breakers may exclude
 */
function overruledEngines(pools: Pools, maxShare: number): ReadonlySet<EngineRecord> {
  const overruled = new Set<EngineRecord>();
  for (const [, targets] of pools) {
    const engines = targets.filter(({ rank }) => rank === 0).map(({ engine }) => engine);
    const able = engines.filter(
      (engine) => engine.state === "up" && !engine.draining && !engine.isPaused && !isEngineAsleep(engine),
    );
    const ejected = able.filter(({ breaker }) => breaker.state !== "closed");
    if (able.length < 2 || ejected.length <= maxShare * able.length) continue;
    for (const engine of ejected) overruled.add(engine);
  }
  return overruled;
}

/** A model with too few engines up. */
interface ModelInPanic {
  readonly up: number;
  readonly engines: number;
}

interface HealthPanic {
  readonly models: ReadonlyMap<string, ModelInPanic>;
  /** Engines of these models that are down. They are tried nevertheless. */
  readonly tried: ReadonlySet<EngineRecord>;
}

/**
 * The models with too few engines up. When health checks fail at most engines at once, the checks or the network are
 * likelier to be broken than that many engines, and the few that are left could not take the load of all. Engines that
 * were never up, drained, paused and sleeping ones do not count. Nor does a model's only engine, which cannot be compared with others.
 *
 * @param pools targets of each model
 * @param threshold share of a model's engines, 0 to 1, that must be up; 0 turns panic mode off
 */
function findHealthPanic(pools: Pools, threshold: number): HealthPanic {
  const models = new Map<string, ModelInPanic>();
  const tried = new Set<EngineRecord>();
  for (const [model, targets] of pools) {
    const judged = targets.flatMap(({ rank, engine }) => (rank === 0 && isJudged(engine) ? [engine] : []));
    const up = judged.filter(({ state }) => state === "up").length;
    if (judged.length < 2 || up >= threshold * judged.length) continue;
    models.set(model, { up, engines: judged.length });
    for (const engine of judged) if (engine.state === "down") tried.add(engine);
  }
  return { models, tried };
}

const isJudged = (engine: EngineRecord): boolean =>
  (engine.state === "up" || engine.state === "down") && !engine.draining && !engine.isPaused && !isEngineAsleep(engine);
