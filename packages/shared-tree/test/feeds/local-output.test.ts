import { asTargetIndex } from "@espalier/core";
import { createPrefixIndex, tier } from "@espalier/prefix-index";
import { promptOf, tokensOf } from "@espalier/testing";
import { expect, test } from "vitest";
import { createLocalOutput } from "../../src/feeds/feed-host.ts";

test("what events come to is in the index of this router, and what ends with an epoch is forgotten", () => {
  const index = createPrefixIndex({ maxTargets: 4, maxBlocks: 1_000, maxSets: 10 });
  const forgotten: string[] = [];
  const output = createLocalOutput(
    {
      index,
      forget: (target) => forgotten.push(`all of ${target}`),
      forgetPlacements: (target) => forgotten.push(`guesses of ${target}`),
    },
    asTargetIndex(2),
  );
  const { chain } = promptOf(tokensOf("a", 96));
  output.sink.stored(tier.gpu, chain, 0, 6);
  output.sink.stored(tier.cpu, chain, 0, 2);
  expect([index.factBlockCount(2, tier.gpu), index.factBlockCount(2, tier.cpu)]).toEqual([6, 2]);
  output.sink.removed(tier.gpu, chain, 4, 6);
  output.batch({ sequence: 1, timestampUs: 1, checksum: 1 }, { isComplete: true, unknownRemovals: 0 });
  output.gap(2, 3);
  output.condition({ quality: "partial", state: "partial", reason: "gap", unusable: undefined });
  expect([index.factBlockCount(2, tier.gpu), forgotten]).toEqual([4, []]);
  output.emptied();
  output.newEpoch();
  expect(forgotten).toEqual(["guesses of 2", "all of 2"]);
  output.sink.cleared();
  expect([index.factBlockCount(2, tier.gpu), index.factBlockCount(2, tier.cpu)]).toEqual([0, 0]);
});
