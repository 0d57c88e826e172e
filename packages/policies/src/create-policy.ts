import { EspalierError } from "@espalier/core";
import { type CustomPolicies, createCustomPolicy, type PolicyFailed } from "./custom-policy.ts";
import type { CheckedOption, PolicyDefinition, PolicyEntry } from "./definition.ts";
import { affinityFilter } from "./policies/affinity-filter.ts";
import { leastConnections, leastTokens, powerOfTwo, random, roundRobin } from "./policies/basic-policies.ts";
import { cacheAware } from "./policies/cache-aware.ts";
import { dynamo } from "./policies/dynamo.ts";
import { eppWeighted } from "./policies/epp-weighted.ts";
import { consistentHashing, prefixHash } from "./policies/hash-ring-policies.ts";
import { leastWork } from "./policies/least-work.ts";
import { lmetric } from "./policies/lmetric.ts";
import { predictedLatency } from "./policies/predicted-latency.ts";
import { sticky } from "./policies/sticky.ts";
import type { Policy, PolicyName } from "./policy.ts";

const definitions: Readonly<Record<PolicyName, PolicyDefinition>> = {
  random,
  round_robin: roundRobin,
  least_connections: leastConnections,
  power_of_two: powerOfTwo,
  least_tokens: leastTokens,
  consistent_hashing: consistentHashing,
  sticky,
  prefix_hash: prefixHash,
  cache_aware: cacheAware,
  epp_weighted: eppWeighted,
  affinity_filter: affinityFilter,
  dynamo,
  lmetric,
  least_work: leastWork,
  predicted_latency: predictedLatency,
};

/** Every policy by name, for documents and help. */
export const policyCatalogue: Readonly<Record<PolicyName, PolicyEntry>> = definitions;

export const policyNames = Object.keys(definitions) as readonly PolicyName[];

/** Policies beyond those of this package. */
export interface CreatePolicyOptions {
  /** By name; none has the name of one of this package. */
  readonly custom?: CustomPolicies;
  /** Called when a custom policy threw or named no candidate, and the least loaded was taken instead. */
  readonly onFailure?: PolicyFailed;
}

/**
 * Makes a policy. A policy with state (a rotation, a ring) should serve one pool of engines.
 *
 * @param options values by option name, as `policyCatalogue` lists them; absent ones take their defaults
 * @throws EspalierError `config_invalid`, naming `policy` or `policy-options.NAME` as the parameter at fault
 */
export function createPolicy(
  name: string,
  options: Readonly<Record<string, unknown>> = {},
  { custom = {}, onFailure }: CreatePolicyOptions = {},
): Policy {
  if (Object.hasOwn(custom, name)) {
    const [option] = Object.keys(options);
    if (option !== undefined) throw invalid(option, `the policy ${name} has no such option`);
    return createCustomPolicy(name, custom[name]!, onFailure);
  }
  if (!Object.hasOwn(definitions, name)) {
    const names = [...policyNames, ...Object.keys(custom)].join(", ");
    throw new EspalierError("config_invalid", `policy: "${name}" is not one of ${names}`, { param: "policy" });
  }
  const definition = definitions[name as PolicyName];
  const policy = definition.create(readOptions(name, definition, options));
  const { readsPrefixes, readsActiveBlocks, metricsEveryMs } = definition;
  return { ...policy, readsPrefixes, readsActiveBlocks, metricsEveryMs };
}

/**
 * Checks the options of a policy.
 *
 * @returns the value of an option by its name
 * @throws EspalierError `config_invalid`
 */
export function readOptions(
  name: string,
  definition: Pick<PolicyDefinition, "options">,
  options: Readonly<Record<string, unknown>>,
): (name: string) => number {
  const values = new Map(definition.options.map((option) => [option.name, option.default]));
  for (const [optionName, value] of Object.entries(options)) {
    const option = definition.options.find((one) => one.name === optionName);
    if (option === undefined) throw invalid(optionName, `the policy ${name} has no such option`);
    const number = numberOf(option, value);
    if (number === undefined) throw invalid(optionName, `must be ${option.range}`);
    values.set(optionName, number);
  }
  return (optionName) => {
    const value = values.get(optionName);
    if (value === undefined) throw new EspalierError("internal_error", `policy ${name} lacks option ${optionName}`);
    return value;
  };
}

/** @returns undefined for an invalid value */
function numberOf({ accepts }: CheckedOption, value: unknown): number | undefined {
  return typeof value === "number" && accepts(value) ? value : undefined;
}

function invalid(optionName: string, problem: string): EspalierError {
  const param = `policy-options.${optionName}`;
  return new EspalierError("config_invalid", `${param}: ${problem}`, { param });
}
