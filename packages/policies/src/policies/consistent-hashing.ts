import { composePolicy } from "../compose-policy.ts";
import type { PolicyDefinition } from "../definition.ts";
import { hashString } from "../hash.ts";
import { requestLoad } from "../load.ts";
import { createRingPicker } from "../pickers/ring.ts";
import { ringOptions } from "../policy-options.ts";
import { weightedOnly } from "../weights.ts";

/** Keeps the seeds of session keys apart from those of ring points, which count from 0. */
const sessionSeed = 0x5e551047;

export const consistentHashing: PolicyDefinition = {
  summary:
    "The engine at the session key's place on a hash ring, or the next one that is not above its share of the load; " +
    "without a session key the engine with the fewest requests in flight.",
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
