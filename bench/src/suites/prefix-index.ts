import { systemClock } from "@espalier/core";
import { quick, runs, whole } from "../support/params.ts";
import { repeatRuns } from "../support/repeat-runs.ts";
import { defineSuite, joinRuns, shown } from "../support/suite.ts";
import { beyondPoint, branchEvery, runBlocks, runPrefixIndexOnce, slowBlocks, targets } from "./prefix-index-run.ts";

/** The index alone, without hashing and feeds. */
export const prefixIndexSuite = defineSuite({
  name: "index",
  summary: "the index from chain hashes to targets, beside a Map of Sets",
  about: `
The index from chain hashes to targets: storing and removing runs of ${runBlocks} blocks, looking up single blocks, memory, and
queries of long chains that many targets have to different depths, once more with hybrid models, whose last resume point is
${beyondPoint} blocks earlier or in no block of the chain, and with blocks in CPU and in external memory: ${slowBlocks} after those
on the GPU, all of the chain, or only what does not matter for it; beside a Map of Sets and a walk of every block.`,
  params: {
    blocks: whole({ help: "blocks stored and removed", standard: 2_000_000, quick: 100_000, most: 50_000_000 }),
    runs: runs(5),
    quick: quick(),
  },
  async measure({ blocks, runs, quick }, note) {
    const sizes = {
      blocks,
      turnoverBlocks: quick ? 5_000 : 50_000,
      turnovers: 100,
      otherBlocks: quick ? 50_000 : 500_000,
      naiveBlocks: Math.min(blocks, quick ? 20_000 : 300_000),
      queries: quick ? 200 : 2_000,
    };
    const done = await repeatRuns({ runs, note }, (seed, noteRun) => {
      const run = runPrefixIndexOnce(sizes, { clock: systemClock, seed });
      noteRun(`${shown("", run.espalier.insert_ops_per_s ?? 0)} stores/s`);
      return run;
    });
    return {
      params: {
        ...{ runs, blocks, naive_blocks: sizes.naiveBlocks, run_blocks: runBlocks, targets },
        ...{ turnover_blocks: sizes.turnoverBlocks, turnovers: sizes.turnovers, other_blocks: sizes.otherBlocks },
        ...{ branch_every: branchEvery, beyond_point: beyondPoint, slow_blocks: slowBlocks, queries: sizes.queries },
      },
      ...joinRuns(done),
    };
  },
});
