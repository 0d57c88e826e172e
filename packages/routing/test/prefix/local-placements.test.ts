import { asTargetIndex } from "@espalier/core";
import { createPrefixIndex, createPrefixMatches } from "@espalier/prefix-index";
import { createVirtualTime, promptOf, tokensOf } from "@espalier/testing";
import { expect, test } from "vitest";
import { createLocalPlacements } from "../../src/prefix/prefix-knowledge.ts";

test("guesses that are not shared are in the index at once, until they are refuted or too old", () => {
  const prompt = promptOf(tokensOf("a", 64));
  const time = createVirtualTime();
  const index = createPrefixIndex({ maxTargets: 4, maxBlocks: 1_000, maxSets: 10 });
  const placements = createLocalPlacements(index, time.clock);
  const matches = createPrefixMatches(4);
  const placed = (): number => {
    index.match(prompt.chain, prompt.blockCount, time.clock.nowMs(), matches);
    return matches.placedBlocks[1]!;
  };
  const target = asTargetIndex(1);
  index.placements.setCapacity(1, 100);
  placements.place(target, prompt, 5_000);
  expect(placed()).toBe(4);
  placements.refute(target, prompt, 3);
  expect(placed()).toBe(3);
  time.advance(5_000);
  expect(placed()).toBe(0);
  placements.place(target, prompt, 1_000);
  placements.confirm(target, prompt, 9_000);
  time.advance(8_999);
  expect(placed()).toBe(4);
});
