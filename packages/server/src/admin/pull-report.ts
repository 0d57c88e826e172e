import type { ChosenPull } from "@espalier/routing";
import type { Target } from "@espalier/workers";

/** KV blocks that the chosen engine would fetch from another one. Times in milliseconds. */
export interface PullReport {
  readonly from: string;
  readonly tokens: number;
  readonly ms: number;
  /** What computing these tokens would take instead. */
  readonly computeMs: number;
}

/** @returns null where nothing is expected to be fetched */
export function describePull(pull: ChosenPull<Target> | undefined): PullReport | null {
  if (!pull || pull.tokens === 0) return null;
  const { source, tokens, expectedMs, computeMs } = pull;
  return { from: source.key, tokens, ms: expectedMs, computeMs };
}
