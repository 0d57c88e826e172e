import { engineOrders, engineRoles } from "@espalier/routing";
import { agentTraceLines } from "../clients/agent-trace.ts";
import { faultNames } from "../faults.ts";
import { sharings } from "../run.ts";
import { clients, clientsLike, createClients, isOpenLoop } from "./clients.ts";
import { cells, engines, fleet, parameters, preset, routers, topology } from "./fleet-file.ts";
import {
  boolean,
  count,
  countOrNone,
  list,
  milliseconds,
  named,
  number,
  object,
  oneOf,
  plainObject,
  positive,
  type Read,
  readFile,
  record,
  seconds,
  string,
} from "./read-fields.ts";
import type { Scenario, ScenarioVariant } from "./scenario.ts";

const sharing = named(sharings);
const role = named(engineRoles);
const llmdRule = object({}, { minPullTokens: count, draws: boolean });

/** A number of tokens, or `never`. */
const threshold: Read<number> = (value, field, fail) =>
  value === "never" ? Number.POSITIVE_INFINITY : countOrNone(value, field, fail);

const policyOptions = record(number);

const kvPool = object(
  { blocks: count, latencyMs: milliseconds, bytesPerSecond: positive, pairBytesPerSecond: positive },
  { chunkBlocks: count },
);

/** Milliseconds, or `none`. */
const objective: Read<number> = (value, field, fail) =>
  value === "none" ? Number.POSITIVE_INFINITY : positive(value, field, fail);
const slo = object({}, { ttftMs: objective, tpotMs: objective });

const anyObject: Read<Readonly<Record<string, unknown>>> = plainObject;

const variantFields = object(
  { name: string },
  {
    ...{ preset, engines, routers, cells, topology, scale: positive, parameters, admission: boolean, policyOptions },
    ...{ maxColdWaitS: seconds, engineOrder: oneOf(...engineOrders), roles: list(role), appliesBalance: boolean },
    ...{ splitTokens: threshold, llmdRule, kvPool, slo, clients: anyObject },
  },
);

const published = object(
  { source: string, metric: string, policy: string, policyValue: number, baseline: string, baselineValue: number },
  { policyUpTo: number, variant: string, baselineVariant: string, sharing, baselineSharing: sharing, note: string },
);

const timing = object(
  {},
  {
    ...{ eventDelayMs: milliseconds, linkDelayMs: milliseconds, hopDelayMs: milliseconds, frontMs: milliseconds },
    ...{ scrapeMs: milliseconds, sharedFactsMs: milliseconds, sharedLoadMs: milliseconds },
  },
);

const scenarioFields = object(
  { name: string, summary: string, fleet, clients: anyObject },
  {
    ...{ notes: list(string), policies: list(string), variants: list(variantFields), published: list(published) },
    ...{ durationS: seconds, sharing: list(sharing), trace: string, admission: boolean, timing },
    ...{ fault: oneOf(...faultNames), syntheticTrace: object({ sessions: count, seed: count }) },
    split: object({ roles: list(role), setupMs: milliseconds, bytesPerS: positive }),
  },
);

/** Policies that a file does not name: a baseline, and the default. */
const usualPolicies = ["round_robin", "predicted_latency"];

const read: Read<Scenario> = (value, field, fail) => {
  const { clients: written, syntheticTrace, variants = [], ...rest } = scenarioFields(value, field, fail);
  const own = clients(written, "clients", fail);
  const context = { ...rest, syntheticTrace };
  return {
    policies: usualPolicies,
    published: [],
    ...rest,
    isOpenLoop: isOpenLoop(own),
    ...(own.loop === "trace-users" && { users: own.users }),
    ...(syntheticTrace && { syntheticTrace: () => agentTraceLines(syntheticTrace) }),
    variants: variants.map(({ clients: changed, ...variant }, at): ScenarioVariant => {
      const path = `variants[${at}].clients`;
      const theirs = changed === undefined ? undefined : clientsLike(written)(changed, path, fail);
      return { ...variant, ...(theirs && { createWorkload: (options) => createClients(theirs, options, context) }) };
    }),
    createWorkload: (options) => createClients(own, options, context),
  };
};

/**
 * Reads a scenario: the fleet, its clients, policies to compare, variants and published results.
 *
 * @param path of the file, for messages
 * @throws EspalierError `config_invalid` naming the file and the field
 */
export const readScenario = (text: string, path: string): Scenario => readFile(text, path, read);

/** A user's own trace on a user's own fleet. Each run's `trace` gives the rows. */
export function traceScenario(name: string, fleet: Scenario["fleet"]): Scenario {
  const clients = { loop: "trace" } as const;
  return {
    ...{ name, fleet, trace: name, policies: usualPolicies, variants: [], published: [], isOpenLoop: true },
    summary: `The trace ${name} on ${fleet.engines} engines.`,
    createWorkload: (options) => createClients(clients, options, { name }),
  };
}
