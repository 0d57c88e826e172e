import type { EngineRole } from "@espalier/core";
import { createOpenLoop } from "../clients/loops.ts";
import { type LengthParameters, lengthScripts } from "../clients/scripts.ts";
import { limitsOf, type Scenario, type ScenarioVariant } from "./scenario.ts";

interface PdMix {
  readonly summary: string;
  readonly lengths: LengthParameters;
  /** The highest rate that the fleet sustains, measured as its knee with `least_work`. */
  readonly ratePerS: number;
}

const output = { least: 100, most: 1_000 } as const;

export const pdMixParameters = {
  mixes: {
    "pd-mix": {
      summary: "Prompts of 1,000 to 100,000 tokens, answers of 100 to 1,000",
      lengths: { inputTokens: { least: 1_000, most: 100_000 }, outputTokens: output },
      ratePerS: 2.2,
    },
    "pd-mix-long-in": {
      summary: "Prompts of 10,000 to 100,000 tokens, answers of 100 to 200",
      lengths: { inputTokens: { least: 10_000, most: 100_000 }, outputTokens: { least: 100, most: 200 } },
      ratePerS: 1.1,
    },
    "pd-mix-long-out": {
      summary: "Prompts of 1,000 to 10,000 tokens, answers of 500 to 1,000",
      lengths: { inputTokens: { least: 1_000, most: 10_000 }, outputTokens: { least: 500, most: 1_000 } },
      ratePerS: 11.5,
    },
  } as Readonly<Record<string, PdMix>>,
  roles: ["prefill", "prefill", "decode", "decode", "both", "both", "both", "both"],
  /** A link of 400 Gbit/s, used to four fifths, and the hand-shake (both estimates). */
  split: { setupMs: 10, bytesPerS: 4e10 },
  /** In tokens; `dynamic` follows the load. */
  thresholds: {
    dynamic: undefined,
    always: 0,
    2048: 2_048,
    4096: 4_096,
    8192: 8_192,
    16384: 16_384,
    never: Number.POSITIVE_INFINITY,
  } as Readonly<Record<string, number | undefined>>,
  /** All engines without a fixed role, or fixed numbers of prefill-only engines. */
  roleSplits: {
    flexible: 0,
    "1-to-7": 1,
    "2-to-6": 2,
    "3-to-5": 3,
    "4-to-4": 4,
    "5-to-3": 5,
    "6-to-2": 6,
    "7-to-1": 7,
  } as Readonly<Record<string, number>>,
  /** Shares of the rates. */
  loads: [0.5, 0.85],
  durationS: 300,
} as const;

const { mixes, roles, split, thresholds, roleSplits, loads, durationS } = pdMixParameters;

const rolesBySplit: Readonly<Record<string, readonly EngineRole[]>> = Object.fromEntries(
  Object.entries(roleSplits).map(([name, prefill]) => [
    name,
    Array.from(roles, (_, at): EngineRole => (prefill === 0 ? "both" : at < prefill ? "prefill" : "decode")),
  ]),
);

const variants: readonly ScenarioVariant[] = loads.flatMap((scale) => [
  ...Object.entries(thresholds).map(([name, splitTokens]) => ({
    ...{ name: `${name}-${scale}`, scale },
    ...(splitTokens !== undefined && { splitTokens }),
  })),
  ...Object.entries(rolesBySplit).map(([name, roles]) => ({ name: `${name}-${scale}`, scale, roles })),
  { name: `applied-${scale}`, scale, roles: [], appliesBalance: true },
  // Eight engines that each do everything.
  { name: `unsplit-${scale}`, scale, roles: [], splitTokens: Number.POSITIVE_INFINITY },
]);

/** Requests that two engines may serve: the prompt length from which they should, by mix and load. */
export const pdMixes: readonly Scenario[] = Object.entries(mixes).map(([name, { summary, lengths, ratePerS }]) => ({
  name,
  summary: `${summary}; 2 engines prefill, 2 decode, 4 do both, and hand KV blocks to each other.`,
  fleet: { preset: "h100-70b-tp4", parameters: {}, engines: roles.length, routers: 2 },
  policies: ["least_work", "predicted_latency"],
  split: { roles, ...split },
  variants,
  published: [],
  durationS,
  isOpenLoop: true,
  createWorkload(options) {
    const { seed, scale } = options;
    return createOpenLoop({
      seed,
      startsPerS: ratePerS * scale,
      meanTurns: 1,
      scriptOf: lengthScripts(lengths, seed),
      limits: limitsOf(options, durationS),
    });
  },
}));
