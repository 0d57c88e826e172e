import type { Meter } from "@espalier/common";

/** A meter whose series can be read as `name{label,label}`. */
export interface RecordingMeter extends Meter {
  value(name: string, ...labels: readonly string[]): number | undefined;
  readonly names: readonly string[];
}

export function createRecordingMeter(): RecordingMeter {
  const values = new Map<string, number>();
  const keyOf = (name: string, labels: readonly string[]): string => `${name}{${labels.join(",")}}`;
  const metric = ({ name }: { readonly name: string }) => ({
    series: (...labels: readonly string[]) => ({
      add: (amount = 1) => void values.set(keyOf(name, labels), (values.get(keyOf(name, labels)) ?? 0) + amount),
      set: (value: number) => void values.set(keyOf(name, labels), value),
      observe: () => {},
    }),
    remove: (...labels: readonly string[]) => void values.delete(keyOf(name, labels)),
  });
  return {
    counter: metric,
    gauge: metric,
    histogram: metric,
    value: (name, ...labels) => values.get(keyOf(`espalier_kv_feed_${name}`, labels)),
    get names() {
      return [...values.keys()].sort();
    },
  };
}
