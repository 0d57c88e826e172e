import type { Logger } from "@espalier/common";
import type { Engine, EngineChange } from "./engine.ts";
import type { EngineRecord, Target } from "./engine-record.ts";
import type { FleetOptions } from "./fleet-options.ts";

/** Decides what breakers and health checks are worth when they speak against too many engines of a model at once. */
export interface CrowdJudge {
  /** To be called after every change, before it is told to anybody. */
  changed(change: EngineChange | "added" | "gone", engine: Engine): void;
}

interface CrowdJudgeDeps {
  readonly logger: Logger;
  readonly options: FleetOptions;
  /** Targets of each model at present. */
  readonly pools: () => ReadonlyMap<string, readonly Target[]>;
  /** Whether the fleet has this engine, be it as a removed one. */
  readonly has: (engine: Engine) => boolean;
}

export function createCrowdJudge({ logger, options, pools, has }: CrowdJudgeDeps): CrowdJudge {
  /** Those whose breaker is not closed, and those whose breaker does not count. */
  const ejected = new Set<Engine>();
  /** Those that health checks find down, and those that are tried all the same. */
  const down = new Set<Engine>();
  let panicked: ReadonlyMap<string, PanickedModel> = new Map();

  /** Finds out anew whose breakers count. */
  const overrule = (): void => {
    const overruled = overruledEngines(pools().values(), options.breaker.maxEjectedShare);
    for (const engine of ejected) {
      engine.overrule(overruled.has(engine));
      if (engine.breaker.state === "closed" || !has(engine)) ejected.delete(engine);
    }
  };
  /** Finds out anew which engines are tried though they are down. */
  const tryTheDown = (): void => {
    const { models, tried } = findHealthPanic(pools(), options.health.panicThreshold);
    const before = panicked;
    panicked = models;
    for (const [model, counts] of models) {
      if (!before.has(model)) logger.warn("too few engines of a model are up: all are tried", { model, ...counts });
    }
    for (const model of before.keys()) {
      if (!models.has(model)) logger.info("engines that are down are no longer tried for a model", { model });
    }
    for (const engine of down) {
      engine.tryThoughDown(tried.has(engine));
      if (engine.state !== "down") down.delete(engine);
    }
  };

  return {
    changed(change, engine) {
      if (engine.state === "down") down.add(engine);
      if (down.size > 0 && change !== "breaker") tryTheDown();
      if (change === "breaker" && engine.breaker.state !== "closed") ejected.add(engine);
      if (ejected.size > 0) overrule();
    },
  };
}

/**
 * The engines whose circuit breakers do not count, because too many of those that serve a model are left alone: then it is
 * likelier that something else is wrong than that so many engines are, and those that are left could not take the load of
 * all. Engines that health checks say are down are not among them, and a model's only engine has nobody to be compared with.
 *
 * @param pools targets of each model
 * @param maxShare of the engines of a model that are up and not drained, 0 to 1, up to which breakers count
 */
function overruledEngines(pools: Iterable<readonly Target[]>, maxShare: number): ReadonlySet<EngineRecord> {
  const overruled = new Set<EngineRecord>();
  for (const targets of pools) {
    const engines = targets.filter(({ rank }) => rank === 0).map(({ engine }) => engine);
    const able = engines.filter(({ state, draining }) => state === "up" && !draining);
    const ejected = able.filter(({ breaker }) => breaker.state !== "closed");
    if (able.length < 2 || ejected.length <= maxShare * able.length) continue;
    for (const engine of ejected) overruled.add(engine);
  }
  return overruled;
}

/** A model too few of whose engines health checks find up. */
interface PanickedModel {
  readonly up: number;
  readonly engines: number;
}

interface HealthPanic {
  readonly models: ReadonlyMap<string, PanickedModel>;
  /** Engines of these models that are down: they are tried all the same. */
  readonly tried: ReadonlySet<EngineRecord>;
}

/**
 * The models too few of whose engines are up. Checks that fail at most engines at once are likelier to be wrong, or the
 * way to the engines is, than that so many have gone; and the few that are left could not take the load of all. Engines
 * that were never up, and drained ones, do not count; a model's only engine has nobody to be compared with.
 *
 * @param pools targets of each model
 * @param threshold share of a model's engines, 0 to 1, that have to be up; 0 is always enough
 */
function findHealthPanic(pools: ReadonlyMap<string, readonly Target[]>, threshold: number): HealthPanic {
  const models = new Map<string, PanickedModel>();
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

const isJudged = ({ state, draining }: EngineRecord): boolean => (state === "up" || state === "down") && !draining;
