import { scenario } from "@espalier/simulator";
import { UsageError } from "../commands/read-flags.ts";
import type { RunJob } from "./run-job.ts";
import { maxPlannedRuns } from "./run-plan.ts";

/** One fleet under one load, in which all policies are compared. */
export interface WorstCase {
  readonly scenario: string;
  readonly variant?: string;
  /** Of the load, in place of the variant's or the scenario's own. */
  readonly scale?: number;
  /** What the scale is, as a share of the knee, for names. */
  readonly load?: number;
  /** Ends sending; the scenario's own end when both are left out. */
  readonly requests?: number;
  readonly durationS?: number;
  /** In place of these in a quick run, which leaves out cases without it. */
  readonly quick?: { readonly requests?: number; readonly durationS?: number };
}

/** Of `least_work` on the trace with 8 engines of 3.15 M tokens, whose knee is 9.38 times its speed. */
const conversationKnee = 9.38;
/** Of `predicted_latency`, by `espalier simulate toolagent --load 0.5 --links delays --duration 60s`. */
const toolagentKnee = 16.5;

const ofConversation = (load: number): WorstCase => ({
  ...{ scenario: "mooncake-conversation", variant: "8x3.15M", load, scale: load * conversationKnee },
  requests: 3_000,
});

const ofToolagent = (load: number): WorstCase => ({
  ...{ scenario: "toolagent", load, scale: load * toolagentKnee },
  requests: 3_000,
});

/**
 * All that policies are judged by. Runs are as short as they may be for what goes wrong to show: engines pile up what a
 * wrong policy sends them in some tens of seconds, and a p99 wants two thousand requests: of a thousand it is the tenth
 * worst, and eight engines that hold nothing yet make eight of those whatever the policy does.
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
];

/** What a case is called in rows. */
export function nameOf({ scenario, variant, load }: WorstCase): string {
  const named = variant === undefined ? scenario : `${scenario} ${variant}`;
  return load === undefined ? named : `${named} at ${load}`;
}

/** Which part of the plan is asked for. */
export interface WorstCaseSelection {
  readonly policies: readonly string[];
  readonly routers: readonly number[];
  readonly seeds: number;
  readonly isQuick: boolean;
  /** Scenarios; all when undefined. */
  readonly only: readonly string[] | undefined;
}

/** A run, and the case that it belongs to. */
interface WorstCaseJob {
  readonly name: string;
  readonly job: RunJob;
}

/** The part of the plan that a selection asks for. */
export function casesOf({ isQuick, only }: WorstCaseSelection, plan: readonly WorstCase[]): readonly WorstCase[] {
  return plan.filter(
    (one) => (only === undefined || only.includes(one.scenario)) && (!isQuick || one.quick !== undefined),
  );
}

/** Where the trace of a scenario is; undefined for one that makes its own requests. */
export type TraceOf = (scenario: string) => string | undefined;

/**
 * The runs of cases, in an order in which whatever has been made when it is stopped can be compared: seed after seed of
 * each case, in each all policies.
 *
 * @throws UsageError for more than 5,000 runs
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
    };
    return Array.from({ length: seeds }, (_, at) => at + 1).flatMap((seed) =>
      routers.flatMap((count) =>
        policies.map((policy) => ({ name: nameOf(one), job: { ...base, policy, routers: count, seed } })),
      ),
    );
  });
}
