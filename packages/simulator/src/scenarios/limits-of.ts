import type { SendLimits } from "../clients/sender.ts";
import type { WorkloadOptions } from "./scenario.ts";

/** When a run ends sending: at what the user asked for, else after the scenario's own duration. */
export function limitsOf({ requests, durationS }: WorkloadOptions, ownDurationS?: number): SendLimits {
  return { requests, durationS: durationS ?? (requests === undefined ? ownDurationS : undefined) };
}

/** A number of clients times the scale: at least one. */
export function scaledClients(clients: number, { scale }: WorkloadOptions): number {
  return Math.max(1, Math.round(clients * scale));
}
