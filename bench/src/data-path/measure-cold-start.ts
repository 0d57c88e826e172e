import { percentile } from "@espalier/simulator";
import type { Figures } from "../support/median-spread.ts";
import { coldStartLoads } from "./loads.ts";
import {
  type ContenderOutcome,
  type DataPathOptions,
  type DataPathRun,
  measure,
  measureEach,
  withSystem,
} from "./measure-data-path.ts";

/**
 * Measures the first seconds of one contender after the other: each load goes to a fresh process of its own. Figures of all
 * others are given as ratios to the reference too, from the same round, since other programs slow one round more than another.
 *
 * @param round selects the arrivals and the first contender
 * @param reference name of a contender
 */
export async function measureColdStart(
  options: DataPathOptions,
  round: number,
  reference: string,
): Promise<DataPathRun> {
  const loads = coldStartLoads(round);
  const { outcomes, shares } = await measureEach(options, round, async (contender, keep) => {
    const figures: Record<string, number> = {};
    for (const [figure, { load, of }] of Object.entries(loads)) {
      await withSystem(contender, contender.policy, options, async (system) => {
        const measured = await measure(figure, system, load, options);
        keep(figure, contender.name, measured);
        figures[figure] = of === "cpu" ? measured.cpuMicrosPerRequest : percentile(measured.totalMs, of);
      });
    }
    return figures;
  });
  return { direct: {}, outcomes: withRatios(outcomes, reference), shares };
}

/** Adds the ratio to the reference's figure to each figure of the others; nothing when the reference has none. */
export function withRatios(
  outcomes: ReadonlyMap<string, ContenderOutcome>,
  reference: string,
): ReadonlyMap<string, ContenderOutcome> {
  const known = outcomes.get(reference);
  if (!known || !("figures" in known)) return outcomes;
  const ratios = (figures: Figures): Figures =>
    Object.fromEntries(Object.entries(figures).map(([name, value]) => [`${name}_ratio`, value / known.figures[name]!]));
  return new Map(
    [...outcomes].map(([name, outcome]) => [
      name,
      name === reference || !("figures" in outcome)
        ? outcome
        : { figures: { ...outcome.figures, ...ratios(outcome.figures) } },
    ]),
  );
}
