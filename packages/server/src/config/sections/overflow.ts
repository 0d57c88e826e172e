import { isLoopback } from "@espalier/core";
import { Type } from "typebox";
import type { Problem } from "../problems.ts";
import type { ConfigTree } from "../schema.ts";
import { choice, integer, list, map, number, section, text } from "../schema-builders.ts";
import { compiled, type SettingsOf } from "../settings-of.ts";

/** When a request goes to an overflow backend. */
const overflowReasons = ["no-engine", "deadline", "queue"] as const;

const price = (description: string) => number({ description, default: 0, minimum: 0, maximum: 1_000_000 });

const budget = (description: string) =>
  Type.Optional(number({ description, minimum: 0.000001, maximum: 1_000_000_000 }));

const backend = section("A provider outside the fleet that answers requests when the engines cannot.", {
  name: text({
    description: "Name of the backend in answers, metrics and logs.",
    maxLength: 64,
    pattern: "^[A-Za-z0-9][A-Za-z0-9._-]*$",
    expected: "a name of letters, digits, ., _ and -",
  }),
  url: text({
    description: "Base URL of the backend, such as `https://api.openai.com/v1`. Certificates are checked.",
    maxLength: 2_048,
    pattern: "^https?://[^\\s/?#@]+(/[^\\s?#]*)?$",
    expected: "an http or https URL without user, query or fragment",
  }),
  api: choice(["openai", "anthropic"], {
    description: "API of the backend. Requests of the other API are not sent there; nothing is translated.",
    default: "openai",
  }),
  key: Type.Optional(
    text({
      description:
        "API key of the backend: `${NAME}` reads an environment variable, `${file:PATH}` a file. It is sent as `authorization: Bearer`, or as `x-api-key` with `api: anthropic`.",
      maxLength: 4_096,
      pattern: "^[\\x21-\\x7e]+$",
      expected: "a key of visible ASCII characters",
      isSecret: true,
    }),
  ),
  models: map(text({ description: "Name of the model at the backend.", maxLength: 256 }), {
    description: "Models that the backend answers for, as engines name them, with their names at the backend.",
    maxProperties: 1_000,
  }),
  when: list(
    choice(overflowReasons, {
      description:
        "`no-engine`: no engine of the model is up. `deadline`: the request would miss its deadline. `queue`: the request would wait behind `max-queued` others.",
      default: "no-engine",
    }),
    {
      description: "Conditions for requests to go to the backend.",
      minItems: 1,
      maxItems: overflowReasons.length,
      default: overflowReasons,
    },
  ),
  "max-queued": integer({
    description: "Queued requests per model and router beyond which further ones go to the backend.",
    default: 64,
    minimum: 1,
    maximum: 1_000_000,
  }),
  price: section("Prices of the backend, in any currency.", {
    input: price("Price of a million prompt tokens."),
    output: price("Price of a million output tokens."),
  }),
  budget: section("Mesh-wide budget for the backend, in the currency of the price.", {
    hour: budget("Budget per clock hour (UTC). Default: unlimited."),
    day: budget("Budget per calendar day (UTC). Default: unlimited."),
  }),
  "except-tenants": list(text({ description: "Name of a tenant.", maxLength: 128 }), {
    description: "Tenants whose requests never go to the backend.",
    maxItems: 10_000,
  }),
});

export type OverflowReason = "no_engine" | "deadline" | "queue";

/** A provider that answers requests when the engines cannot. */
export interface OverflowConfig extends Omit<SettingsOf<typeof backend>, "models" | "when" | "exceptTenants"> {
  /** Without `/v1`, which paths of requests begin with. */
  readonly url: string;
  /** Names of models at the backend, by their names at engines. */
  readonly models: ReadonlyMap<string, string>;
  readonly when: ReadonlySet<OverflowReason>;
  /** Infinity for no bound. */
  readonly budget: { readonly hour: number; readonly day: number };
  readonly exceptTenants: ReadonlySet<string>;
}

/** A URL may end in `/v1`. Requests look up their model, tenant and reason, which may be thousands. */
function compileBackend({
  url,
  models,
  when,
  budget,
  exceptTenants,
  ...settings
}: SettingsOf<typeof backend>): OverflowConfig {
  return {
    ...settings,
    url: url.replace(/\/+$/, "").replace(/\/v1$/, ""),
    models: new Map(Object.entries(models)),
    when: new Set(when.map((reason) => (reason === "no-engine" ? "no_engine" : reason))),
    budget: { hour: budget.hour ?? Number.POSITIVE_INFINITY, day: budget.day ?? Number.POSITIVE_INFINITY },
    exceptTenants: new Set(exceptTenants),
  };
}

export const overflow = list(compiled(backend, compileBackend), {
  description:
    "Providers outside the fleet that answer requests when the engines cannot. The first eligible one is used.",
  maxItems: 16,
});

export function checkOverflow({ overflow: backends }: ConfigTree): Problem[] {
  const names = new Set<string>();
  return backends.flatMap(({ name, url, models, price, budget }, at) => {
    const path = ["overflow", at];
    const problems: Problem[] = [];
    if (names.has(name)) problems.push({ path: [...path, "name"], message: `${name} is the name of another backend` });
    names.add(name);
    if (!URL.canParse(url)) problems.push({ path: [...path, "url"], message: `${JSON.stringify(url)} is not a URL` });
    if (Object.keys(models).length === 0) problems.push({ path: [...path, "models"], message: "names no model" });
    if ((budget.hour ?? budget.day) !== undefined && price.input === 0 && price.output === 0) {
      problems.push({ path: [...path, "budget"], message: "needs a price, or the budget has no effect" });
    }
    return problems;
  });
}

/** Backends whose key anybody on the way can read, in sentences. */
export function overflowWarnings({ overflow: backends }: ConfigTree): readonly string[] {
  return backends
    .filter(({ url, key }) => key !== undefined && url.startsWith("http:") && !isLoopback(new URL(url).hostname))
    .map(({ name }) => `The key of the overflow backend ${name} is sent without TLS.`);
}
