import { parseArgs } from "node:util";
import { systemClock } from "@espalier/core";
import { type PolicyName, policyNames } from "@espalier/policies";
import { formatTable } from "@espalier/simulator";
import { type Figures, summarizeRuns } from "../support/median-spread.ts";
import { readWhole } from "../support/read-options.ts";
import type { BenchReport, Suite } from "../support/suite.ts";
import { UsageError } from "../support/usage-error.ts";
import { betweenDecisionsMs, blockSize, branchEvery, otherRouters, placedEvery } from "./scoring-fleet.ts";
import { plainPolicy, runScoringOnce, type ScoringRun, type ScoringSizes, usualShapes } from "./scoring-run.ts";

const usualPolicies: readonly PolicyName[] = ["cache_aware", "epp_weighted"];
const maxDecisions = 1_000_000;

const help = `Usage: npm run bench -- scoring [options]

Decisions by themselves, of prompts whose hashes are given: the look-up in an index that each of 96 or 1,000 engines has
to another depth, the candidates with their load and that of ${otherRouters} other routers, the policy. ${plainPolicy} has the plain
figures; beside it the same decision by a Map of Sets, objects and a sort.

  --decisions N     of each prompt size, fleet and policy (2,000)
  --runs N          runs, of which the medians count (3)
  --policy P,P      measured besides (${usualPolicies.join(",")})
  --quick           one short run
  --json            one JSON object on standard output
`;

interface ScoringOptions {
  readonly runs: number;
  readonly sizes: ScoringSizes;
}

/** How much of a router's one core a decision takes, and how much garbage it leaves. */
export const scoringSuite: Suite = {
  name: "scoring",
  summary: "one decision among 96 and 1,000 engines, beside a Map of Sets and a sort",
  help,
  run(args, note) {
    const { runs: wanted, sizes } = readOptions(args);
    const runs: ScoringRun[] = [];
    for (let index = 0; index < wanted; index++) {
      const run = runScoringOnce(sizes, { clock: systemClock, seed: index + 1 });
      runs.push(run);
      note(`run ${index + 1} of ${wanted}: ${(run.espalier.decision_12k_x96_us_p50 ?? 0).toFixed(1)} us among 96`);
    }
    return Promise.resolve({ report: scoringReport(runs, sizes), table: scoringTable });
  },
};

/** @throws UsageError */
function readOptions(args: readonly string[]): ScoringOptions {
  const { values } = parseArgs({
    args: [...args],
    options: {
      decisions: { type: "string" },
      runs: { type: "string" },
      policy: { type: "string" },
      quick: { type: "boolean" },
    },
  });
  const quick = values.quick === true;
  const decisions = readWhole("--decisions", values.decisions, { standard: quick ? 100 : 2_000, max: maxDecisions });
  const runs = readWhole("--runs", values.runs, { standard: quick ? 1 : 3, max: 100 });
  const policies = values.policy === undefined ? usualPolicies : values.policy.split(",").map(readPolicy);
  const sizes = {
    decisions,
    naiveDecisions: Math.max(10, Math.floor(decisions / 100)),
    shapes: usualShapes,
    otherBlocks: quick ? 20_000 : 500_000,
    policies: policies.filter((policy) => policy !== plainPolicy),
  };
  return { runs, sizes };
}

function readPolicy(text: string): PolicyName {
  const known = policyNames.find((name) => name === text);
  if (known) return known;
  throw new UsageError(`--policy knows no ${JSON.stringify(text)}; there are ${policyNames.join(", ")}`);
}

/** Joins runs into medians. */
export function scoringReport(runs: readonly ScoringRun[], sizes: ScoringSizes): BenchReport {
  const espalier = summarizeRuns(runs.map((run) => run.espalier));
  const naive = summarizeRuns(runs.map((run) => run.naive));
  return {
    name: "scoring",
    params: {
      runs: runs.length,
      policy: plainPolicy,
      policies: sizes.policies.join(","),
      decisions: sizes.decisions,
      naive_decisions: sizes.naiveDecisions,
      other_blocks: sizes.otherBlocks,
      block_size: blockSize,
      branch_every: branchEvery,
      placed_every: placedEvery,
      other_routers: otherRouters,
      between_decisions_ms: betweenDecisionsMs,
    },
    metrics: espalier.medians,
    baselines: { naive: naive.medians },
    spread: { espalier: espalier.spread, naive: naive.spread },
    shares: [],
    warnings: [],
  };
}

/** The report for a terminal: medians, followed by the extremes of the runs. */
export function scoringTable({ metrics, baselines, spread }: BenchReport): string {
  const figures: Readonly<Record<string, Figures | undefined>> = { espalier: metrics, ...baselines };
  const cell = (system: string, figure: string): string | undefined => {
    const median = figures[system]?.[figure];
    const extremes = spread[system]?.[figure];
    if (median === undefined || !extremes) return undefined;
    return `${median.toFixed(1)} (${extremes.min.toFixed(1)} .. ${extremes.max.toFixed(1)})`;
  };
  return formatTable(Object.keys(metrics), [
    { header: "figure", value: (figure) => figure },
    { header: "espalier", value: (figure) => cell("espalier", figure) },
    { header: "naive", value: (figure) => cell("naive", figure) },
  ]);
}
