import type { EngineRecord, Target } from "./engine-record.ts";

/** A model too few of whose engines health checks find up. */
export interface PanickedModel {
  readonly up: number;
  readonly engines: number;
}

export interface HealthPanic {
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
export function findHealthPanic(pools: ReadonlyMap<string, readonly Target[]>, threshold: number): HealthPanic {
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
