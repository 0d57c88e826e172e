import { createSeededRandom, type Random } from "@espalier/core";
import { fixedSeeds } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { createHarness, GENERATED, type Harness } from "./harness.ts";
import { createReferencePool, createReferenceTree, nameOf } from "./reference-caches.ts";

const blockSize = 4;

/** Names blocks by everything up to their end, as the reference does, and collects what is given up. */
function createRemovalReader(harness: Harness): () => string[][] {
  const names = new Map<bigint, string>();
  let read = 0;
  return () => {
    const removals: string[][] = [];
    for (const event of harness.events().slice(read)) {
      if (event.type === "stored") {
        let name = event.parentHash === undefined ? "" : `${names.get(event.parentHash)} `;
        for (const [at, hash] of event.hashes.entries()) {
          name += event.tokens.slice(at * blockSize, (at + 1) * blockSize).join(" ");
          names.set(hash, name);
          name += " ";
        }
      }
      if (event.type === "removed") removals.push(event.hashes.map((hash) => names.get(hash)!));
    }
    read = harness.events().length;
    return removals;
  };
}

/** A prompt out of a small tree of continuations, so that most of them share something with an earlier one. */
function randomPrompt(random: Random): number[] {
  const prompt = [random.integer(3)];
  const length = 2 + random.integer(26);
  while (prompt.length < length) prompt.push(random.float() < 0.08 ? 10 + random.integer(2) : prompt.length + 100);
  return prompt;
}

describe.each([
  ["vllm", createReferencePool],
  ["sglang", createReferenceTree],
] as const)("%s agrees with a plain reference on requests one after the other", (flavour, createReference) => {
  test.each(fixedSeeds(6, 1))("seed %i", (seed) => {
    const random = createSeededRandom(seed);
    const blockCount = 10 + random.integer(14);
    const harness = createHarness({ flavour, blockSize, blockCount, maxBatchedTokens: 64 }, seed);
    const reference = createReference(blockCount, blockSize);
    const readRemovals = createRemovalReader(harness);
    let evictions = 0;
    for (let at = 0; at < 150; at++) {
      const prompt = randomPrompt(random);
      const outputTokens = 1 + random.integer(9);
      // The last token that is generated is not computed.
      const tokens = [...prompt, ...Array.from({ length: outputTokens - 1 }, (_, index) => GENERATED + index)];
      const wanted = reference.serve(tokens, prompt.length);
      const { cachedTokens } = harness.run(`r${at}`, prompt, outputTokens);
      const removed = readRemovals();
      const where = `request ${at}: ${nameOf(tokens, tokens.length)}`;
      expect(cachedTokens, where).toBe(wanted.cached);
      expect(removed.flat(), where).toEqual(wanted.evicted.flat());
      evictions += removed.flat().length;
    }
    expect(evictions).toBeGreaterThan(150);
    expect(harness.engine.stats()).toMatchObject({ freeBlocks: blockCount, kvUse: 0, finished: 150 });
  });
});
