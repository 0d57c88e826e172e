// A policy alone, over signals of your own: node examples/embedding/policy.mjs [policy]
import { systemRandom } from "@espalier/core";
import { createCandidateSet, createPolicy } from "@espalier/policies";

/** What is known of each engine: tokens of the prompt in its cache, tokens that wait to be computed, requests in flight. */
const engines = [
  { key: "warm and busy", matchedTokens: 3_500, pendingPrefillTokens: 12_000, inFlight: 9 },
  { key: "warm", matchedTokens: 3_500, pendingPrefillTokens: 1_000, inFlight: 3 },
  { key: "cold and idle", matchedTokens: 0, pendingPrefillTokens: 0, inFlight: 0 },
];
const request = { promptTokens: 4_000, expectedOutputTokens: 200, sessionKey: undefined, prefixKey: undefined };

const candidates = createCandidateSet();
for (const [target, { key, ...signals }] of engines.entries()) {
  const index = candidates.add(key, target);
  for (const [column, value] of Object.entries(signals)) candidates[column][index] = value;
}
const policy = createPolicy(process.argv[2] ?? "least_work");
const { index, reason } = policy.choose(request, candidates, systemRandom);
console.log(`${policy.name}: ${candidates.key[index]} (${reason})`);
for (const { key, probability } of policy.explain(request, candidates).candidates) {
  console.log(`  ${key}: ${(100 * probability).toFixed(0)} %`);
}
