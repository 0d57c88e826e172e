import { appendFileSync } from "node:fs";
import { expect, test } from "vitest";
import { addCounts, noCounts } from "./run-counts.ts";
import { runSeed, type SeedReport } from "./run-seed.ts";
import { fixedSeeds, keptSeeds, readSeedRequest } from "./seeds.ts";

/** Set by `npm run simulate:seeds`. */
const request = process.env.ESPALIER_SIMULATION_SEEDS;
const dayMs = 24 * 3_600_000;

function expectHeld({ error, command }: SeedReport): void {
  if (error !== undefined) throw new Error(`run it again: ${command}\n${error}`);
}

async function runEverySeed(): Promise<void> {
  const counts = noCounts();
  const run = async (seed: number): Promise<void> => {
    const report = await runSeed(seed);
    expectHeld(report);
    addCounts(counts, report.counts!);
  };
  for (const seed of [...keptSeeds, ...fixedSeeds]) await run(seed);
  for (const [what, count] of Object.entries(counts)) expect(count, what).toBeGreaterThan(0);
}

async function compareHashes(): Promise<void> {
  const [seed, other] = fixedSeeds as readonly [number, number];
  const hashes = [await runSeed(seed), await runSeed(seed), await runSeed(other)].map(({ hash }) => hash);
  expect(hashes[0]).toMatch(/^[0-9a-f]{16}$/);
  expect(hashes[1]).toBe(hashes[0]);
  expect(hashes[2]).not.toBe(hashes[0]);
}

async function runRequested(text: string): Promise<void> {
  const { seeds, only, reportFile, traceFile } = readSeedRequest(text);
  const trace = traceFile === undefined ? {} : { trace: (line: string) => appendFileSync(traceFile, `${line}\n`) };
  for (const seed of seeds) appendFileSync(reportFile, `${JSON.stringify(await runSeed(seed, { only, ...trace }))}\n`);
}

if (request !== undefined) test("the seeds that were asked for", () => runRequested(request), dayMs);
else {
  test("whatever goes wrong, nothing is wrong meanwhile, and all is well again afterwards", runEverySeed, dayMs);
  test("a seed comes to the same events whenever it is run, and another one to others", compareHashes, dayMs);
}
