import type { Logger } from "@espalier/common";
import { overruledEngines } from "./breaker-panic.ts";
import type { Engine, EngineChange } from "./engine.ts";
import type { Target } from "./engine-record.ts";
import type { FleetOptions } from "./fleet-options.ts";
import { findHealthPanic, type PanickedModel } from "./health-panic.ts";

/** Decides what breakers and health checks are worth when they speak against too many engines of a model at once. */
export interface CrowdJudge {
  /** To be called after every change, before it is told to anybody. */
  changed(change: EngineChange | "added" | "gone", engine: Engine): void;
}

export interface CrowdJudgeDeps {
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
