/** How much of a chain targets hold in CPU memory, whatever they hold on their GPUs. */
import { createPrefixIndex, createPrefixMatches, tier } from "@espalier/prefix-index";
import { randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { expect, test } from "vitest";

const blockCount = 12;
const chain = Uint32Array.from({ length: 2 * blockCount }, (_, index) => 1 + index * 7_919);
const targets = 5;

test("the blocks at the chain's beginning that are in CPU memory count up to the first that is not", () => {
  const change = fc.record({
    target: fc.nat({ max: targets - 1 }),
    inTier: fc.constantFrom(tier.gpu, tier.cpu, tier.cpu, tier.disk),
    block: fc.nat({ max: blockCount - 1 }),
    length: fc.integer({ min: 1, max: blockCount }),
    isStored: fc.boolean(),
  });
  fc.assert(
    fc.property(fc.array(change, { maxLength: 60 }), (changes) => {
      const index = createPrefixIndex({ maxTargets: targets });
      const held = Array.from({ length: targets }, () => new Set<number>());
      for (const { target, inTier, block, length, isStored } of changes) {
        // On GPUs chains have no holes here.
        const from = inTier === tier.gpu ? 0 : block;
        const to = Math.min(blockCount, from + length);
        if (isStored) index.storeFacts(target, inTier, chain, from, to);
        else if (inTier !== tier.gpu) index.removeFacts(target, inTier, chain, from, to);
        if (inTier !== tier.cpu) continue;
        for (let at = from; at < to; at++) {
          if (isStored) held[target]!.add(at);
          else held[target]!.delete(at);
        }
      }
      const matches = createPrefixMatches(targets);
      index.match(chain, blockCount, 0, matches);
      expect(Array.from(matches.cpuBlocks)).toEqual(held.map(() => 0));
      matches.countsCpu = true;
      index.match(chain, blockCount, 0, matches);
      const expected = held.map((blocks) => {
        let leading = 0;
        while (blocks.has(leading)) leading++;
        return leading;
      });
      expect(Array.from(matches.cpuBlocks)).toEqual(expected);
      for (const [target, blocks] of expected.entries()) if (blocks > 0) expect(matches.isListed[target]).toBe(1);
    }),
    { numRuns: randomRuns(300) },
  );
});
