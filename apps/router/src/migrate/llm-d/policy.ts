import { isJsonObject } from "@espalier/core";
import type { policyCatalogue } from "@espalier/policies";
import type { Path } from "@espalier/server";
import type { Translation } from "../translation.ts";
import type { LlmdConfig, LlmdPlugin, LlmdProfile } from "./read-config.ts";

type PolicyName = keyof typeof policyCatalogue;

/** Largest weight of a scorer. */
const maxWeight = 1_000_000;
/** Options of `epp_weighted` that weigh something unless they are set. */
const standardWeights = ["queue-weight", "kv-cache-utilization-weight", "prefix-cache-weight"];
const disaggregationHandlers = ["disagg-profile-handler", "pd-profile-handler"];
const defaultDecider = "prefix-based-pd-decider";
/** More uncached tokens than a prompt has. */
const neverTokens = 10_000_000;
const threshold = "disaggregation.threshold-tokens";

const disaggregationHandler = ({ plugins }: LlmdConfig): LlmdPlugin | undefined =>
  plugins.find(({ type }) => disaggregationHandlers.includes(type));

/** The profile that chooses where a request goes: the one for decode, where prefill has its own. */
export function mainProfile(config: LlmdConfig): LlmdProfile | undefined {
  const handler = disaggregationHandler(config) ?? config.plugins.find(({ type }) => type === "header-profile-handler");
  const { profiles, decodeProfile, defaultProfile } = handler?.parameters ?? {};
  const names = [isJsonObject(profiles) ? profiles.decode : undefined, decodeProfile, defaultProfile, "decode"];
  const found = names.flatMap((name) => config.profiles.find((profile) => profile.name === name) ?? []);
  return (handler ? found[0] : undefined) ?? config.profiles[0];
}

/** The policy that comes closest to a profile; undefined when nothing is known of how it chooses. */
function policyOf(profile: LlmdProfile): PolicyName | undefined {
  const types = profile.plugins.map(({ plugin }) => plugin.type);
  const has = (...wanted: readonly string[]): boolean => wanted.some((type) => types.includes(type));
  const predicts = profile.plugins.some(({ plugin }) => plugin.parameters.ttftSource === "latencyPredictor");
  const weighed = profile.plugins.flatMap(({ plugin }) => plugin.rule?.weight ?? []);
  const looksAtCaches = weighed.includes("prefix-cache-weight");
  if (has("latency-scorer", "slo-headroom-tier-filter") || predicts) return "predicted_latency";
  if (has("session-affinity-filter")) return "sticky";
  if (has("prefix-cache-affinity-filter")) return "affinity_filter";
  if (has("random-picker")) return "random";
  if (has("session-affinity-scorer") && !looksAtCaches) return "sticky";
  if (weighed.length > 0) return "epp_weighted";
  const isUnknown = ({ rule }: LlmdPlugin): boolean =>
    rule === undefined || (rule.kind === "scorer" && rule.ours === undefined);
  return profile.plugins.some(({ plugin }) => isUnknown(plugin)) ? undefined : "random";
}

/** Sets the policy with the weights of the profile's scorers. */
export function translatePolicy(config: LlmdConfig, translation: Translation): void {
  const profile = mainProfile(config);
  const policy = profile && policyOf(profile);
  if (!profile || policy === undefined) return;
  translation.set("policy.name", policy);
  const hasScorer = profile.plugins.some(({ plugin }) => plugin.rule?.kind === "scorer");
  if (policy === "random" && !hasScorer) {
    translation.remark({
      theirs: profile.path.length === 0 ? "schedulingProfiles" : profile.path,
      outcome: "same",
      ours: "`policy: random`, there being no scorer",
    });
  }
  for (const { plugin, weight, path } of profile.plugins) {
    const { weight: option, factor = 1 } = plugin.rule ?? {};
    if (option !== undefined) addWeight(plugin, { option, factor }, { weight, path, policy }, translation);
  }
  if (policy !== "epp_weighted") return;
  for (const option of standardWeights) translation.set(`policy.${option}`, 0);
}

/** Scorers that are one here are added. */
function addWeight(
  plugin: LlmdPlugin,
  { option, factor }: { readonly option: string; readonly factor: number },
  { weight, path, policy }: { readonly weight: number; readonly path: Path; readonly policy: string },
  translation: Translation,
): void {
  const theirs = path.length === 0 ? plugin.name : path;
  if (policy !== "epp_weighted") {
    const isPart = policy === "affinity_filter" && option === "token-load-weight";
    if (isPart) translation.remark({ theirs, plugin, outcome: "same", ours: "part of `policy: affinity_filter`" });
    else {
      translation.missing(
        theirs,
        `\`policy: ${policy}\` weighs no scores`,
        "nothing, or `policy: epp_weighted` with the weights alone",
        plugin,
      );
    }
    return;
  }
  const before = translation.get(`policy.${option}`);
  const sum = (typeof before === "number" ? before : 0) + weight * factor;
  if (weight < 0 || sum > maxWeight) {
    translation.missing(theirs, `its weight is not from 0 to ${maxWeight}`, `set \`policy.${option}\``, plugin);
    return;
  }
  const policySection = translation.settings.policy as Record<string, unknown>;
  policySection[option] = sum;
  translation.remark({
    theirs,
    plugin,
    outcome: before === undefined ? "same" : "differs",
    ours: `\`policy.${option}: ${sum}\``,
    ...(before === undefined ? {} : { why: "the weights of two scorers are added, being one here" }),
  });
}

/** Translates when a prompt is computed by another engine than its answer. */
export function translateDisaggregation(config: LlmdConfig, translation: Translation): void {
  const handler = disaggregationHandler(config);
  if (!handler) return;
  const { deciders, prefillDeciderPluginName, deciderPluginName } = handler.parameters;
  const standard = handler.type === "pd-profile-handler" ? defaultDecider : undefined;
  const written = isJsonObject(deciders) ? deciders.prefill : undefined;
  const name = written ?? prefillDeciderPluginName ?? deciderPluginName ?? standard;
  const theirs = [...(handler.path ?? []), "parameters", "deciders"];
  const decider = typeof name === "string" ? config.find(name) : undefined;
  if (name !== undefined && decider?.rule === undefined) {
    translation.missing(
      theirs,
      `${String(name)} is an unknown decider`,
      `\`${threshold}\`, or nothing: the router computes it for each request`,
      handler,
    );
    return;
  }
  const { nonCachedTokens = 0 } = decider?.parameters ?? {};
  const isAlways = decider?.type === "always-disagg-pd-decider";
  const tokens = isAlways ? 1 : nonCachedTokens;
  if (tokens === 0) {
    translation.set(threshold, neverTokens);
    translation.remark({
      theirs,
      plugin: handler,
      outcome: "same",
      ours: `\`${threshold}: ${neverTokens}\`: no prompt is split`,
    });
    return;
  }
  const from = isAlways ? (decider.path ?? theirs) : [...(decider?.path ?? []), "parameters", "nonCachedTokens"];
  translation.translateNumber(threshold, tokens, { theirs: from, plugin: decider ?? handler });
}
