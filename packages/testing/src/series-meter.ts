import type { Meter } from "@espalier/common";

/** A meter whose values can be read by name and labels. */
export interface SeriesMeter extends Meter {
  /** Undefined for a series that does not exist. */
  value(name: string, ...labels: readonly string[]): number | undefined;
}

/** Nothing has a value before it is used. What is observed by histograms is not kept. */
export function createSeriesMeter(): SeriesMeter {
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
    value: (name, ...labels) => values.get(keyOf(name, labels)),
  };
}
