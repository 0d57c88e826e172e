import type { Random } from "@espalier/core";
import { blockTokens, type SimRequest } from "../../src/clients/workload.ts";

/** Distinct words for each block of a tree of chains, given by its path. */
export function chainOf(path: readonly number[]): Uint32Array {
  const chain = new Uint32Array(2 * path.length);
  let low = 17;
  let high = 0;
  for (const [place, step] of path.entries()) {
    low = Math.imul(low ^ step, 0x01000193) + 0x9e3779b9;
    high = Math.imul(high ^ low, 0x85ebca6b) + step;
    chain[2 * place] = low;
    chain[2 * place + 1] = high;
  }
  return chain;
}

export function requestOf(parts: {
  readonly chain: Uint32Array;
  readonly promptTokens?: number;
  readonly outputTokens?: number;
  readonly turn?: number;
}): SimRequest {
  const { chain, turn = 0 } = parts;
  const tokens = (chain.length / 2) * blockTokens;
  const outputTokens = parts.outputTokens ?? 1;
  const promptTokens = parts.promptTokens ?? Math.max(1, tokens + blockTokens - 1 - outputTokens);
  return { index: 0, session: 0, turn, promptTokens, outputTokens, chain };
}

/** Chains that share beginnings: steps are drawn from few, so paths meet and part often. */
export function randomRequest(random: Random, { maxBlocks, steps }: { maxBlocks: number; steps: number }): SimRequest {
  const path = Array.from({ length: random.integer(maxBlocks + 1) }, () => random.integer(steps));
  const tokens = path.length * blockTokens + random.integer(blockTokens);
  const promptTokens = 1 + random.integer(Math.max(1, tokens - 1));
  return requestOf({
    chain: chainOf(path),
    promptTokens,
    outputTokens: Math.max(1, tokens - promptTokens),
    turn: random.integer(3),
  });
}
