import { createSeededRandom, type Random } from "@espalier/core";
import { fixedSeeds } from "@espalier/testing";
import { expect, test } from "vitest";
import { createHarness, GENERATED, type Harness } from "./harness.ts";
import { createReferencePool, nameOf } from "./reference-caches.ts";

const blockSize = 4;

/** CPU memory as a list of names, the one used longest ago first. */
function createReferenceList(capacity: number) {
  const names: string[] = [];
  const use = (name: string): void => {
    const at = names.indexOf(name);
    if (at >= 0) names.splice(at, 1);
    names.push(name);
    if (names.length > capacity) names.shift();
  };
  return {
    names,
    use,
    /** How many tokens it goes on behind the first `cached`. */
    reach(tokens: readonly number[], cached: number, prompt: number): number {
      const found: string[] = [];
      for (let end = cached + blockSize; end < prompt && names.includes(nameOf(tokens, end)); end += blockSize) {
        found.push(nameOf(tokens, end));
      }
      for (const name of found.reverse()) use(name);
      return found.length * blockSize;
    },
  };
}

/** Names of the blocks in CPU memory, as the events so far tell. */
function createCpuReader(harness: Harness): () => Set<string> {
  const names = new Map<bigint, string>();
  const inCpu = new Set<string>();
  let read = 0;
  return () => {
    for (const event of harness.events().slice(read)) {
      if (event.type === "cleared") continue;
      if (event.type === "stored" && event.medium === undefined) {
        let name = event.parentHash === undefined ? "" : `${names.get(event.parentHash)} `;
        for (const [at, hash] of event.hashes.entries()) {
          name += event.tokens.slice(at * blockSize, (at + 1) * blockSize).join(" ");
          names.set(hash, name);
          name += " ";
        }
      } else if (event.medium !== undefined) {
        for (const hash of event.hashes) {
          if (event.type === "stored") inCpu.add(names.get(hash)!);
          else inCpu.delete(names.get(hash)!);
        }
      }
    }
    read = harness.events().length;
    return inCpu;
  };
}

/**
 * A prompt out of a small tree of continuations, so that most of them share something with an earlier one. None ends with a
 * block: that block would be computed again, and of two copies only the last one goes to CPU memory.
 */
function randomPrompt(random: Random): number[] {
  const prompt = [random.integer(4)];
  const length = 1 + random.integer(3) + blockSize * random.integer(7);
  while (prompt.length < length) prompt.push(random.float() < 0.06 ? 10 + random.integer(2) : prompt.length + 100);
  return prompt;
}

test.each(fixedSeeds(6, 1))("vLLM's pool and a list in order of use, one request after the other: seed %i", (seed) => {
  const random = createSeededRandom(seed);
  const blockCount = 10 + random.integer(6);
  const cpuBlocks = 3 + random.integer(20);
  const harness = createHarness({ blockSize, blockCount, cpuBlocks, maxBatchedTokens: 64 }, seed);
  const pool = createReferencePool(blockCount, blockSize);
  const list = createReferenceList(cpuBlocks);
  const readCpu = createCpuReader(harness);
  let loaded = 0;
  let evictions = 0;
  for (let at = 0; at < 150; at++) {
    const prompt = randomPrompt(random);
    const outputTokens = 1 + random.integer(6);
    // The last token that is generated is not computed.
    const outputToken = (index: number): number => GENERATED + 100 * at + index;
    const tokens = [...prompt, ...Array.from({ length: outputTokens - 1 }, (_, index) => outputToken(index))];
    const { cached, evicted } = pool.serve(tokens, prompt.length);
    const fromCpu = list.reach(tokens, cached, prompt.length);
    for (const name of evicted.flat()) list.use(name);
    const where = `request ${at}: ${nameOf(tokens, tokens.length)}`;
    expect(harness.run(`r${at}`, prompt, outputTokens, { outputToken }).cachedTokens, where).toBe(cached + fromCpu);
    expect(readCpu(), where).toEqual(new Set(list.names));
    loaded += fromCpu;
    evictions += evicted.flat().length;
  }
  expect(harness.engine.stats()).toMatchObject({ loadedTokens: loaded, freeBlocks: blockCount, finished: 150 });
  expect(loaded).toBeGreaterThan(20);
  expect(evictions).toBeGreaterThan(150);
});
