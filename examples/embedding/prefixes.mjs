// The prefix index alone: which server has how much of a prompt. node examples/embedding/prefixes.mjs

import { chainRoot, createBlockHasher } from "@espalier/core";
import { createPrefixIndex, createPrefixMatches, tier } from "@espalier/prefix-index";

const blockSize = 16;
const maxTargets = 8;
const root = chainRoot({ seed: "example", blockSize, unit: "tokens" });
const hasher = createBlockHasher();
const index = createPrefixIndex({ maxTargets });

/** The chain of a prompt's full blocks: a hash for each, two words a hash. */
function chainOf(tokens) {
  const chain = new Uint32Array(2 * Math.floor(tokens.length / blockSize));
  const count = hasher.hashTokens({ tokens, blockSize, parent: root, chain });
  return { chain, count };
}

const prompt = Uint32Array.from({ length: 160 }, (_, at) => at);
const { chain, count } = chainOf(prompt);
index.storeFacts(1, tier.gpu, chain, 0, count); // Server 1 announced all ten blocks,
index.storeFacts(2, tier.gpu, chain, 0, 4); // server 2 the first four;
index.place(3, chain, 6, { nowMs: 0, ttlMs: 60_000 }); // and six were just sent to server 3.

const longer = Uint32Array.from({ length: 200 }, (_, at) => at);
const asked = chainOf(longer);
const matches = createPrefixMatches(maxTargets);
index.match(asked.chain, asked.count, 0, matches);
for (const target of [...matches.targets.subarray(0, matches.count)].sort()) {
  const announced = matches.gpuBlocks[target] * blockSize;
  const sent = matches.placedBlocks[target] * blockSize;
  console.log(`server ${target}: ${announced} tokens announced, ${sent} sent there, of ${longer.length}`);
}
