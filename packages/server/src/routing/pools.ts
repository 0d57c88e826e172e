import { createSeededRandom } from "@espalier/core";
import { type CreatePolicyOptions, createPolicy, type Objectives, type Policy } from "@espalier/policies";
import type { PoolWork } from "@espalier/routing";
import type { AdmissionConfig, CompiledConfig, PoolConfig } from "../config/index.ts";
import type { PoolSettings } from "../request/planned-request.ts";

export interface Pools {
  /**
   * The settings of a model's pool, created on first use. Returns the same object from then on, also after a reload.
   */
  settingsFor(model: string): PoolSettings;
  /** The pools that there are. */
  all(): Iterable<PoolSettings>;
  /** Whether requests for a model wait while no engine serves it: its rule names it in full, and holds requests. */
  isHeld(model: string): boolean;
  /** Whether requests for any model may wait so. */
  readonly hasHeld: boolean;
  /** Replaces the rules. A pool whose policy settings are unchanged keeps its policy and the policy's state. */
  replaceRules(rules: readonly PoolRule[]): void;
  /** Scrape interval that the policies of these models ask for; undefined when none does. */
  metricsEveryMs(models: readonly string[]): number | undefined;
}

export interface PoolRule {
  /** Model names; `*` matches any run of characters. */
  readonly models: readonly string[];
  /** Settings of the policy as text: equal texts mean equal policies. */
  readonly policyText: string;
  readonly createPolicy: () => Policy;
  /** From the policy's definition. */
  readonly metricsEveryMs?: number | undefined;
  readonly upstreamHeaders: readonly string[];
  readonly forwardAuthorization: boolean;
  readonly holdMs: number;
  readonly objectivesOf: PoolSettings["objectivesOf"];
  readonly defaultClass: string;
}

/** Most pools. Further models, which only a changing fleet can name, share the pool `*`. */
export const maxPools = 1_024;

/**
 * @param rules the first one with a matching pattern applies; the last one must match every model
 * @param workOf the learned service times of a model's engines; asked each time, as they may turn out to be another's
 */
export function createPools(rules: readonly PoolRule[], workOf: (model: string) => PoolWork): Pools {
  let matchRule = ruleMatcher(rules);
  let hasPace = rules.some(({ metricsEveryMs }) => metricsEveryMs !== undefined);
  let hasHeld = rules.some(({ holdMs }) => holdMs > 0);
  const pools = new Map<string, Pool>();

  const create = (model: string, rule: PoolRule): Pool => {
    const created: Pool = {
      model,
      get work() {
        return workOf(model);
      },
      policy: rule.createPolicy(),
      ...ownSettings(rule),
    };
    pools.set(model, created);
    return created;
  };
  return {
    settingsFor(model) {
      const known = pools.get(model);
      if (known) return known;
      if (pools.size < maxPools) return create(model, matchRule(model));
      return pools.get("*") ?? create("*", matchRule("*"));
    },
    all: () => pools.values(),
    isHeld(model) {
      const { models, holdMs } = matchRule(model);
      return holdMs > 0 && models.includes(model);
    },
    get hasHeld() {
      return hasHeld;
    },
    replaceRules(next) {
      matchRule = ruleMatcher(next);
      hasPace = next.some(({ metricsEveryMs }) => metricsEveryMs !== undefined);
      hasHeld = next.some(({ holdMs }) => holdMs > 0);
      for (const pool of pools.values()) {
        const rule = matchRule(pool.model);
        if (rule.policyText !== pool.policyText) pool.policy = rule.createPolicy();
        Object.assign(pool, ownSettings(rule));
      }
    },
    metricsEveryMs(models) {
      if (!hasPace) return undefined;
      const paces = models.flatMap((model) => matchRule(model).metricsEveryMs ?? []);
      return paces.length > 0 ? Math.min(...paces) : undefined;
    },
  };
}

interface Pool extends PoolSettings {
  policy: Policy;
  readonly policyText: string;
}

function ownSettings(rule: PoolRule) {
  const { policyText, upstreamHeaders, forwardAuthorization, holdMs, objectivesOf, defaultClass } = rule;
  return { policyText, upstreamHeaders, forwardAuthorization, holdMs, objectivesOf, defaultClass };
}

function ruleMatcher(rules: readonly PoolRule[]): (model: string) => PoolRule {
  const compiled = rules.map((rule) => ({ rule, patterns: rule.models.map(globPattern) }));
  const fallback = rules.at(-1);
  if (!fallback) throw new RangeError("at least one pool rule is required");
  return (model) => compiled.find(({ patterns }) => patterns.some((pattern) => pattern.test(model)))?.rule ?? fallback;
}

/** A pattern in which `*` matches any run of characters and all else matches itself. */
export function globPattern(glob: string): RegExp {
  return new RegExp(`^${glob.split("*").map(escapePattern).join(".*")}$`);
}

function escapePattern(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}

/**
 * The rules of a configuration, then one for all other models. Creates each policy once, so that a bad option is found
 * at the start and not at the first request.
 *
 * @param custom policies beyond the catalogue's
 * @throws EspalierError `config_invalid`
 */
export function poolRules(
  { pools, policy, slo, admission }: Pick<CompiledConfig, "pools" | "policy" | "slo" | "admission">,
  custom: CreatePolicyOptions = {},
): readonly PoolRule[] {
  const general: PoolConfig = {
    models: ["*"],
    policy,
    engineApiKey: undefined,
    forwardAuthorization: false,
    scaleFromZero: { holdMs: 0 },
    slo: undefined,
  };
  return [...pools, general].map((pool) => {
    const { name, seed, options } = pool.policy;
    const create = () => withSeed(createPolicy(name, options, custom), seed);
    return {
      models: pool.models,
      policyText: JSON.stringify(pool.policy),
      createPolicy: create,
      metricsEveryMs: create().metricsEveryMs,
      upstreamHeaders: pool.engineApiKey ? ["authorization", `Bearer ${pool.engineApiKey.reveal()}`] : [],
      forwardAuthorization: pool.forwardAuthorization,
      holdMs: pool.scaleFromZero.holdMs,
      objectivesOf: objectivesByClass(admission, withOwn(slo, pool.slo)),
      defaultClass: admission.mode === "off" ? "" : admission.defaultClass,
    };
  });
}

/** A policy whose choices draw from a source of their own. Explanations and dry runs draw nothing. */
function withSeed(policy: Policy, seed: number | undefined): Policy {
  if (seed === undefined) return policy;
  const random = createSeededRandom(seed);
  return { ...policy, choose: (request, candidates) => policy.choose(request, candidates, random) };
}

/** Without admission no request has a class. */
function objectivesByClass(
  { mode, classes, defaultClass }: AdmissionConfig,
  otherwise: Objectives,
): PoolSettings["objectivesOf"] {
  if (mode === "off") return () => otherwise;
  const byClass = new Map(classes.map(({ name, slo }) => [name, withOwn(otherwise, slo)]));
  return (className = defaultClass) => byClass.get(className) ?? otherwise;
}

function withOwn({ ttftMs, tpotMs }: Objectives, own: PoolConfig["slo"]): Objectives {
  return { ttftMs: own?.ttftMs ?? ttftMs, tpotMs: own?.tpotMs ?? tpotMs };
}
