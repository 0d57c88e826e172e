/**
 * Serving one request with two engines: when two are better than one, the wire protocols of KV transfer, what a
 * transfer costs, and how many engines each role needs. Pure and synchronous.
 */

export { cacheVerdict, transferVerdict } from "./answer-verdicts.ts";
export {
  decideSplit,
  isSplittable,
  type SplitChoices,
  type SplitThresholdOptions,
  splitThreshold,
} from "./decide-split.ts";
export { createDecodePolicy, createPrefillPolicy, type ProbedPolicy, probePolicy } from "./pair-policies.ts";
export { pullProtocols } from "./pull-protocols.ts";
export {
  choosePrefillEngines,
  createPrefillCount,
  createRoleAssignment,
  type PrefillCountDecision,
  prefillCountBand,
  prefillCountHoldMs,
  prefillCountSettleMs,
  type RoleAssignment,
} from "./role-assignment.ts";
export { balanceHalfLifeMs, createRoleBalance, promptWorkMs, type RoleBalance, type RoleWork } from "./role-balance.ts";
export {
  addTransfers,
  createTransferCost,
  defaultTransferCost,
  isPlausibleTransfers,
  maxPeerTransfers,
  noTransfers,
  type TransferCost,
  type TransferSums,
} from "./transfer-cost.ts";
export {
  findTransferField,
  namesEngines,
  renderReservedDocs,
  reservedFieldNames,
  reservedWithinNames,
  transferHeaderNames,
} from "./transfer-fields.ts";
export type { LegEdits, LegEngine, PairLegs, PairRequest, TransferProtocol } from "./transfer-protocols.ts";
export { transferProtocols } from "./transfer-protocols.ts";
