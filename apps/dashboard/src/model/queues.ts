import type { QueueCounts } from "./overview.ts";

/** One class, over all routers that are followed. */
export interface QueueRow {
  readonly name: string;
  readonly queued: number;
  readonly shed: number;
  /** On average, of those that had to wait; null when none had to. */
  readonly waitMs: number | null;
}

/** What routers that are followed have told of their queues, one entry each. */
export type ToldQueues = readonly (readonly QueueCounts[] | null)[];

/** How things stand in one line. That there is nothing to show means that admission is off only where a router says so. */
export function queuesNote(told: ToldQueues): string {
  if (told.every((queues) => queues === null)) return "";
  const rows = queueRows(told);
  if (rows.length === 0) return "admission is off";
  const waiting = rows.reduce((sum, { queued }) => sum + queued, 0);
  return waiting === 0 ? "nobody waits" : `${waiting} wait`;
}

/** Classes in the order in which routers name them. */
export function queueRows(routers: ToldQueues): readonly QueueRow[] {
  const sums = new Map<string, { queued: number; shed: number; waited: number; waitedMs: number }>();
  for (const { name, queued, shed, waited, waitedMs } of routers.flatMap((queues) => queues ?? [])) {
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
