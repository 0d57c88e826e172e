import { asTargetIndex, createSeededRandom } from "@espalier/core";
import { createPolicy } from "@espalier/policies";
import { tier } from "@espalier/prefix-index";
import type { FeedQuality } from "@espalier/shared-tree";
import { blockSize, fixedSeeds, promptOf, tokensOf } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { createTargetSelector } from "../../src/select-target.ts";
import { type KnowledgeRig, knowledgeRig, type RigOptions, targetLike } from "./knowledge-rig.ts";

const prompt = promptOf(tokensOf("a", 100));
const other = promptOf(tokensOf("b", 100));
const near = { name: "near", index: asTargetIndex(7) };
const far = { name: "far", index: asTargetIndex(9) };

/** A target whose events tell everything, and pools in its reach; without changes both pools are complete too. */
function poolRig({ quality = "complete", ...options }: RigOptions = {}): KnowledgeRig & {
  pool(index: number, from: number, to: number, inTier?: keyof typeof tier): void;
} {
  const rig = knowledgeRig({ quality, pools: [near, far], ...options });
  return {
    ...rig,
    pool: (index, from, to, inTier = "external") =>
      void rig.index.storeFacts(index, tier[inTier], prompt.chain, from, to),
  };
}

describe("what a pool holds", () => {
  test("counts as outside for a target in reach that has nothing itself", () => {
    const { see, pool } = poolRig();
    pool(near.index, 0, 4);
    expect(see(prompt)).toMatchObject({ gpu: 0, cpu: 0, disk: 0, external: 64, pooled: 64 });
    expect(see(other)).toMatchObject({ external: 0, pooled: 0 });
  });

  test("counts for no target out of reach", () => {
    const { see, pool } = poolRig();
    pool(near.index, 0, 4);
    expect(see(prompt, targetLike(1, {}))).toMatchObject({ external: 0, pooled: 0 });
  });

  test.each(["gpu", "disk"] as const)("counts the same in its own memory %s", (inTier) => {
    const { see, pool } = poolRig();
    pool(near.index, 0, 4, inTier);
    expect(see(prompt)).toMatchObject({ gpu: 0, cpu: 0, disk: 0, external: 64, pooled: 64 });
  });

  test("never is the whole prompt, nor a part of an engine's block", () => {
    const whole = promptOf(tokensOf("a", 96));
    const { see, pool } = poolRig();
    pool(near.index, 0, 6);
    expect(see(whole)).toMatchObject({ external: 80 });
    const coarse = poolRig({ engineBlock: 32 });
    coarse.pool(near.index, 0, 5);
    expect(coarse.see(prompt, coarse.target)).toMatchObject({ external: 64, pooled: 64 });
  });

  test("counts for a target that publishes no events, beyond what was sent there", () => {
    const quality = (target: number): FeedQuality => (target === 0 ? "none" : "complete");
    const { see, pool, index, target } = poolRig({ quality });
    index.place(target.index, prompt.chain, 3, { nowMs: 0, ttlMs: 1_000 });
    pool(near.index, 0, 6);
    expect(see(prompt)).toMatchObject({ gpu: 48, external: 48, pooled: 48 });
  });

  test.each<[FeedQuality, number]>([
    ["complete", 64],
    ["partial", 64],
    ["void", 0],
    ["none", 0],
  ])("is believed as the pool's own feed is: %s", (quality, external) => {
    const { see, pool } = poolRig({ quality: (target) => (target === 0 ? "complete" : quality) });
    pool(near.index, 0, 4);
    expect(see(prompt)).toMatchObject({ external, pooled: external });
  });

  test("is named in the evidence, believed or not", () => {
    const quality = (target: number): FeedQuality => (target === far.index ? "void" : "complete");
    const { knowledge, pool, target } = poolRig({ quality });
    pool(near.index, 0, 4);
    pool(far.index, 0, 6);
    knowledge.match(prompt);
    expect(knowledge.evidence(target.index)?.pools).toEqual([
      { pool: "near", quality: "complete", blocks: 4 },
      { pool: "far", quality: "void", blocks: 6 },
    ]);
    expect(knowledge.evidence(asTargetIndex(1))?.pools).toEqual([]);
  });
});

