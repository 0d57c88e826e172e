import { createSeededRandom } from "@espalier/core";
import { createPrefixIndex, createPrefixMatches, factKinds, resumePoint } from "@espalier/prefix-index";
import { fixedSeeds } from "@espalier/testing";
import { describe, expect, it } from "vitest";
import { target } from "./fold-harness.ts";
import { chainTo, wordsOfChain } from "./model-engine.ts";
import type { ModelRouter } from "./model-router.ts";
import { ModelTier } from "./model-tier.ts";

const seeds = fixedSeeds(150);
const stepsPerRun = 260;

/** Runs a tier through faults, then lets it come to rest with one owner. */
function run(seed: number): { tier: ModelTier; owner: ModelRouter } {
  const random = createSeededRandom(seed);
  const tier = new ModelTier(random);
  for (let step = 0; step < stepsPerRun; step++) tier.step();
  tier.settle();
  for (const router of tier.routers) router.isOwner = false;
  tier.isFaulty = false;
  const owner = tier.living[random.integer(tier.living.length)]!;
  for (let round = 0; round < 2; round++) {
    tier.message();
    owner.takeOver();
    tier.settle();
    if (owner.checkpoint() === undefined) owner.replace();
    tier.settle();
  }
  return { tier, owner };
}

const statementOf = ({ harness }: ModelRouter): unknown => {
  const { epoch, sequence, blocks, digest } = harness.fold.statement(target) ?? {};
  return { epoch, sequence, blocks, digest };
};

describe("a tier with checkpoints, settled journals, snapshots and faults", () => {
  const seen = { reloads: 0, imports: 0, aborts: 0, givenUp: 0, restarts: 0, complete: 0 };

  it.each(seeds)("comes to one state, seed %i", (seed) => {
    const { tier, owner } = run(seed);
    for (const key of Object.keys(tier.seen) as (keyof typeof tier.seen)[]) seen[key] += tier.seen[key];
    const expected = statementOf(owner);
    expect(expected).toMatchObject({ sequence: expect.any(Number) });
    for (const router of tier.living) {
      expect(statementOf(router), router.origin.router).toEqual(expected);
      expect(router.harness.fold.byteLength).toBe(0);
    }
    if (!owner.isComplete || !owner.harness.fold.state(target)!.isComplete) return;
    seen.complete++;
    for (const router of tier.living) expectTruth(tier, router);
  });

  it("has met everything that it is to withstand", () => {
    for (const [what, times] of Object.entries(seen))
      expect(times, what).toBeGreaterThan(Math.floor(seeds.length / 30));
  });
});

/** The engine's own cache, by digest and by what chains match. */
function expectTruth({ engine, forest }: ModelTier, { harness }: ModelRouter): void {
  const slot = harness.slots.find(target);
  const truth = createPrefixIndex({ maxTargets: 1 });
  for (const tier of factKinds) {
    const words = wordsOfChain(forest, [...engine.held[tier]!]);
    truth.storeFacts(0, tier, words, 0, words.length / 2);
  }
  expect([...harness.index.digest(slot)]).toEqual([...truth.digest(0)]);
  const matches = createPrefixMatches(8);
  for (let block = 0; block < forest.parents.length; block++) {
    const chain = chainTo(forest, block);
    const lacks = (held: (above: number) => boolean): number => {
      const missing = chain.findIndex((above) => !held(above));
      return missing < 0 ? chain.length : missing;
    };
    const onGpu = lacks((above) => engine.held[0]!.has(above));
    const anywhere = lacks((above) => [0, 1, 2, 3].some((tier) => engine.held[tier]!.has(above)));
    const points = engine.held[resumePoint]!;
    const usable = chain.slice(0, anywhere).findLastIndex((above) => points.has(above)) + 1;
    harness.index.match(wordsOfChain(forest, chain), chain.length, 0, matches);
    expect(matches.gpuBlocks[slot]).toBe(points.size > 0 ? Math.min(onGpu, usable) : onGpu);
  }
}
