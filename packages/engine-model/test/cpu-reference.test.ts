import { createSeededRandom, type Random } from "@espalier/core";
import { fixedSeeds } from "@espalier/testing";
import { expect, test } from "vitest";
import { createHarness, GENERATED, type Harness } from "./harness.ts";
import { createReferencePool, nameOf } from "./reference-caches.ts";

const blockSize = 4;

/** vLLM's offloading connector with a list of names of chunks, the one used longest ago first. */
function createReferenceConnector(capacity: number, chunk: number) {
  let names: string[] = [];
  const nameAt = (tokens: readonly number[], at: number): string => nameOf(tokens, (at + 1) * chunk);
  /** @returns whether there was room */
  const offer = (tokens: readonly number[], from: number, to: number): boolean => {
    const offered = Array.from({ length: Math.max(0, to - from) }, (_, at) => nameAt(tokens, from + at));
    const missing = offered.filter((name) => !names.includes(name));
    const excess = names.length + missing.length - capacity;
    const candidates = names.filter((name) => !offered.includes(name));
    if (excess > candidates.length) return false;
    const evicted = new Set(candidates.slice(0, Math.max(0, excess)));
    names = [...names.filter((name) => !evicted.has(name)), ...missing];
    return true;
  };
  return {
    names: () => names,
    /**
     * @param tokens the prompt, and what is computed of its output
     * @returns how many tokens are loaded behind the first `cached`
     */
    serve(tokens: readonly number[], prompt: number, cached: number, keepsOutputs: boolean): number {
      const first = Math.floor(cached / chunk);
      let end = first;
      while ((end + 1) * chunk <= prompt && names.includes(nameAt(tokens, end))) end++;
      const loads = end * chunk - cached >= chunk;
      let next = loads ? end : 0;
      if (offer(tokens, next, Math.floor(prompt / chunk))) next = Math.max(next, Math.floor(prompt / chunk));
      const computed = keepsOutputs ? tokens.length : prompt;
      offer(tokens, next, Math.floor(computed / chunk));
      for (let at = Math.floor(computed / chunk) - 1; at >= (loads ? first : 0); at--) {
        const name = nameAt(tokens, at);
        if (names.includes(name)) names = [...names.filter((other) => other !== name), name];
      }
      return loads ? end * chunk - cached : 0;
    },
  };
}

/** Names of the chunks in CPU memory, as the events so far tell: those of their last blocks. */
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

/** A prompt out of a small tree of continuations, so that most of them share something with an earlier one. */
function randomPrompt(random: Random): number[] {
  const prompt = [random.integer(4)];
  const length = 1 + random.integer(blockSize) + blockSize * random.integer(7);
  while (prompt.length < length) prompt.push(random.float() < 0.06 ? 10 + random.integer(2) : prompt.length + 100);
  return prompt;
}

test.each(fixedSeeds(9, 1))(
  "vLLM's pool and its connector with lists, one request after the other: seed %i",
  (seed) => {
    const random = createSeededRandom(seed);
    const blockCount = 10 + random.integer(6);
    const cpuChunkBlocks = 1 + (seed % 3);
    const cpuBlocks = cpuChunkBlocks * (10 + random.integer(12));
    const cpuWrites = random.integer(2) === 0 ? "prompt" : "all";
    const harness = createHarness(
      { blockSize, blockCount, cpuBlocks, cpuChunkBlocks, cpuWrites, maxBatchedTokens: 64 },
      seed,
    );
    const pool = createReferencePool(blockCount, blockSize);
    const connector = createReferenceConnector(cpuBlocks / cpuChunkBlocks, cpuChunkBlocks * blockSize);
    const readCpu = createCpuReader(harness);
    let loaded = 0;
    let evictions = 0;
    for (let at = 0; at < 300; at++) {
      const prompt = randomPrompt(random);
      const outputTokens = 1 + random.integer(6);
      // The last token that is generated is not computed.
      const outputToken = (index: number): number => GENERATED + 100 * at + index;
      const tokens = [...prompt, ...Array.from({ length: outputTokens - 1 }, (_, index) => outputToken(index))];
      const { cached, evicted } = pool.serve(tokens, prompt.length);
      const fromCpu = connector.serve(tokens, prompt.length, cached, cpuWrites === "all");
      const where = `request ${at}: ${nameOf(tokens, tokens.length)}`;
      expect(harness.run(`r${at}`, prompt, outputTokens, { outputToken }).cachedTokens, where).toBe(cached + fromCpu);
      expect(readCpu(), where).toEqual(new Set(connector.names()));
      loaded += fromCpu;
      evictions += evicted.flat().length;
    }
    expect(harness.engine.stats()).toMatchObject({ loadedTokens: loaded, freeBlocks: blockCount, finished: 300 });
    expect(loaded).toBeGreaterThan(20);
    expect(evictions).toBeGreaterThan(150);
  },
);
