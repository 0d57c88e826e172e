import { mooncakeStepMs, type TraceRequest } from "@espalier/workload";
import { createTraceReplay } from "../clients/trace-replay.ts";
import { limitsOf } from "./limits-of.ts";
import type { Scenario, ScenarioFleet } from "./scenario.ts";

export interface OwnScenarioOptions {
  /** For rows, for example the name of the trace file. */
  readonly name: string;
  /** See `parseFleet`. */
  readonly fleet: ScenarioFleet;
}

/** How far a time may lie from a step and still count as rounded to it; times are, in traces that are. */
const roundingMs = 5;

/** Fewer rows may lie on steps by chance. */
const minRowsToTell = 16;

/**
 * A user's own trace on a user's own fleet. The rows are given with each run's `trace`. Times that are rounded to steps
 * of three seconds, as Mooncake's are, are spread over them.
 */
export function ownScenario({ name, fleet }: OwnScenarioOptions): Scenario {
  return {
    name,
    summary: `The trace ${name} on ${fleet.engines} engines.`,
    fleet,
    policies: ["round_robin", "predicted_latency"],
    variants: [],
    published: [],
    isOpenLoop: true,
    trace: name,
    createWorkload(options) {
      const { seed, scale, trace: rows = [] } = options;
      const stepMs = isRounded(rows) ? mooncakeStepMs : undefined;
      return createTraceReplay({ seed, rows, speed: scale, stepMs, limits: limitsOf(options) });
    },
  };
}

function isRounded(rows: readonly TraceRequest[]): boolean {
  if (rows.length < minRowsToTell || rows.at(-1)!.arrivalMs < mooncakeStepMs / 2) return false;
  return rows.every(({ arrivalMs }) => {
    const past = arrivalMs % mooncakeStepMs;
    return Math.min(past, mooncakeStepMs - past) <= roundingMs;
  });
}
