import { silentMeter } from "@espalier/common";
import { createSplitMetrics, explainingPolicy, type SplitReason } from "@espalier/routing";
import type { RouterContext } from "../data-plane/router-context.ts";
import type { PlannedRequest } from "../request/planned-request.ts";

/** Whether two engines would serve a request, in a pool whose engines hand over KV blocks. */
export interface SplitReport {
  readonly reason: SplitReason;
  /** The protocol and the targets of both sides; null where one engine serves it. */
  readonly pair: { readonly protocol: string; readonly prefill: string; readonly decode: string } | null;
  /** Uncached tokens from which on it would be split; null where none were reckoned. */
  readonly thresholdTokens: number | null;
}

const noneTried = { any: new Set<string>(), prefill: new Set<string>() };

/** @returns undefined in a pool where no engine hands over anything */
export function explainSplit(context: Pick<RouterContext, "split">, plan: PlannedRequest): SplitReport | undefined {
  if (!plan.targets.some(({ engine }) => engine.kvTransfer)) return undefined;
  const planner = context.split.planner.quiet(createSplitMetrics(silentMeter));
  const pool = { ...plan.pool, policy: explainingPolicy(plan.pool.policy) };
  const chosen = planner.choose({ ...plan, pool }, noneTried);
  const { reason } = chosen;
  if (!chosen.protocol) return { reason, pair: null, thresholdTokens: null };
  const { protocol, prefill, decode, thresholdTokens } = chosen;
  return {
    reason,
    pair: { protocol: protocol.name, prefill: prefill.target.key, decode: decode.target.key },
    thresholdTokens,
  };
}
