import type { EngineRecord, Target } from "./engine-record.ts";

/**
 * The engines whose circuit breakers do not count, because too many of those that serve a model are left alone: then it is
 * likelier that something else is wrong than that so many engines are, and those that are left could not take the load of
 * all. Engines that health checks say are down are not among them, and a model's only engine has nobody to be compared with.
 *
 * @param pools targets of each model
 * @param maxShare of the engines of a model that are up and not drained, 0 to 1, up to which breakers count
 */
export function overruledEngines(pools: Iterable<readonly Target[]>, maxShare: number): ReadonlySet<EngineRecord> {
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
