import { beforeAll, expect, test, vi } from "vitest";
import { createRow, type SimulateRow } from "../../src/measure/rows.ts";
import type { LinkModel } from "../../src/run.ts";
import { simulate } from "../../src/simulate.ts";
import { smallRun, smallScenario } from "./small-scenario.ts";

// Takes several seconds of a core, which busy machines make a minute of.
vi.setConfig({ hookTimeout: 240_000 });

/** The clients of `smg-240`, for 16 engines in place of 240: with more follow-ups, so that there are enough in 20 s. */
const scenario = smallScenario({
  chats: { groups: 13, sharedTokens: 2_000, firstTokens: 1_500, newTokens: 400, outputTokens: 150 },
  startsPerS: 28,
  durationS: 20,
});
const seeds = [1, 2, 3];

async function rowsOf(links: LinkModel): Promise<SimulateRow[]> {
  const rows: SimulateRow[] = [];
  for (const seed of seeds) {
    const options = smallRun({ scenario, routers: 4, engines: 16, parameters: { blockCount: 32_768 }, links, seed });
    rows.push(createRow(await simulate(options, () => 0), options));
  }
  return rows;
}

const mean = (rows: readonly SimulateRow[], of: (row: SimulateRow) => number): number =>
  rows.reduce((sum, row) => sum + of(row), 0) / rows.length;

let real: readonly SimulateRow[] = [];
let delays: readonly SimulateRow[] = [];

beforeAll(async () => {
  real = await rowsOf("real");
  delays = await rowsOf("delays");
});

// Means over the seeds: a decision that falls otherwise once lets two runs of one seed go their own ways, a point apart.
test("fixed delays in place of links change the follow-ups' cached share by less than a point", () => {
  const share = ({ followup_cached_share }: SimulateRow): number => followup_cached_share!;
  expect(Math.abs(mean(delays, share) - mean(real, share))).toBeLessThan(0.01);
});

test("... and the mean time to the first token by less than 5 %", () => {
  const ratio = mean(delays, ({ ttft_mean_s }) => ttft_mean_s!) / mean(real, ({ ttft_mean_s }) => ttft_mean_s!);
  expect(Math.abs(ratio - 1)).toBeLessThan(0.05);
});

test("... and the spread of load over engines by less than 15 %", () => {
  const ratio = mean(delays, ({ load_cov_time }) => load_cov_time!) / mean(real, ({ load_cov_time }) => load_cov_time!);
  expect(Math.abs(ratio - 1)).toBeLessThan(0.15);
});

test("both answer every request", () => {
  for (const row of [...real, ...delays]) expect([row.errors, row.requests > 800]).toEqual([0, true]);
});
