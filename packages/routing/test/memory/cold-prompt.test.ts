import { createSeededRandom } from "@espalier/core";
import { createPolicy } from "@espalier/policies";
import { tier } from "@espalier/prefix-index";
import { blockSize, promptOf, tokensOf } from "@espalier/testing";
import { expect, test } from "vitest";
import { ColdPrompt, coldTokens } from "../../src/memory/cold-prompt.ts";
import { MemoryWatch } from "../../src/memory/memory-watch.ts";
import { createTargetSelector, type Restriction } from "../../src/select-target.ts";
import { knowledgeRig } from "../prefix/knowledge-rig.ts";
import { type ScriptedTarget, scriptedTarget } from "../scripted-target.ts";

const coldBlocks = coldTokens / blockSize + 1;

/** Engines of 300 blocks; the first so many of them are full of what somebody waits with. */
function rigOf(full: number, count = 3) {
  const { knowledge, index, time } = knowledgeRig({ quality: "complete" });
  const watch = new MemoryWatch({ clock: time.clock, index, feedQualityOf: () => "complete" });
  const signals = { blockSize, blockCount: 300 };
  const targets = Array.from({ length: count }, (_, at) => scriptedTarget(at, `e${at}`, { signals }));
  for (const [at, target] of targets.entries()) {
    // The policy prefers those of lower number.
    for (let busy = 0; busy < at; busy++) target.load.begin({ promptTokens: 1, expectedOutputTokens: 0 });
    if (at >= full) continue;
    const held = promptOf(tokensOf(String.fromCharCode(0x4e00 + at), 300 * blockSize));
    index.storeFacts(at, tier.gpu, held.chain, 0, 300);
    watch.sent(at, held.chain, 300, true);
    watch.arrived(held);
  }
  const dryRunSelector = createTargetSelector({ random: createSeededRandom(1), knowledge });
  const pool = { policy: createPolicy("least_work") };
  let pending = 0;
  const parts = { watch, dryRunSelector, pool, pendingTokens: () => pending };
  const coldPrompt = (blocks: number, restriction: Partial<Restriction<ScriptedTarget>> = {}) => {
    const prompt = promptOf(tokensOf("x", blocks * blockSize));
    const features = {
      promptTokens: blocks * blockSize,
      expectedOutputTokens: 10,
      sessionKey: undefined,
      prefixKey: undefined,
    };
    return new ColdPrompt<ScriptedTarget>(parts, { features, prompt }, { tried: new Set(), ...restriction });
  };
  const keys = (some: readonly ScriptedTarget[]): readonly string[] => some.map(({ key }) => key);
  return {
    ...{ index, targets, coldPrompt, keys },
    setPending: (tokens: number) => {
      pending = tokens;
    },
  };
}

test("a cold prompt waits while it would drive out at every engine what somebody is expected to come back for", () => {
  const { coldPrompt, targets, index } = rigOf(3);
  const cold = coldPrompt(coldBlocks);
  expect(cold.fitsInMemory(targets)).toBe(false);
  index.clearFacts(1);
  expect(cold.fitsInMemory(targets)).toBe(true);
});

test("it goes where it does no harm, though the policy would choose otherwise", () => {
  const { coldPrompt, targets, keys } = rigOf(2);
  const cold = coldPrompt(coldBlocks);
  expect(keys(cold.among(targets))).toEqual(["e0", "e1", "e2"]);
  expect(cold.fitsInMemory(targets)).toBe(true);
  expect(keys(cold.among(targets))).toEqual(["e2"]);
  // Where that one is past its saturation limit, it goes to those that are not.
  expect(keys(cold.among(targets.slice(0, 2)))).toEqual(["e0", "e1"]);
});

test("the policy decides where its choice does no harm", () => {
  const { coldPrompt, targets, keys } = rigOf(0);
  const cold = coldPrompt(coldBlocks);
  expect(cold.fitsInMemory(targets)).toBe(true);
  expect(keys(cold.among(targets))).toEqual(["e0", "e1", "e2"]);
});

test("a prompt of which little has to be computed never waits", () => {
  const { coldPrompt, targets, index } = rigOf(3);
  expect(coldPrompt(coldBlocks - 1).fitsInMemory(targets)).toBe(true);
  expect(coldPrompt(coldBlocks).fitsInMemory(targets)).toBe(false);
  const { chain } = promptOf(tokensOf("x", coldBlocks * blockSize));
  index.storeFacts(0, tier.gpu, chain, 0, 20);
  expect(coldPrompt(coldBlocks).fitsInMemory(targets)).toBe(true);
});

test("nor does one whose larger part the engine has, for that would take up its memory to no use", () => {
  const { coldPrompt, targets, index } = rigOf(3);
  const blocks = 2 * coldBlocks;
  const { chain } = promptOf(tokensOf("x", blocks * blockSize));
  index.storeFacts(0, tier.gpu, chain, 0, coldBlocks - 1);
  expect(coldPrompt(blocks).fitsInMemory(targets)).toBe(false);
  index.storeFacts(0, tier.gpu, chain, coldBlocks - 1, coldBlocks);
  expect(coldPrompt(blocks).fitsInMemory(targets)).toBe(true);
});

test("what is on its way to an engine takes up room there", () => {
  const { coldPrompt, targets, index, setPending } = rigOf(1, 1);
  index.clearFacts(0);
  const { chain } = promptOf(tokensOf(String.fromCharCode(0x4e00), 160 * blockSize));
  index.storeFacts(0, tier.gpu, chain, 0, 160);
  expect(coldPrompt(coldBlocks).fitsInMemory(targets)).toBe(true);
  setPending(200 * blockSize);
  expect(coldPrompt(coldBlocks).lossAt(targets[0]!, coldBlocks * blockSize)).toBeGreaterThan(0.5);
  expect(coldPrompt(coldBlocks).fitsInMemory(targets)).toBe(false);
});

test("engines that are out of the question are no reason to go", () => {
  const { coldPrompt, targets } = rigOf(2);
  expect(coldPrompt(coldBlocks, { onlyEngine: "e0" }).fitsInMemory(targets)).toBe(false);
  expect(coldPrompt(coldBlocks, { tried: new Set(["e2"]) }).fitsInMemory(targets)).toBe(false);
  expect(coldPrompt(coldBlocks, { accepts: ({ key }) => key !== "e2" }).fitsInMemory(targets)).toBe(false);
  targets[2]!.usable = false;
  expect(coldPrompt(coldBlocks).fitsInMemory(targets)).toBe(false);
});

test("with no engine at all it need not wait for memory", () => {
  const { coldPrompt, targets } = rigOf(3);
  for (const target of targets) target.usable = false;
  expect(coldPrompt(coldBlocks).fitsInMemory(targets)).toBe(true);
  expect(coldPrompt(coldBlocks).fitsInMemory([])).toBe(true);
});
