import { createRow, type SimulateRow } from "../../src/measure/rows.ts";
import type { RunOptions } from "../../src/run.ts";
import { scenario } from "../../src/scenarios/catalogue.ts";
import { simulate } from "../../src/simulate.ts";

export interface MeasuredRun extends Pick<RunOptions, "policy">, Partial<Pick<RunOptions, "seed" | "scale">> {
  readonly name: string;
  readonly variant?: string;
  readonly requests?: number;
  readonly durationS?: number;
}

/** The row of one run of a scenario on its own fleet, behind one router that sees everything. */
export async function measured({ name, variant, ...options }: MeasuredRun): Promise<SimulateRow> {
  const one = scenario(name);
  const chosen = one.variants.find((candidate) => candidate.name === variant);
  if (variant !== undefined && chosen === undefined) throw new RangeError(`${name} has no variant ${variant}`);
  const run: RunOptions = {
    ...{ scenario: one, routers: 1, sharing: "oracle", links: "delays", seed: 1, scale: chosen?.scale ?? 1 },
    engines: chosen?.engines ?? one.fleet.engines,
    ...(chosen === undefined ? {} : { variant: chosen.name }),
    ...(chosen?.parameters === undefined ? {} : { parameters: chosen.parameters }),
    ...options,
  };
  return createRow(await simulate(run, () => 0), run);
}
