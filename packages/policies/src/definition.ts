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
  meaning: "What a queued request of a client outside the fleet is taken to weigh, in tokens.",
});

/** For policies that hash to a ring. */
export const ringOptions: readonly CheckedOption[] = [
  {
    name: "load-factor",
    default: 1.25,
    range: "0, or 1 or more",
    accepts: (value) => value === 0 || (value >= 1 && value < Number.POSITIVE_INFINITY),
    meaning: "How far above its even share of the requests in flight an engine may go; 0 removes the bound.",
  },
  {
    name: "points-per-weight",
    default: 160,
    range: "a whole number from 1 to 4096",
    accepts: (value) => Number.isInteger(value) && value >= 1 && value <= 4_096,
    meaning: "Points on the ring of an engine of weight 1. More points spread the keys more evenly.",
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
    meaning: "What a matched token in an engine's CPU memory is worth, as a share of one in its GPU.",
  }),
  share({ name: "disk-credit", default: defaultTierCredits.disk, meaning: "The same for one on an engine's disk." }),
  share({
    name: "external-credit",
    default: defaultTierCredits.external,
    meaning: "The same for one in a pool outside the engine.",
  }),
];

/** The same for policies that learn how long fetching takes. */
export const believedCreditOptions: readonly CheckedOption[] = tierCreditOptions.map((option) => ({
  ...option,
  meaning: `${option.meaning} Believed until it is learned.`,
}));

export function tierCredits(option: (name: string) => number): TierCredits {
  return { cpu: option("cpu-credit"), disk: option("disk-credit"), external: option("external-credit") };
}
