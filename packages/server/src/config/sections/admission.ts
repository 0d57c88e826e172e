import { Type } from "typebox";
import { choice, duration, flag, integer, list, number, section, size, text } from "../schema-builders.ts";
import { ownSlo } from "./slo.ts";

const className = (description: string) =>
  text({
    description,
    maxLength: 64,
    pattern: "^[a-z0-9][a-z0-9_-]*$",
    expected: "a name of lower-case letters, digits, - and _",
  });

const classes = list(
  section("A priority class.", {
    name: className("Name of the priority class, as requests give it in `x-espalier-priority`."),
    order: choice(["fcfs", "edf", "shortest_prefill"], {
      description:
        "Order of one tenant's requests in the queue: `fcfs` by arrival, `edf` by deadline, `shortest_prefill` by uncached prompt tokens, each of which counts as 5 ms of waiting time.",
      default: "shortest_prefill",
    }),
    share: number({
      description:
        "Share of the computed tokens that the class gets at least, with `class-scheduling: strict`; its weight with `class-scheduling: deficit`. The shares of all classes add up to at most 1.",
      default: 0,
      minimum: 0,
      maximum: 1,
    }),
    target: Type.Optional(
      duration({
        description:
          "Target for the time to first token, for requests that state no deadline. A request that cannot meet it is rejected at once.",
        minimum: "1ms",
        maximum: "24h",
      }),
    ),
    slo: ownSlo("of the class", "those of the request's model"),
    "on-miss": choice(["reject", "demote"], {
      description:
        "What happens to a request that would miss its deadline: `reject` answers 429, `demote` moves it to the next lower class.",
      default: "reject",
    }),
    "max-pending-tokens": integer({
      description:
        "Prompt tokens pending at an engine of weight 1 above which it gets no more requests of the class. Requests wait in the router only while every engine is above it.",
      default: 32_768,
      minimum: 1,
      maximum: 1_000_000_000,
    }),
    "max-cold-wait": duration({
      description:
        "Longest time a request without a deadline waits for an engine whose cache has free space, rather than evict blocks that other requests are expected to reuse. Only prompts of which the engine must compute more than half, and at least 2,048 tokens, wait.",
      default: "0s",
      minimum: "0s",
      maximum: "5m",
    }),
    overflow: choice(["allow", "never"], {
      description: "Whether requests of the class may go to an `overflow` backend.",
      default: "allow",
    }),
    yields: flag({
      description:
        "Confine the class to part of a pool's engines, in proportion to its share of the work, while requests of classes that do not yield are present. Their requests then avoid the long prompts of this class.",
      default: false,
    }),
  }),
  {
    description: "Priority classes, the highest first.",
    minItems: 1,
    maxItems: 16,
    default: [
      { name: "interactive" },
      { name: "default" },
      { name: "batch", share: 0.1, "max-pending-tokens": 16_384, yields: true },
      { name: "background", share: 0.02, "max-pending-tokens": 16_384, yields: true },
    ],
  },
);

const directions = ["off", "lower-first", "higher-first"] as const;

export const admission = section("Queueing in the router while every engine of a pool is saturated.", {
  mode: choice(["on", "off"], {
    description: "Whether requests queue in the router: `off` forwards every request at once.",
    default: "on",
  }),
  classes,
  "default-class": text({
    description: "Default priority class.",
    maxLength: 64,
    default: "default",
  }),
  "class-scheduling": choice(["strict", "deficit"], {
    description:
      "Which class goes next: `strict` takes the highest one, but gives each class its `share`; `deficit` takes classes in proportion to their shares.",
    default: "strict",
  }),
  "max-queued": integer({
    description:
      "Maximum queued requests per pool. Beyond it, a request of a higher class evicts the youngest of the lowest class; any other is answered with 429.",
    default: 1_024,
    minimum: 0,
    maximum: 1_000_000,
  }),
  "max-queued-bytes": size({
    description:
      "Maximum bytes of queued request bodies per pool. Beyond it, requests are evicted or rejected as with `admission.max-queued`.",
    default: "256MiB",
    minimum: "1KiB",
    maximum: "64GiB",
  }),
  "max-waiting": integer({
    description: "Requests in an engine's own queue, by its metrics, at which the engine counts as saturated.",
    default: 16,
    minimum: 1,
    maximum: 1_000_000,
  }),
  "max-kv-use": number({
    description: "Share of KV blocks in use at which an engine with a queue counts as saturated.",
    default: 0.95,
    minimum: 0,
    maximum: 1,
  }),
  "trust-tenant-header": flag({
    description:
      "With `api-keys`, take the tenant from `x-espalier-tenant` before the key's name. Enable it only for keys of multi-tenant gateways: a client could otherwise use another tenant's share.",
    default: false,
  }),
  "body-priority": choice(directions, {
    description:
      "How to read `priority` in a body if no header names a class. With `lower-first` (as in vLLM), numbers below 0 mean the highest class and numbers above 0 the class after the default one; `higher-first` is the reverse.",
    default: "off",
  }),
  "engine-priority": choice(directions, {
    description:
      "Send the class to engines as `priority` in the body, for engines whose scheduler uses it: `lower-first` for vLLM with `--scheduling-policy priority`, `higher-first` for SGLang with `--enable-priority-scheduling`.",
    default: "off",
  }),
  "engine-order": choice(["arrival", "shortest"], {
    description:
      "Order of a class in the engine's queue. `shortest` encodes in `priority` the tokens to compute, with aging against starvation; it needs `engine-priority: lower-first`.",
    default: "arrival",
  }),
});
