import type { RequestReport } from "@espalier/engine-model";
import type { KvOffer } from "./export-board.ts";
import type { LegInput } from "./leg-input.ts";

/** The blocks of a complete request, to be offered to another engine. */
export function offerOf({ parts, sequence }: LegInput, report: RequestReport): KvOffer {
  return { tokens: sequence.prompt, release: () => parts.engine.release(report.id) };
}

/** The address under which this engine is known to the caller, IPv4 where that is hidden in IPv6. */
export function ownHost({ exchange }: LegInput): string {
  return (exchange.request.socket.localAddress ?? "127.0.0.1").replace(/^::ffff:/, "");
}
