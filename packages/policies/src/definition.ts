import { defaultTierCredits, type TierCredits } from "./match.ts";
import type { Policy, PolicyNeeds } from "./policy.ts";

/** A numeric option of a policy. */
export interface PolicyOption {
  readonly name: string;
  readonly default: number;
  /** The allowed values, in words. */
  readonly range: string;
  readonly meaning: string;
}

/** What documents and help show of a policy. */
export interface PolicyEntry extends PolicyNeeds {
  readonly summary: string;
  /** Where the rule comes from. */
  readonly source: string;
  readonly options: readonly PolicyOption[];
  /** Whether its costs are milliseconds until the answer begins, with what that costs other requests. */
  readonly costsAreMs?: boolean;
}

/** A policy as this package knows it. */
export interface PolicyDefinition extends PolicyEntry {
  readonly options: readonly (PolicyOption & { readonly accepts: (value: number) => boolean })[];
  /** @param option returns the checked or default value of the option with this name */
  create(option: (name: string) => number): Policy;
}

/** An option with its range check. */
export type CheckedOption = PolicyDefinition["options"][number];

type Described = Pick<CheckedOption, "name" | "default" | "meaning">;

/** An option that accepts any non-negative number. */
export function amount(option: Described): CheckedOption {
  return { ...option, range: "0 or more", accepts: (value) => value >= 0 && value < Number.POSITIVE_INFINITY };
}

/** An option from 0 to 1. */
export function share(option: Described): CheckedOption {
  return { ...option, range: "a number from 0 to 1", accepts: (value) => value >= 0 && value <= 1 };
}

/** For policies that count in tokens. */
export const foreignRequestTokens = amount({
  name: "foreign-request-tokens",
  default: 1_024,
  meaning: "Assumed size of a queued request from a client outside the fleet, in tokens.",
});

/** For policies that hash to a ring. */
export const ringOptions: readonly CheckedOption[] = [
  {
    name: "load-factor",
    default: 1.25,
    range: "0, or 1 or more",
    accepts: (value) => value === 0 || (value >= 1 && value < Number.POSITIVE_INFINITY),
    meaning: "Maximum requests in flight of an engine, as a multiple of its even share; 0 removes the bound.",
  },
  {
    name: "points-per-weight",
    default: 160,
    range: "a whole number from 1 to 4096",
    accepts: (value) => Number.isInteger(value) && value >= 1 && value <= 4_096,
    meaning: "Points on the ring for an engine of weight 1. More points distribute keys more evenly.",
  },
];

/**
 * For policies that read matches. Bringing blocks back from slower tiers takes part of the time that computing them
 * would.
 */
export const tierCreditOptions: readonly CheckedOption[] = [
  share({
    name: "cpu-credit",
    default: defaultTierCredits.cpu,
    meaning: "Value of a matched token in an engine's CPU memory, relative to one in its GPU.",
  }),
  share({
    name: "disk-credit",
    default: defaultTierCredits.disk,
    meaning: "Value of a matched token on an engine's disk, relative to one in its GPU.",
  }),
  share({
    name: "external-credit",
    default: defaultTierCredits.external,
    meaning: "Value of a matched token in a pool outside the engine, relative to one in its GPU.",
  }),
];

/** The same for policies that learn how long fetching takes. */
export const believedCreditOptions: readonly CheckedOption[] = tierCreditOptions.map((option) => ({
  ...option,
  meaning: `${option.meaning} Used until transfer times are learned.`,
}));

export function tierCredits(option: (name: string) => number): TierCredits {
  return { cpu: option("cpu-credit"), disk: option("disk-credit"), external: option("external-credit") };
}
