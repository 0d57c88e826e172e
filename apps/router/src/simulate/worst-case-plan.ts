import { scenario } from "@espalier/simulator";
import { UsageError } from "../cli/read-flags.ts";
import type { RunJob } from "./run-job.ts";
import { maxPlannedRuns } from "./run-plan.ts";

/** One fleet under one load, in which all policies are compared. */
export interface WorstCase {
  readonly scenario: string;
  readonly variant?: string;
  /** Scale of the load; replaces the variant's or the scenario's own. */
  readonly scale?: number;
  /** The scale as a share of the knee, for names. */
  readonly load?: number;
  /** Ends sending; the scenario's own end when both are absent. */
  readonly requests?: number;
  readonly durationS?: number;
  /** Replaces these in a quick run, which omits cases without it. */
  readonly quick?: { readonly requests?: number; readonly durationS?: number };
}

/**
 * By waiting times alone, without objectives, the knee of `least_work` on the trace with 8 engines of 3.15 M tokens is 9.38
 * times the trace's speed.
 */
const conversationKnee = 9.38;
/** By waiting times alone, of `predicted_latency` in a minute. */
const toolagentKnee = 16.5;

const ofConversation = (load: number): WorstCase => ({
  ...{ scenario: "mooncake-conversation", variant: "8x3.15M", load, scale: load * conversationKnee },
  requests: 3_000,
});

const ofToolagent = (load: number): WorstCase => ({
  ...{ scenario: "toolagent", load, scale: load * toolagentKnee },
  requests: 3_000,
});

/** A scenario whose scale 1 is near its knee, at three shares of that; a quick run has the one where policies differ most. */
const atLoads = (
  scenario: string,
  { quick, ...run }: Pick<WorstCase, "variant" | "requests" | "durationS" | "quick">,
): readonly WorstCase[] =>
  [0.5, 0.8, 0.95].map((load) => ({ scenario, ...run, load, scale: load, ...(load === 0.8 && { quick }) }));

/**
 * All cases by which policies are judged. Runs are as short as possible while failures still show. Engines pile up what
 * a wrong policy sends them within some tens of seconds. A p99 needs two thousand requests: of one thousand it is the
 * tenth worst, and eight engines with empty caches cause eight of those under any policy.
 */
export const worstCasePlan: readonly WorstCase[] = [
  { scenario: "one-prompt", variant: "30-per-s", durationS: 70, quick: { durationS: 20 } },
  { scenario: "one-prompt", variant: "30-per-s-256-slots", durationS: 70 },
  { scenario: "one-prompt", variant: "30-per-s-2k", durationS: 70 },
  { scenario: "one-prompt", variant: "120-per-s-32-engines", durationS: 20 },
  { scenario: "one-prompt", variant: "h100-32b-tp2-0k-64-slots-0.8", durationS: 40 },
  { scenario: "one-prompt", variant: "h100-32b-tp2-8k-64-slots-0.8", durationS: 95 },
  { scenario: "one-prompt", variant: "h100-32b-tp2-32k-0.8", durationS: 300 },
  { scenario: "one-prompt", variant: "a10g-7b-8k-0.8", durationS: 200 },
  { scenario: "one-prompt", variant: "b200-moe-8k-256-slots-0.8", durationS: 18 },
  { scenario: "hot-documents", durationS: 120, quick: { durationS: 30 } },
  { scenario: "hot-documents", variant: "load-1.2", durationS: 120 },
  { scenario: "long-and-short", durationS: 600, quick: { durationS: 60 } },
  { scenario: "decode-bound", durationS: 35, quick: { durationS: 12 } },
  { scenario: "bursts", durationS: 60, quick: { durationS: 8 } },
  { scenario: "mixed-engines", durationS: 150, quick: { durationS: 30 } },
  { scenario: "slow-engines", durationS: 100, quick: { durationS: 40 } },
  { scenario: "quarter-memory", durationS: 100, quick: { durationS: 40 } },
  ofConversation(0.5),
  { ...ofConversation(0.85), quick: { requests: 700 } },
  ofConversation(0.95),
  ofToolagent(0.5),
  { ...ofToolagent(0.85), quick: { requests: 800 } },
  ofToolagent(0.95),
  { scenario: "rag", durationS: 120, quick: { durationS: 40 } },
  { scenario: "a10g-8", requests: 2_000, quick: { requests: 800 } },
  { scenario: "baseten-4", quick: { requests: 400 } },
  { scenario: "agents-300", requests: 2_000, quick: { requests: 600 } },
  { scenario: "shared-prefix-150x5", requests: 1_500, quick: { requests: 400 } },
  { scenario: "sglang-prefix-groups", quick: { requests: 600 } },
  { scenario: "session-affinity", quick: { requests: 800 } },
  ...atLoads("chats-beside-long", { durationS: 90, quick: { durationS: 30 } }),
  ...atLoads("tenants", { requests: 3_000, quick: { requests: 1_000 } }),
  ...atLoads("reasoning", { durationS: 300, quick: { durationS: 120 } }),
  ...atLoads("flash-crowd", { durationS: 120, quick: { durationS: 60 } }),
  ...atLoads("uneven-engines", { durationS: 100, quick: { durationS: 30 } }),
  ...atLoads("hundred-engines", { durationS: 20, quick: { durationS: 5 } }),
  ...atLoads("few-slots", { durationS: 100, quick: { durationS: 40 } }),
  ...atLoads("short-prompts", { durationS: 10, quick: { durationS: 4 } }),
];

