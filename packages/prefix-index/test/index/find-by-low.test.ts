import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import { createPrefixIndex } from "../../src/prefix-index.ts";
import { type Tier, tier } from "../../src/tiers.ts";
import { randomHashes } from "../random-chains.ts";

test("blocks are found by their low words as a search through all of them finds them", () => {
  for (const [seed, blocks, steps] of [
    [1, 3_000, 20_000],
    [2, 300, 4_000],
    [3, 300, 4_000],
  ] as const) {
    const random = createSeededRandom(seed);
    // One in 32 shares its low word with the one before.
    const words = randomHashes(blocks, random);
    const index = createPrefixIndex({ maxTargets: 4 });
    const held = new Set<string>();
    const change = (): void => {
      const [target, inTier, block] = [random.integer(4), random.integer(4) as Tier, random.integer(blocks)];
      const key = `${target}/${inTier}/${block}`;
      if (random.integer(3) > 0) {
        index.storeFacts(target, inTier, words, block, block + 1);
        held.add(key);
      } else {
        index.removeFacts(target, inTier, words, block, block + 1);
        held.delete(key);
      }
    };
    for (let step = 0; step < steps; step++) {
      change();
      if (step % 10 > 0) continue;
      const [target, inTier, block] = [random.integer(4), random.integer(4) as Tier, random.integer(blocks)];
      const low = words[block * 2]!;
      const same = [];
      for (let other = Math.max(0, block - 6); other < Math.min(blocks, block + 7); other++) {
        if (words[other * 2] === low && held.has(`${target}/${inTier}/${other}`)) same.push(words[other * 2 + 1]);
      }
      expect(index.findByLow(target, inTier, low), `seed ${seed}, step ${step}`).toBe(Math.min(2, same.length));
      if (same.length === 1) expect(index.foundHigh).toBe(same[0]);
    }
  }
});

test("what others hold, what was voided and the ends of all hashes do not mislead", () => {
  const index = createPrefixIndex({ maxTargets: 3 });
  const words = Uint32Array.of(0, 1, 0, 2, 0xffff_ffff, 3, 0xffff_ffff, 4);
  index.storeFacts(0, tier.gpu, words, 0, 1);
  index.storeFacts(1, tier.gpu, words, 0, 4);
  expect(index.findByLow(0, tier.gpu, 0)).toBe(1);
  expect(index.foundHigh).toBe(1);
  expect(index.findByLow(1, tier.gpu, 0)).toBe(2);
  expect(index.findByLow(1, tier.gpu, 0xffff_ffff)).toBe(2);
  expect(index.findByLow(2, tier.gpu, 0)).toBe(0);
  expect(index.findByLow(0, tier.cpu, 0)).toBe(0);
  index.clearFacts(1);
  expect(index.findByLow(1, tier.gpu, 0)).toBe(0);
  index.storeFacts(1, tier.gpu, words, 3, 4);
  expect(index.findByLow(1, tier.gpu, 0xffff_ffff)).toBe(1);
  expect(index.foundHigh).toBe(4);
  expect(() => index.findByLow(3, tier.gpu, 0)).toThrow(RangeError);
});
