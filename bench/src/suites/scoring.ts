import { systemClock } from "@espalier/core";
import { policyNames } from "@espalier/policies";
import { names, quick, runs, whole } from "../support/params.ts";
import { repeatRuns } from "../support/repeat-runs.ts";
import { defineSuite, joinRuns, shown } from "../support/suite.ts";
import { betweenDecisionsMs, blockSize, branchEvery, otherRouters, placedEvery } from "./scoring-fleet.ts";
import { plainPolicy, runScoringOnce, usualShapes } from "./scoring-run.ts";

/** How much of a router's one core a decision takes, and how much garbage it leaves. */
export const scoringSuite = defineSuite({
  name: "scoring",
  summary: "one decision among 96 and 1,000 engines, beside a Map of Sets and a sort",
  about: `
Decisions by themselves, of prompts whose hashes are given: the look-up in an index that each of 96 or 1,000 engines has
to another depth, the candidates with their load and that of ${otherRouters} other routers, the policy. ${plainPolicy} has the plain
figures; beside it the same decision by a Map of Sets, objects and a sort.`,
  params: {
    decisions: whole({
      help: "of each prompt size, fleet and policy",
      ...{ standard: 2_000, quick: 100, most: 1_000_000 },
    }),
    runs: runs(3),
    policy: names("measured besides", policyNames, { standard: ["cache_aware", "epp_weighted"] }),
    quick: quick(),
  },
  async measure({ decisions, runs, policy, quick }, note) {
    const sizes = {
      decisions,
      naiveDecisions: Math.max(10, Math.floor(decisions / 100)),
      shapes: usualShapes,
      otherBlocks: quick ? 20_000 : 500_000,
      policies: policy.filter((name) => name !== plainPolicy),
    };
    const done = await repeatRuns({ runs, note }, (seed, noteRun) => {
      const run = runScoringOnce(sizes, { clock: systemClock, seed });
      noteRun(`${shown("", run.espalier.decision_12k_x96_us_p50 ?? 0)} us among 96`);
      return run;
    });
    return {
      params: {
        ...{ runs, policy: plainPolicy, policies: sizes.policies.join(","), decisions },
        ...{ naive_decisions: sizes.naiveDecisions, other_blocks: sizes.otherBlocks, block_size: blockSize },
        ...{ branch_every: branchEvery, placed_every: placedEvery, other_routers: otherRouters },
        between_decisions_ms: betweenDecisionsMs,
      },
      ...joinRuns(done),
    };
  },
});
