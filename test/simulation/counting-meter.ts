import type { Meter } from "@espalier/core";

/** A meter whose counters can be read, summed over their labels. */
export interface CountingMeter extends Meter {
  total(name: string): number;
}

export function createCountingMeter(): CountingMeter {
  const totals = new Map<string, number>();
  const counter = (name: string) => ({
    series: () => ({
      add: (amount = 1) => void totals.set(name, (totals.get(name) ?? 0) + amount),
    }),
    forget: () => {},
  });
  const ignored = () => ({ series: () => ({ set: () => {}, observe: () => {} }), forget: () => {} });
  return { counter, gauge: ignored, histogram: ignored, total: (name) => totals.get(name) ?? 0 };
}
