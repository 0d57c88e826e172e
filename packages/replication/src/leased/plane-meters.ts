import type { Meter, MetricDescription } from "@espalier/common";

/** Registers how many frames of other routers came, by what they were good for. @returns counts one of them */
export function createReceivedCounter<Outcome extends string>(
  meter: Meter,
  description: Pick<MetricDescription, "name" | "help">,
  outcomes: readonly Outcome[],
): (outcome: Outcome) => void {
  const received = meter.counter({ ...description, labels: ["outcome"] });
  const series = new Map(outcomes.map((outcome) => [outcome, received.series(outcome)]));
  return (outcome) => series.get(outcome)?.add();
}
