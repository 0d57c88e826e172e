import type { AdmissionMeters } from "@espalier/admission";

/** One class over all pools, since the start. */
export interface ClassCounts {
  readonly name: string;
  /** Requests that wait now. */
  readonly queued: number;
  /** Requests that had to wait and went, and the milliseconds that they waited. */
  readonly waited: number;
  readonly waitedMs: number;
  /** Requests that left the queue otherwise than to an engine. */
  readonly shed: number;
}

type Counts = { -readonly [key in keyof ClassCounts]: ClassCounts[key] };

/** Counts what passes through meters, which are written only. */
export function countClasses(meters: AdmissionMeters): {
  readonly meters: AdmissionMeters;
  readonly counts: (className: string) => ClassCounts;
} {
  const classes = new Map<string, Counts>();
  const find = (name: string): Counts => {
    const known = classes.get(name);
    if (known) return known;
    const created = { name, queued: 0, waited: 0, waitedMs: 0, shed: 0 };
    classes.set(name, created);
    return created;
  };
  return {
    counts: (className) => ({ ...find(className) }),
    meters: {
      of(className) {
        const inner = meters.of(className);
        const counts = find(className);
        return {
          ...inner,
          queued(change) {
            counts.queued += change;
            inner.queued(change);
          },
          waited(milliseconds) {
            counts.waited += 1;
            counts.waitedMs += milliseconds;
            inner.waited(milliseconds);
          },
          shed(reason) {
            if (reason !== "demoted") counts.shed += 1;
            inner.shed(reason);
          },
        };
      },
    },
  };
}
