import { expect, test } from "vitest";
import { noCounts, RandomRun } from "./random-run.ts";

/** Each of them once found something. */
const keptSeeds: readonly number[] = [];
const fixedSeeds = [1, 2, 3, 4, 5, 6, 7, 8];
const stepsPerRun = 500;

/** `--seed N` runs one seed, `--seeds N` so many new ones beside the fixed ones. */
function seedsToRun(): number[] {
  const { ESPALIER_CONVERGENCE_SEED: only, ESPALIER_CONVERGENCE_SEEDS: count } = process.env;
  if (only !== undefined) return [Number(only)];
  const first = Date.now() % 1_000_000_000;
  const fresh = Array.from({ length: Number(count ?? 0) }, (_, at) => first + at);
  return [...keptSeeds, ...fixedSeeds, ...fresh];
}

test(
  "whatever is delivered, sent again, broken, killed and lost, in whatever order, all end equal",
  async () => {
    const counts = noCounts();
    const seeds = seedsToRun();
    for (const seed of seeds) {
      try {
        await new RandomRun(seed, counts).run(stepsPerRun);
      } catch (error) {
        throw new Error(`run it again: npm run test:convergence -- --seed ${seed}`, { cause: error });
      }
    }
    if (seeds.length < fixedSeeds.length) return;
    for (const [what, count] of Object.entries(counts)) expect(count, what).toBeGreaterThan(5);
  },
  24 * 3_600_000,
);
