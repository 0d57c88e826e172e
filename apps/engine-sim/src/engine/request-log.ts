import type { RequestReport } from "@espalier/engine-model";
import type { FaultKind } from "../faults.ts";

/** How a request to a model ended at the server. */
export type Outcome = "finished" | "aborted" | "rejected" | "faulted" | "dropped-slow-client";

interface LogEntry {
  readonly path: string;
  readonly requestId: string;
  readonly receivedWallMs: number;
  /** Names and values; secrets only as "present". */
  readonly headers: Readonly<Record<string, string>>;
  readonly outcome: Outcome;
  /** HTTP status of the answer; 0 when there was none. */
  readonly status: number;
  readonly model?: string;
  readonly stream?: boolean;
  readonly fault?: FaultKind;
  /** One for each answer that the engine computed. */
  readonly reports: readonly RequestReport[];
}

/** The newest requests to a model, and counts of how they ended. */
export type RequestLog = ReturnType<typeof createRequestLog>;

/** @param capacity entries kept; the oldest is dropped */
export function createRequestLog(capacity: number) {
  let entries: LogEntry[] = [];
  let totals = noOutcomes();
  return {
    add(entry: LogEntry): void {
      totals[entry.outcome]++;
      entries.push(entry);
      // Trimmed rarely, so that adding stays O(1).
      if (entries.length >= capacity * 2) entries = entries.slice(-capacity);
    },
    /** Oldest first. */
    entries: (): readonly LogEntry[] => entries.slice(-capacity),
    totals: (): Readonly<Record<Outcome, number>> => ({ ...totals }),
    clear(): void {
      entries = [];
      totals = noOutcomes();
    },
  };
}

const noOutcomes = (): Record<Outcome, number> => ({
  finished: 0,
  aborted: 0,
  rejected: 0,
  faulted: 0,
  "dropped-slow-client": 0,
});
