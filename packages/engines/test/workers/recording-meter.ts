import type { Meter, Metric, MetricDescription } from "@espalier/core";

/** A meter that keeps every series, so that tests can read values and see which series are gone. */
export interface RecordingMeter extends Meter {
  /** The value of one series, undefined when it does not exist. */
  value(name: string, ...labels: readonly string[]): number | undefined;
  /** `name{label,label}` of every series that exists, sorted. */
  readonly series: readonly string[];
}

export function createRecordingMeter(): RecordingMeter {
  const values = new Map<string, number>();
  const keyOf = (name: string, labels: readonly string[]): string => `${name}{${labels.join(",")}}`;
  const metric = ({ name }: MetricDescription): Metric<Series> => ({
    series(...labels) {
      const key = keyOf(name, labels);
      // As in a real client library, a handle brings its series back when it is used after the series was removed.
      return {
        add: (amount = 1) => values.set(key, (values.get(key) ?? 0) + amount),
        set: (value) => values.set(key, value),
        observe: () => {},
      };
    },
    remove(...labels) {
      values.delete(keyOf(name, labels));
    },
  });
  return {
    counter: metric,
    gauge: metric,
    histogram: metric,
    value: (name, ...labels) => values.get(keyOf(name, labels)),
    get series() {
      return [...values.keys()].sort();
    },
  };
}

interface Series {
  add(amount?: number): void;
  set(value: number): void;
  observe(value: number): void;
}
