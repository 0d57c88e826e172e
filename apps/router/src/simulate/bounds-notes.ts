import type { MedianRow } from "@espalier/simulator";

/** What caches could hold at best, a line for each fleet and load; the requests of its first row are what is bounded. */
export function boundsNotes(medians: readonly MedianRow[]): readonly string[] {
  const seen = new Set<string>();
  return medians.flatMap(({ variant, engines, load, figures }) => {
    const infinite = figures["bounds.infinite_cache"]?.median;
    const key = JSON.stringify([variant, engines, load]);
    if (infinite === undefined || seen.has(key)) return [];
    seen.add(key);
    const followups = figures["bounds.infinite_cache_followup"]?.median;
    const pooled = figures["bounds.pooled_lru"]?.median;
    const parts = [
      `an infinite shared cache would hold ${percent(infinite)}`,
      ...(followups === undefined ? [] : [`(${percent(followups)} of follow-ups)`]),
      ...(pooled === undefined ? [] : [`, one cache of the size of all ${percent(pooled)}`]),
    ];
    const where = [
      ...(variant === undefined ? [] : [variant]),
      `${engines} engines`,
      ...(load === undefined ? [] : [`${load} of the knee`]),
    ];
    return [`${where.join(", ")}: ${parts.join(" ").replace(" ,", ",")}`];
  });
}

const percent = (share: number): string => `${(share * 100).toFixed(1)} %`;
