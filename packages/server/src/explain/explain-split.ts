import { explainingPolicy } from "@espalier/routing";
import type { PlannedRequest } from "../data-plane/planned-request.ts";
import type { RouterContext } from "../data-plane/router-context.ts";
import { choosePair } from "../disaggregation/choose-pair.ts";
import type { SplitReason } from "../disaggregation/split-metrics.ts";

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
export function explainSplit(context: RouterContext, plan: PlannedRequest): SplitReport | undefined {
  if (!plan.targets.some(({ engine }) => engine.kvTransfer)) return undefined;
  const { split, quietSelector } = context;
  const quiet: RouterContext = {
    ...context,
    selector: quietSelector,
    split: { ...split, metrics: { ...split.metrics, threshold() {} } },
  };
  const pool = { ...plan.pool, policy: explainingPolicy(plan.pool.policy) };
  const chosen = choosePair(quiet, { ...plan, pool }, noneTried);
  const { reason } = chosen;
  if (!chosen.protocol) return { reason, pair: null, thresholdTokens: null };
  const { protocol, prefill, decode, thresholdTokens } = chosen;
  return {
    reason,
    pair: { protocol: protocol.name, prefill: prefill.target.key, decode: decode.target.key },
    thresholdTokens,
  };
}
