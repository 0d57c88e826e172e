/**
 * Pure scorers and pickers, and the named routing policies built from them. Filters narrow the candidates, the weighted
 * sum of scorers is each candidate's cost, and a picker takes one.
 */
export { createPolicyWithout, defaultPolicyParts } from "./ablation.ts";
export {
  adapterState,
  type CandidateColumn,
  type CandidateSet,
  createCandidateSet,
  maxCandidates,
} from "./candidates.ts";
export { composePolicy, type PolicyParts } from "./compose-policy.ts";
export { type CreatePolicyOptions, createPolicy, policyCatalogue, policyNames } from "./create-policy.ts";
export {
  type CustomPolicies,
  type CustomPolicy,
  composeCustomPolicy,
  maxCustomPolicies,
  type PolicyFailed,
} from "./custom-policy.ts";
export type { Decision, Filter, MutableChoice, Picker, PickerExplanation, Scorer, Term } from "./decision.ts";
export type { PolicyEntry, PolicyOption } from "./definition.ts";
export { hashString } from "./hash.ts";
export { requestLoad } from "./load.ts";
export { defaultTierCredits, matchedInAll } from "./match.ts";
export {
  compareWith,
  defaultObjectives,
  noObjectives,
  type Objectives,
  type ObjectivesResult,
  timePerOutputTokenMs,
} from "./objectives.ts";
export { createHashRing, type HashRing, maxIdlePoints, maxPointsPerCandidate } from "./pickers/hash-ring.ts";
export { createLeastCostPicker } from "./pickers/least-cost.ts";
export { betterOfTwo, maxRotationSlots } from "./policies/basic-policies.ts";
export type {
  Choice,
  ChoiceReason,
  ExplainedCandidate,
  Explanation,
  Judgement,
  Policy,
  PolicyName,
  PolicyNeeds,
  RequestFeatures,
} from "./policy.ts";
export { planPulls, pullSetupMs } from "./pulls.ts";
export { maxColdSlots } from "./scorers/cold-order.ts";
export { prefillMs } from "./scorers/prefill-time.ts";
export { weightedOnly } from "./weights.ts";
