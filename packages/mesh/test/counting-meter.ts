import type { Meter, Metric, MetricDescription } from "@espalier/core";

/** A meter whose values tests can read. */
export interface CountingMeter extends Meter {
  /** The value of a series; 0 when it was never used. */
  value(name: string, ...labels: readonly string[]): number;
}

interface AnySeries {
  add(amount?: number): void;
  set(value: number): void;
  observe(value: number): void;
}

export function createCountingMeter(): CountingMeter {
  const values = new Map<string, number>();
  const keyOf = (name: string, labels: readonly string[]): string => [name, ...labels].join("|");
  const metric = ({ name }: MetricDescription): Metric<AnySeries> => ({
    series(...labels) {
      const key = keyOf(name, labels);
      return {
        add: (amount = 1) => values.set(key, (values.get(key) ?? 0) + amount),
        set: (value) => values.set(key, value),
        observe: () => values.set(key, (values.get(key) ?? 0) + 1),
      };
    },
    remove: (...labels) => values.delete(keyOf(name, labels)),
  });
  return {
    counter: metric,
    gauge: metric,
    histogram: metric,
    value: (name, ...labels) => values.get(keyOf(name, labels)) ?? 0,
  };
}
