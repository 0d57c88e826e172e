import { createSeededRandom } from "@espalier/core";
import { createPrefixIndex, factKinds, tier } from "@espalier/prefix-index";
import { fixedSeeds } from "@espalier/testing";
import { describe, expect, it } from "vitest";
import { ChangeLog } from "../../src/facts/kept-state.ts";

const slot = 0;
const wordsOf = (blocks: readonly number[]): Uint32Array =>
  Uint32Array.from(blocks.flatMap((block) => [Math.imul(block + 1, 0x9e37_79b1) >>> 0, block + 5]));

describe("a log of changes", () => {
  it.each(fixedSeeds(20))("takes everything back, seed %i", (seed) => {
    const random = createSeededRandom(seed);
    const index = createPrefixIndex({ maxTargets: 1 });
    const log = new ChangeLog();
    const change = (isNoted: boolean): void => {
      const inTier = factKinds[random.integer(factKinds.length)]!;
      const words = wordsOf([random.integer(300)]);
      if (random.integer(2) === 0) {
        if (index.storeFacts(slot, inTier, words, 0, 1) > 0 && isNoted) log.stored(inTier, words, 0);
      } else if (index.removeFacts(slot, inTier, words, 0, 1) > 0 && isNoted) log.removed(inTier, words, 0);
    };
    for (let left = 500; left > 0; left--) change(false);
    const before = [...index.digest(slot)];
    for (let left = 1_500; left > 0; left--) change(true);
    expect([...index.digest(slot)]).not.toEqual(before);
    expect(log.count).toBeGreaterThan(300);
    expect(log.byteLength).toBe(log.count * 12);
    log.undo(index, slot);
    expect([...index.digest(slot)]).toEqual(before);
    expect([log.count, log.byteLength]).toEqual([0, 0]);
  });

  it("takes back runs longer than one call to the index, and several of them", () => {
    const index = createPrefixIndex({ maxTargets: 1 });
    const log = new ChangeLog();
    const words = wordsOf(Array.from({ length: 1_000 }, (_, block) => block));
    for (let block = 0; block < 1_000; block++) {
      index.storeFacts(slot, tier.gpu, words, block, block + 1);
      log.stored(tier.gpu, words, block);
    }
    for (let block = 0; block < 257; block++) {
      index.removeFacts(slot, tier.gpu, words, block, block + 1);
      log.removed(tier.gpu, words, block);
    }
    log.undo(index, slot);
    expect(index.factCount).toBe(0);
  });

  it("tells what changed, in order, from anywhere on", () => {
    const log = new ChangeLog();
    const words = Uint32Array.of(1, 2, 3, 4);
    log.stored(tier.cpu, words, 1);
    expect(log.hasStoredOnGpu).toBe(false);
    log.removed(tier.gpu, words, 0);
    log.stored(tier.gpu, words, 0);
    expect(log.hasStoredOnGpu).toBe(true);
    const reported: unknown[] = [];
    log.visit(1, (...change) => reported.push(change));
    expect(reported).toEqual([
      [tier.gpu, false, 1, 2],
      [tier.gpu, true, 1, 2],
    ]);
    log.clear();
    expect([log.count, log.hasStoredOnGpu]).toEqual([0, false]);
  });
});
