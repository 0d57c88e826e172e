import type { EspalierError } from "@espalier/common";
import type { ExchangeOutcome } from "@espalier/proxy";

/** Nginx's 499 stands for a client that went away, in metrics only. */
const clientClosedStatus = 499;

/** The status that metrics have for a request. @param error what the client got, where there was one */
export function outcomeStatus(outcome: ExchangeOutcome, error: EspalierError | undefined): number {
  if (outcome.kind === "completed") return outcome.status;
  if (outcome.kind === "client_closed") return clientClosedStatus;
  return (error ?? (outcome.kind === "failed" ? outcome.error : undefined))?.kind.status ?? 502;
}
