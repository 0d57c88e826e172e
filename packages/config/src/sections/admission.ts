import { Type } from "typebox";
import { choice, duration, flag, integer, list, number, section, size, text } from "../schema-builders.ts";

const className = (description: string) =>
  text({
    description,
    maxLength: 64,
    pattern: "^[a-z0-9][a-z0-9_-]*$",
    expected: "a name of lower-case letters, digits, - and _",
  });

const classes = list(
  section("A class of requests.", {
    name: className("What `x-espalier-priority` calls it."),
    order: choice(["fcfs", "edf", "shortest_prefill"], {
      description:
        "Which of a tenant's requests goes first: the one that came first, the one that is due first, or the one with " +
        "the least to compute, with an age that lets none wait for ever.",
      default: "fcfs",
    }),
    share: number({
      description:
        "Part of the computed tokens that the class gets at least, under `between: strict`; its weight under `deficit`. " +
        "All shares add up to 1 at most.",
      default: 0,
      minimum: 0,
      maximum: 1,
    }),
    target: Type.Optional(
      duration({
        description:
          "The first token is due so long after a request came, where the request does not say. What cannot be in time is refused at once, so set it if you have one. None unless given.",
        minimum: "1ms",
        maximum: "24h",
      }),
    ),
    "on-miss": choice(["reject", "demote"], {
      description: "What becomes of a request that cannot go before it is due: 429, or the next lower class.",
      default: "reject",
    }),
    "max-pending-tokens": integer({
      description:
        "Prompt tokens that wait at an engine of weight 1 from which on it gets no more of this class. Requests wait in " +
        "the router only while every engine is there.",
      default: 32_768,
      minimum: 1,
      maximum: 1_000_000_000,
    }),
    patience: duration({
      description:
        "How long a request without a deadline may wait for an engine that would not drop, to take it in, what others are " +
        "expected to come back for. Only prompts of which the engine has to compute more than half, and 2,048 tokens, wait.",
      default: "0s",
      minimum: "0s",
      maximum: "5m",
    }),
    yields: flag({
      description:
        "Keep the class to some of a pool's engines, by its part of the work, while classes that do not yield are there: " +
        "their requests then meet none of its long prompts.",
      default: false,
    }),
  }),
  {
    description: "Classes of requests, the highest first.",
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

export const admission = section("Who waits in the router, and who goes next, while every engine of a pool is busy.", {
  mode: choice(["on", "off"], { description: "`off` sends every request on at once.", default: "on" }),
  classes,
  "default-class": text({
    description: "The class of a request that names none.",
    maxLength: 64,
    default: "default",
  }),
  between: choice(["strict", "deficit"], {
    description: "Which class goes next: the highest one, but for the shares of others; or each by its share.",
    default: "strict",
  }),
  "max-queued": integer({
    description:
      "Requests that wait for one pool. Beyond it, the youngest of the lowest class makes room for a higher one; else " +
      "429.",
    default: 1_024,
    minimum: 0,
    maximum: 1_000_000,
  }),
  "max-queued-bytes": size({
    description: "And bytes of their bodies.",
    default: "256MiB",
    minimum: "1KiB",
    maximum: "64GiB",
  }),
  "max-waiting": integer({
    description: "Requests in an engine's own queue, by its metrics, from which on it gets no more.",
    default: 16,
    minimum: 1,
    maximum: 1_000_000,
  }),
  "max-kv-use": number({
    description:
      "Share of an engine's KV blocks in use from which on it gets no more while its own queue is not empty.",
    default: 0.95,
    minimum: 0,
    maximum: 1,
  }),
  "trust-tenant-header": flag({
    description:
      "Where there are `api-keys`, take the tenant from `x-espalier-tenant` before the key's name. For keys of gateways that speak for many; others could take each other's share.",
    default: false,
  }),
  "body-priority": choice(directions, {
    description:
      "How `priority` in a body is read where no header names a class: numbers below 0 and above 0 stand for the highest " +
      "class and for the one after the default, with `lower-first` (vLLM) in this order.",
    default: "off",
  }),
  "engine-priority": choice(directions, {
    description:
      "Tell engines the class as `priority` in the body. Only for engines whose scheduler goes by it: `lower-first` for " +
      "vLLM with `--scheduling-policy priority`, `higher-first` for SGLang with `--enable-priority-scheduling`.",
    default: "off",
  }),
  "engine-order": choice(["arrival", "shortest"], {
    description:
      "Which of the requests of a class goes first that wait in an engine. `shortest` tells engines in the same number whose " +
      "prompt they compute least on, with an age that lets none wait for ever; it needs `engine-priority: lower-first`.",
    default: "arrival",
  }),
});
