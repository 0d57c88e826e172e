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

export function describePull({ source, tokens, expectedMs, computeMs }: ChosenPull<Target>): PullReport {
  return { from: source.key, tokens, ms: expectedMs, computeMs };
}
