import { expect, test, vi } from "vitest";
import { createRow, type SimulateRow } from "../../src/measure/rows.ts";
import type { RunOptions, RunRecord } from "../../src/run.ts";
import { scenario } from "../../src/scenarios/catalogue.ts";
import { simulate } from "../../src/simulate.ts";

// Takes some seconds of a core, which busy machines make ten times as many of.
vi.setConfig({ testTimeout: 180_000 });

const sloMix = scenario("slo-mix");
const durationS = 60;

async function run(variant: string): Promise<{ readonly row: SimulateRow; readonly record: RunRecord }> {
  const { scale = 1 } = sloMix.variants.find(({ name }) => name === variant)!;
  const options: RunOptions = {
    ...{ scenario: sloMix, variant, policy: "lmetric", routers: 2, engines: 8 },
    ...{ sharing: "mesh", links: "delays", seed: 1, scale, durationS },
  };
  const record = await simulate(options, () => 0);
  return { row: createRow(record, options), record };
}

/** Jobs whose prompt was computed while there were still new ones. */
const jobsBegun = ({ results }: RunRecord): number =>
  results.filter(({ request, firstTokenMs }) => request.className === "batch" && firstTokenMs <= durationS * 1_000)
    .length;

const chats = ({ row }: { readonly row: SimulateRow }) => row.by_class!.interactive!;

// The first requests find caches cold, which in so short a run is more than one of a hundred: hence the 90th percentile.
test("batch jobs delay nobody who chats: it is as in an unloaded fleet nearly, and jobs lose little", async () => {
  const unloaded = await run("unloaded");
  const fifo = await run("fifo-0.7");
  const queued = await run("load-0.7");
  expect(chats(queued).ttft_p90_s!).toBeLessThan(1.3 * chats(unloaded).ttft_p90_s!);
  expect(chats(queued).ttft_p99_s!).toBeLessThan(0.25 * chats(fifo).ttft_p99_s!);
  expect(jobsBegun(queued.record)).toBeGreaterThan(0.9 * jobsBegun(fifo.record));
  expect(queued.row.errors).toBe(0);
});

test("past the knee people get their answers as well, and nobody starves", async () => {
  const fifo = await run("fifo-1.1");
  const queued = await run("load-1.1");
  expect(chats(queued).ttft_p90_s!).toBeLessThan(0.5 * chats(fifo).ttft_p90_s!);
  expect(jobsBegun(queued.record)).toBeGreaterThan(0.9 * jobsBegun(fifo.record));
  expect([queued.row.errors, fifo.row.errors]).toEqual([0, 0]);
});
