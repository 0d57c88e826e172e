import type { RequestResult } from "@espalier/workload";

/** Kinds of failure that are told apart; the rest are counted. */
const maxReasons = 3;

/** Why requests failed, most frequent reasons first; undefined when none did. */
export function describeFailures(results: readonly RequestResult[]): string | undefined {
  const counts = new Map<string, number>();
  for (const { error } of results) if (error !== undefined) counts.set(error, (counts.get(error) ?? 0) + 1);
  if (counts.size === 0) return undefined;
  const reasons = [...counts].sort(([, one], [, other]) => other - one);
  const failed = reasons.reduce((sum, [, count]) => sum + count, 0);
  const lines = reasons.slice(0, maxReasons).map(([reason, count]) => `  ${count} x ${reason}`);
  if (reasons.length > maxReasons) lines.push(`  and ${reasons.length - maxReasons} other reasons`);
  return [`${failed} of ${results.length} requests failed:`, ...lines].join("\n");
}
