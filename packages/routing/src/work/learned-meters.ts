import type { Meter } from "@espalier/common";

/** `implausible`: it can be read, and cannot be so. */
export type LearnedAs = "taken" | "implausible" | "invalid";

/** The metrics of what routers tell each other of the times that engines take. */
export interface LearnedMeters {
  heard(as: LearnedAs): void;
}

/** Registers these metrics. */
export function createLearnedMeters(meter: Meter): LearnedMeters {
  const heard = meter.counter({
    name: "espalier_learned_times_received_total",
    help: "What other routers told of the times that engines take, by whether it could be used.",
    labels: ["outcome"],
  });
  const outcomes = {
    taken: heard.series("taken"),
    implausible: heard.series("implausible"),
    invalid: heard.series("invalid"),
  };
  return { heard: (as) => outcomes[as].add() };
}
