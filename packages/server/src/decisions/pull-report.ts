import { closed, type Described, nullable, Type } from "@espalier/core/schema";
import type { Target } from "@espalier/engines";
import type { ChosenPull } from "@espalier/routing";

/** KV blocks that the chosen engine would fetch from another one; null for none. */
export const pullReport = nullable(
  closed(
    { from: Type.String(), tokens: Type.Integer(), ms: Type.Number(), computeMs: Type.Number() },
    { description: "KV blocks fetched from another engine, with the milliseconds to fetch and to compute them." },
  ),
);

export type PullReport = Described<typeof pullReport>;

export function describePull(pull: ChosenPull<Target> | undefined): PullReport {
  if (!pull || pull.tokens === 0) return null;
  const { source, tokens, expectedMs, computeMs } = pull;
  return { from: source.key, tokens, ms: expectedMs, computeMs };
}
