// A program of someone else, which the tests compile against the packages as they are published.
import { createSeededRandom, silentLogger } from "@espalier/core";
import { type CustomPolicy, composeCustomPolicy, type Scorer } from "@espalier/policies";
import { checkPolicy } from "@espalier/policies/conformance";
import { createPrefixIndex } from "@espalier/prefix-index";
import { type Auth, createRouter, type Hooks, loadConfig } from "@espalier/server";
import { createReplica } from "@espalier/shared-tree";
import { createKvFeed } from "@espalier/shared-tree/events";
import { scenarioNames, traceFormats } from "@espalier/simulator";
import { shippedModelFolder } from "@espalier/tokenizer";

const queue: Scorer = {
  name: "queue",
  score({ candidates, eligible, eligibleCount }, out) {
    for (const index of eligible.subarray(0, eligibleCount)) out[index] = candidates.waiting[index] || 0;
  },
};
const mine: CustomPolicy = {
  terms: [
    { scorer: queue, weight: 1 },
    { scorer: "requests", weight: 0.1 },
  ],
};
checkPolicy(() => composeCustomPolicy("mine", mine), { runs: 10 });

const hooks: Hooks = {
  onRequest: ({ headers }) => (headers["x-team"] ? { headers: { "x-seen": "1" } } : undefined),
  onAnswer: ({ status, engine }) => [status, engine],
};
const auth: Auth = async ({ headers }) => (headers.authorization === undefined ? undefined : { name: "someone" });
const config = loadConfig({ flags: { "--policy": "mine" }, policies: ["mine"] });
export const router = createRouter({ config, policies: { mine }, hooks, auth, logger: silentLogger });
export const others = [createPrefixIndex, createReplica, createKvFeed, createSeededRandom, shippedModelFolder];
export const lists: readonly string[] = [...scenarioNames, ...traceFormats];
