/**
 * Requests that two engines serve together: when that is better than one, how the two are told in the wire protocols of
 * the engines, what moving KV blocks costs, and how many engines each of the two roles needs. Pure and synchronous.
 */

export { cacheVerdict } from "./cache-verdict.ts";
export { type ChosenSignals, type ProbedPolicy, probePolicy } from "./chosen-signals.ts";
export { decideSplit, type SplitChoices, type SplitDecision } from "./decide-split.ts";
export { createDecodePolicy } from "./decode-policy.ts";
export {
  createDutyCount,
  type DutyCount,
  type DutyDecision,
  dutyBand,
  dutyHoldMs,
  dutySettleMs,
} from "./duty-count.ts";
export { isSplittable } from "./is-splittable.ts";
export { type DutyEngine, prefillDuties } from "./prefill-duties.ts";
export { createPrefillPolicy } from "./prefill-policy.ts";
export {
  balanceHalfLifeMs,
  createRoleBalance,
  promptWorkMs,
  type RoleBalance,
  type RoleBalanceOptions,
  type RoleWork,
  type ServedTokens,
} from "./role-balance.ts";
export { createRoleDuties, type RoleDuties } from "./role-duties.ts";
export { type SplitSituation, type SplitThresholdOptions, splitThreshold } from "./split-threshold.ts";
export {
  createTransferCost,
  defaultTransferCost,
  maxToldTransfers,
  type TransferCost,
  type TransferCostOptions,
} from "./transfer-cost.ts";
export { findTransferField, namesEngines, withoutTransferHeaders } from "./transfer-fields.ts";
export type { LegEdits, LegEngine, PairLegs, PairRequest, TransferProtocol } from "./transfer-protocol.ts";
export { transferProtocols } from "./transfer-protocols.ts";
export { addTransfers, isPlausibleTransfers, noTransfers, type TransferSums } from "./transfer-sums.ts";
export { transferVerdict } from "./transfer-verdict.ts";