/** The name of a case in rows. */
export function nameOf({ scenario, variant, load }: WorstCase): string {
  const named = variant === undefined ? scenario : `${scenario} ${variant}`;
  return load === undefined ? named : `${named} at ${load}`;
}

/** The requested part of the plan. */
export interface WorstCaseSelection {
  readonly policies: readonly string[];
  readonly routers: readonly number[];
  readonly seeds: number;
  readonly isQuick: boolean;
  /** Scenarios; all when undefined. */
  readonly only: readonly string[] | undefined;
}

/** A run and its case. */
interface WorstCaseJob {
  readonly name: string;
  readonly job: RunJob;
}

/** The part of the plan that a selection requests. */
export function casesOf({ isQuick, only }: WorstCaseSelection, plan: readonly WorstCase[]): readonly WorstCase[] {
  return plan.filter(
    (one) => (only === undefined || only.includes(one.scenario)) && (!isQuick || one.quick !== undefined),
  );
}

/** Path of a scenario's trace; undefined for one that creates its own requests. */
export type TraceOf = (scenario: string) => string | undefined;

/**
 * Plans the runs of cases. The order keeps finished runs comparable when the command is stopped: case by case, seed
 * after seed, with all policies for each seed.
 *
 * @throws UsageError for more than `maxPlannedRuns` runs
 */
export function planWorstCase(
  { policies, routers, seeds, isQuick }: WorstCaseSelection,
  cases: readonly WorstCase[],
  traceOf: TraceOf,
): readonly WorstCaseJob[] {
  const count = cases.length * policies.length * routers.length * seeds;
  if (count > maxPlannedRuns) {
    throw new UsageError(`${count} runs are more than ${maxPlannedRuns}: ask for fewer policies, scenarios or seeds`);
  }
  return cases.flatMap((one) => {
    const { fleet, variants } = scenario(one.scenario);
    const variant = variants.find(({ name }) => name === one.variant);
    const { requests, durationS } = isQuick ? (one.quick ?? one) : one;
    const base: Omit<RunJob, "policy" | "routers" | "seed"> = {
      kind: "run",
      source: { name: one.scenario, trace: traceOf(one.scenario), format: undefined, fleet: undefined },
      variant: variant?.name,
      engines: variant?.engines ?? fleet.engines,
      ...{ sharing: "mesh", links: "delays", requests, durationS, admission: true },
      load: one.load,
      scale: one.scale ?? variant?.scale ?? 1,
      users: undefined,
      linkDelayMs: undefined,
      objectives: undefined,
    };
    return Array.from({ length: seeds }, (_, at) => at + 1).flatMap((seed) =>
      routers.flatMap((count) =>
        policies.map((policy) => ({ name: nameOf(one), job: { ...base, policy, routers: count, seed } })),
      ),
    );
  });
}
