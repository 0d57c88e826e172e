import { EspalierError } from "@espalier/core";
import { type JobOutcome, runJob, type SimJob } from "./run-job.ts";
import type { ChildMessage } from "./run-tasks.ts";
import { loadScenario, type SimulatedScenario } from "./simulated-scenario.ts";

/** A child process of `espalier simulate`. It runs the jobs that its parent sends, one after the other. */

/** Minimum step of progress reported to the parent. */
const minProgress = 0.01;

const parent = process.ppid;
let loaded: { readonly source: string; readonly simulated: SimulatedScenario } | undefined;

// Ctrl-C reaches the whole group. The parent ends this process after it has the results.
process.on("SIGINT", () => {});
process.on("disconnect", () => process.exit());
process.on("message", async (job: SimJob) => {
  try {
    send({ type: "result", result: await run(job) });
  } catch (error) {
    const code = error instanceof EspalierError ? error.code : undefined;
    send({ type: "failure", message: error instanceof Error ? error.message : String(error), code });
  }
});

async function run(job: SimJob): Promise<JobOutcome<SimJob>> {
  const source = JSON.stringify(job.source);
  if (loaded?.source !== source) loaded = { source, simulated: await loadScenario(job.source) };
  let reported = 0;
  return runJob(job, loaded.simulated, (share) => {
    // A run that never yields would not notice that its parent has ended.
    if (process.ppid !== parent) process.exit();
    if (share - reported < minProgress) return;
    reported = share;
    send({ type: "progress", share });
  });
}

function send(message: ChildMessage<JobOutcome<SimJob>>): void {
  process.send?.(message);
}
