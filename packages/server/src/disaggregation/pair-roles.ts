import { type TransferProtocol, transferProtocols } from "@espalier/disaggregation";
import type { Target } from "@espalier/workers";

type EngineOf = Pick<Target["engine"], "role" | "kvTransfer">;

/** The protocol by which an engine hands over KV blocks; undefined when it does not. */
export function protocolOf({ kvTransfer }: EngineOf): TransferProtocol | undefined {
  return kvTransfer && transferProtocols[kvTransfer.protocol];
}

/** Whether a target can serve a request that no other engine has a part in. */
export function servesAlone({ engine }: { readonly engine: EngineOf }): boolean {
  if (engine.role === "prefill") return false;
  return engine.role === "both" || (protocolOf(engine)?.decodesAlone ?? true);
}

/** Whether an engine can be the side of a pair that a role stands for. */
export function takesSide(engine: EngineOf, side: "prefill" | "decode"): boolean {
  return engine.role === side || (engine.role === "both" && (protocolOf(engine)?.pairsBoth ?? false));
}
