import type { QueueCounts } from "./overview.ts";

/** One class, over all routers that are followed. */
export interface QueueRow {
  readonly name: string;
  readonly queued: number;
  readonly shed: number;
  /** On average, of those that had to wait; null when none had to. */
  readonly waitMs: number | null;
}

/** Classes in the order in which routers name them. */
export function queueRows(routers: readonly (readonly QueueCounts[])[]): readonly QueueRow[] {
  const sums = new Map<string, { queued: number; shed: number; waited: number; waitedMs: number }>();
  for (const { name, queued, shed, waited, waitedMs } of routers.flat()) {
    const sum = sums.get(name) ?? { queued: 0, shed: 0, waited: 0, waitedMs: 0 };
    sum.queued += queued;
    sum.shed += shed;
    sum.waited += waited;
    sum.waitedMs += waitedMs;
    sums.set(name, sum);
  }
  return [...sums].map(([name, { queued, shed, waited, waitedMs }]) => ({
    ...{ name, queued, shed },
    waitMs: waited > 0 ? waitedMs / waited : null,
  }));
}
