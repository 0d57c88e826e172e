import type { Meter, Metric, MetricDescription } from "@espalier/core";

interface Series {
  add(amount?: number): void;
  set(value: number): void;
  observe(value: number): void;
}

/** A meter whose values tests can read: the sum of a counter, the last value of a gauge, how often a histogram was fed. */
export interface RecordingMeter extends Meter {
  value(name: string, ...labels: readonly string[]): number;
}

export function createRecordingMeter(): RecordingMeter {
  const values = new Map<string, number>();
  const metric = ({ name }: MetricDescription): Metric<Series> => ({
    series(...labels) {
      const key = [name, ...labels].join("|");
      const add = (amount = 1): void => {
        values.set(key, (values.get(key) ?? 0) + amount);
      };
      return { add, set: (value) => values.set(key, value), observe: () => add() };
    },
    remove: (...labels) => values.delete([name, ...labels].join("|")),
  });
  return {
    counter: metric,
    gauge: metric,
    histogram: metric,
    value: (name, ...labels) => values.get([name, ...labels].join("|")) ?? 0,
  };
}
