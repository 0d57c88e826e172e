/**
 * Health probes, and pages of metrics of one rank, that a router asks for in a second at most: about a quarter of a core. With
 * more engines it asks each of them less often than the configuration says, so that its own questions never keep it from
 * clients' requests.
 */
const probesPerS = 500;
const rankPagesPerS = 1_000;

/** Least times between two questions to one engine. */
export interface ControlPace {
  readonly probeMs: number;
  readonly scrapeMs: number;
}

/** @param ranks of all engines together */
export function controlPaceOf(engines: number, ranks: number): ControlPace {
  return { probeMs: (1_000 * engines) / probesPerS, scrapeMs: (1_000 * ranks) / rankPagesPerS };
}
