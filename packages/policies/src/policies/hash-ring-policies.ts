import { mixWord } from "@espalier/core";
import { composePolicy } from "../compose-policy.ts";
import type { Decision, Picker } from "../decision.ts";
import { type PolicyDefinition, ringOptions } from "../definition.ts";
import { hashString } from "../hash.ts";
import { estimateRequests, requestLoad, writeLoadBounds } from "../load.ts";
import { createHashRing } from "../pickers/hash-ring.ts";
import { createLeastCostPicker } from "../pickers/least-cost.ts";
import type { ChoiceReason, RequestFeatures } from "../policy.ts";
import { weightedOnly } from "../weights.ts";

/** Separates the seeds of session keys from those of ring points, which count from 0. */
const sessionSeed = 0x5e551047;

export const consistentHashing: PolicyDefinition = {
  summary:
    "The engine of the session key on a hash ring, or the next one below its load bound. Without a session key: " +
    "fewest requests in flight.",
  source: "vLLM Router session affinity; bounded loads by Mirrokni, Thorup and Zadimoghaddam 2016",
  readsPrefixes: false,
  options: ringOptions,
  create: (option) =>
    composePolicy({
      name: "consistent_hashing",
      filters: [weightedOnly],
      terms: [{ scorer: requestLoad, weight: 1 }],
      picker: createRingPicker({
        loadFactor: option("load-factor"),
        pointsPerWeight: option("points-per-weight"),
        placeOf: ({ sessionKey }) => (sessionKey ? hashString(sessionKey, sessionSeed) : -1),
        reasonWithoutKey: "no_session_key",
      }),
    }),
};

/** Makes positions on the ring independent of other uses of the bits of a chain hash. */
const prefixSeed = 0x9e11ad2f;

export const prefixHash: PolicyDefinition = {
  summary:
    "The engine of the prompt prefix on a hash ring, or the next one below its load bound. For a prompt shorter " +
    "than a block: fewest requests in flight.",
  source: "KubeAI's PrefixHash; bounded loads by Mirrokni, Thorup and Zadimoghaddam 2016",
  readsPrefixes: true,
  options: [
    {
      name: "prefix-tokens",
      default: 256,
      range: "a whole number from 1 to 65536",
      accepts: (value) => Number.isInteger(value) && value >= 1 && value <= 65_536,
      meaning: "Tokens at the start of a prompt that are hashed, in full blocks.",
    },
    ...ringOptions,
  ],
  create: (option) =>
    composePolicy({
      name: "prefix_hash",
      prefixKeyTokens: option("prefix-tokens"),
      filters: [weightedOnly],
      terms: [{ scorer: requestLoad, weight: 1 }],
      picker: createRingPicker({
        loadFactor: option("load-factor"),
        pointsPerWeight: option("points-per-weight"),
        placeOf: ({ prefixKey }) => (prefixKey === undefined ? -1 : mixWord(prefixKey ^ prefixSeed)),
        reasonWithoutKey: "no_prefix_key",
      }),
    }),
};

interface RingPickerOptions {
  /** Ring points of a candidate of weight 1. */
  readonly pointsPerWeight: number;
  /** Highest load of a candidate relative to its fair share of the requests; 0 removes the bound. */
  readonly loadFactor: number;
  /** The position of a request's key on the ring, an unsigned 32-bit integer; -1 for a request without a key. */
  readonly placeOf: (request: RequestFeatures) => number;
  /** Reason to report for a request without a key, which takes the lowest cost. */
  readonly reasonWithoutKey: ChoiceReason;
}

/**
 * Looks up the request's key on a ring and walks clockwise past candidates at their bound of ceil(loadFactor x
 * (requests in flight + 1) x own share of the weight) requests (Mirrokni, Thorup, Zadimoghaddam, "Consistent hashing
 * with bounded loads", 2016). Without a key it takes the lowest cost.
 */
function createRingPicker(options: RingPickerOptions): Picker {
  const { pointsPerWeight, loadFactor, placeOf, reasonWithoutKey } = options;
  const ring = createHashRing(pointsPerWeight);
  const withoutKey = createLeastCostPicker(reasonWithoutKey);
  let loads = new Float64Array(0);
  let bounds = new Float64Array(0);

  const enter = (decision: Decision): void => {
    if (loads.length < decision.costs.length) {
      loads = new Float64Array(decision.costs.length);
      bounds = new Float64Array(decision.costs.length);
    }
    ring.enter(decision);
    estimateRequests(decision, loads);
    writeLoadBounds(decision, loads, loadFactor, bounds);
  };
  /** The bounds add up to more than the total load, so some candidate is always below its bound. */
  const walk = (hash: number): { readonly home: number; readonly end: number } => {
    let position = ring.seek(hash);
    found.home = -1;
    for (let step = 0; step < ring.size; step++) {
      const index = ring.candidateAt(position);
      position = position + 1 === ring.size ? 0 : position + 1;
      if (index === -1) continue;
      if (found.home === -1) found.home = index;
      found.end = index;
      if (loads[index]! < bounds[index]!) break;
    }
    return found;
  };
  const found = { home: -1, end: -1 };

  return {
    pick(decision, random, choice) {
      const hash = placeOf(decision.request);
      if (hash === -1) {
        withoutKey.pick(decision, random, choice);
        return;
      }
      enter(decision);
      const { home, end } = walk(hash);
      choice.index = end;
      choice.reason = end === home ? "hash" : "hash_overflow";
    },
    explain(decision, out) {
      const hash = placeOf(decision.request);
      if (hash === -1) return withoutKey.explain(decision, out);
      enter(decision);
      const { home, end } = walk(hash);
      out[end] = 1;
      const order = new Float64Array(decision.candidates.count).fill(Number.NaN);
      let met = 0;
      const start = ring.seek(hash);
      for (let step = 0; step < ring.size; step++) {
        const index = ring.candidateAt((start + step) % ring.size);
        if (index !== -1 && Number.isNaN(order[index]!)) order[index] = met++;
      }
      return {
        reason: end === home ? "hash" : "hash_overflow",
        terms: { load: loads.slice(), load_bound: bounds.slice(), walk_order: order },
      };
    },
  };
}
