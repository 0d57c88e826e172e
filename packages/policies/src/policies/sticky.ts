import { composePolicy } from "../compose-policy.ts";
import type { PolicyDefinition } from "../definition.ts";
import { createBoundSessionPicker } from "../pickers/bound-session.ts";
import { amount } from "../policy-options.ts";
import { weightedOnly } from "../weights.ts";
import { leastWork, leastWorkParts } from "./least-work.ts";

const maxIdleSeconds = 86_400;

export const sticky: PolicyDefinition = {
  summary:
    "The engine to which the session is bound: at first the one that least_work takes, and that one again wherever in the " +
    "fleet of routers the session goes on. It moves when its engine is gone or has too many requests in flight, to the " +
    "engine that least_work takes then. Without a session key as least_work.",
  source: "SMG's manual policy and NVIDIA Dynamo's session affinity; bounded loads as for consistent_hashing",
  readsPrefixes: true,
  options: [
    {
      name: "max-idle-seconds",
      default: 14_400,
      range: `a number from 1 to ${maxIdleSeconds}`,
      accepts: (value) => value >= 1 && value <= maxIdleSeconds,
      meaning: "How long a session without requests stays bound; at least three quarters of it.",
    },
    {
      name: "session-load-factor",
      default: 2,
      range: "0, or 1 or more",
      accepts: (value) => value === 0 || (value >= 1 && value < Number.POSITIVE_INFINITY),
      meaning:
        "How far above its even share of the requests in flight an engine may go before its sessions move; 0 removes the " +
        "bound.",
    },
    amount({
      name: "session-free-requests",
      default: 8,
      meaning:
        "Requests in flight at an engine of weight 1 with fewer of which it keeps its sessions whatever others have.",
    }),
    ...leastWork.options,
  ],
  create: (option) => {
    const { terms, picker: inner } = leastWorkParts(option);
    return composePolicy({
      name: "sticky",
      bindingTtlMs: option("max-idle-seconds") * 1_000,
      filters: [weightedOnly],
      terms,
      picker: createBoundSessionPicker({
        inner,
        loadFactor: option("session-load-factor"),
        freeRequests: option("session-free-requests"),
      }),
    });
  },
};
