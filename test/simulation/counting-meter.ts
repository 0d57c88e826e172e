import type { Meter } from "@espalier/common";

/** A meter whose counters can be read, of one series or summed over all. */
export interface CountingMeter extends Meter {
  total(name: string, label?: string): number;
}

export function createCountingMeter(): CountingMeter {
  const totals = new Map<string, number>();
  const counter = ({ name }: { readonly name: string }) => ({
    series: (label?: string) => ({
      add(amount = 1) {
        for (const key of label === undefined ? [name] : [name, `${name} ${label}`]) {
          totals.set(key, (totals.get(key) ?? 0) + amount);
        }
      },
    }),
    remove: () => {},
  });
  const ignored = () => ({ series: () => ({ set: () => {}, observe: () => {} }), remove: () => {} });
  return {
    counter,
    gauge: ignored,
    histogram: ignored,
    total: (name, label) => totals.get(label === undefined ? name : `${name} ${label}`) ?? 0,
  };
}