test("any facts of a target and two pools: the columns are what a walk block by block finds", () => {
  for (const seed of fixedSeeds(120, 1)) {
    const random = createSeededRandom(seed);
    const { see, pool, announce } = poolRig();
    const tiers = ["gpu", "cpu", "disk", "external"] as const;
    const own = Array.from({ length: 6 }, () => (random.integer(3) > 0 ? tiers[random.integer(4)]! : undefined));
    const outside = random.integer(7);
    const held = [near, far].map(() => Array.from({ length: 6 }, () => random.integer(4) > 0));
    for (let at = 0; at < 6; at++) {
      // On the GPU a target has no block without its parent.
      const hasParents = own.slice(0, at + 1).every((name) => name === "gpu");
      if (own[at] === "gpu" && !hasParents) own[at] = "cpu";
      if (own[at]) announce(prompt, at, at + 1, own[at]);
      if (at < outside) announce(prompt, at, at + 1, "external");
      for (const [which, { index }] of [near, far].entries()) if (held[which]![at]) pool(index, at, at + 1);
    }
    const depthOf = (has: (at: number) => boolean): number => {
      let depth = 0;
      while (depth < 6 && has(depth)) depth++;
      return depth;
    };
    // Engines look a prompt up in external memory from its beginning.
    const inExternal = depthOf((at) => at < outside || own[at] === "external");
    const ownDepth = depthOf((at) => at < inExternal || (own[at] !== undefined && own[at] !== "external"));
    const pooled = Math.max(0, ...held.map((pool) => depthOf((at) => pool[at]!))) - ownDepth;
    const { gpu, cpu, disk, external, pooled: seen } = see(prompt);
    expect(gpu + cpu + disk + external - seen, `seed ${seed}`).toBe(ownDepth * blockSize);
    expect(seen, `seed ${seed}`).toBe(Math.max(0, pooled) * blockSize);
  }
});

describe("a decision", () => {
  test("goes to the target that can fetch, at the credit of what is outside, and tells how much that is", () => {
    const { knowledge, pool, target } = poolRig();
    pool(near.index, 0, 6);
    const selector = createTargetSelector({ random: createSeededRandom(1), knowledge });
    const targets = [targetLike(1, {}), target, targetLike(2, {})];
    const features = { promptTokens: 100, expectedOutputTokens: 1, sessionKey: undefined, prefixKey: undefined };
    const choose = (credit: number) => {
      const pool = { policy: createPolicy("least_work", { "external-credit": credit, "near-tie-tokens": 0 }) };
      return selector.select(pool, targets, { features, prompt }, { tried: new Set() });
    };
    expect(choose(0.5)).toMatchObject({ target, matchedTokens: 96, pooledTokens: 96 });
    expect(choose(0.01)).toMatchObject({ target, pooledTokens: 96 });
  });

  test("for a target that has the prompt itself says that nothing is fetched", () => {
    const { knowledge, pool, target, announce } = poolRig();
    pool(near.index, 0, 6);
    announce(prompt, 0, 6);
    const selector = createTargetSelector({ random: createSeededRandom(1), knowledge });
    const features = { promptTokens: 100, expectedOutputTokens: 1, sessionKey: undefined, prefixKey: undefined };
    const request = { features, prompt };
    const selection = selector.select({ policy: createPolicy("least_work") }, [target], request, { tried: new Set() });
    expect(selection).toMatchObject({ matchedTokens: 96, pooledTokens: 0 });
  });
});

describe("a prompt that is sent where it has to be fetched", () => {
  const pooled = "espalier_pool_tokens_total";

  test("is counted", () => {
    const { knowledge, target, meter } = poolRig();
    knowledge.place(target, prompt, 96, { pooledTokens: 64, bestTokens: 0 });
    knowledge.place(target, prompt, 96);
    knowledge.place(target, prompt, 96, { pooledTokens: 0, bestTokens: 0 });
    expect(meter.value(pooled)).toBe(64);
  });

  test("is not believed to be there when the target refuses it", () => {
    const { knowledge, target, see } = poolRig({ quality: "none" });
    const placement = knowledge.place(target, prompt, 96, { pooledTokens: 64, bestTokens: 0 });
    expect(see(prompt).gpu).toBe(96);
    placement.withdraw();
    expect(see(prompt).gpu).toBe(32);
  });
});
