import { appendFileSync } from "node:fs";

/** What `npm run test:chaos` adds up, a line of JSON per event. */
export type ChaosEvent =
  | { readonly fault: string }
  /** Of one run of traffic. `lost`: neither an answer nor an error came. */
  | {
      readonly requests: number;
      readonly completed: number;
      /** Those whose answer had begun when its engine broke off, and those that an engine swallowed. */
      readonly allowedFailures: number;
      readonly failures: number;
      readonly lost: number;
    };

const reportFile = process.env.ESPALIER_CHAOS_REPORT;

/** Tells the command that runs these tests; without one nothing is noted. */
export function tellChaos(event: ChaosEvent): void {
  if (reportFile !== undefined) appendFileSync(reportFile, `${JSON.stringify(event)}\n`);
}
