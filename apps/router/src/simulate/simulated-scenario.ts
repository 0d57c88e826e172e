import { readFile } from "node:fs/promises";
import { basename } from "node:path";
import { EspalierError } from "@espalier/core";
import { type CustomPolicies, policyNames } from "@espalier/policies";
import {
  clusterIp,
  nearRivalNames,
  parseFleet,
  readScenario,
  readTrace,
  rivalNames,
  type Scenario,
  type ScenarioFleet,
  scenario,
  scenarioNames,
  type TraceRequest,
  traceScenario,
} from "@espalier/simulator";
import { readName, UsageError } from "../cli/read-flags.ts";
import type { ScenarioSource } from "./simulate-options.ts";

export interface SimulatedScenario {
  readonly scenario: Scenario;
  /** Rows of the trace, in a scenario that replays one. */
  readonly trace: readonly TraceRequest[] | undefined;
  /** Those of plugins. */
  readonly customPolicies?: CustomPolicies;
}

/** Replaces a scenario's name to select all cases by which policies are judged. */
export const worstCaseName = "worst-case";

/** Replaces a scenario's name to weigh the parts of the default policy in those cases. */
export const ablationName = "ablation";

/** The fleet for a user's own trace without a fleet: that of `espalier replay`. */
const usualFleet: ScenarioFleet = { preset: "h100-32b-tp2", parameters: {}, engines: 8, routers: 1 };

/**
 * Finds a scenario and reads its files.
 *
 * @throws UsageError for an unknown scenario and for a missing or superfluous trace, EspalierError `config_invalid` for
 * a wrong fleet, `plugin_invalid`, `config_unreadable`, `trace_unreadable`, `trace_invalid`
 */
export async function loadScenario(source: ScenarioSource): Promise<SimulatedScenario> {
  const { name, trace: path, format } = source;
  const known = name === undefined ? undefined : await openScenario(name);
  if (known?.trace !== undefined && path === undefined && known.syntheticTrace === undefined)
    throw new UsageError(`${known.name} replays a trace: give it with --trace, for example --trace ${known.trace}`);
  if (known !== undefined && known.trace === undefined && path !== undefined)
    throw new UsageError(`--trace: ${known.name} makes its own requests`);
  const fleet = source.fleet === undefined ? undefined : parseFleet(await readText(source.fleet), source.fleet);
  const { plugins } = source;
  // The server has more than a child process of a simulation needs.
  const custom =
    plugins === undefined
      ? {}
      : { customPolicies: (await import("@espalier/server").then((server) => server.loadPlugins(plugins))).policies };
  const trace = path === undefined ? undefined : await readTrace(path, format === undefined ? {} : { format });
  if (known === undefined)
    return { scenario: traceScenario(basename(path ?? ""), fleet ?? usualFleet), trace, ...custom };
  return { scenario: fleet === undefined ? known : { ...known, fleet, variants: [], published: [] }, trace, ...custom };
}

/** A wrong name is a usage error. */
function findScenario(name: string): Scenario {
  return scenario(readName(name, "scenario", [...scenarioNames, worstCaseName, ablationName]));
}

/** Whether a scenario is a file of the user. */
const isScenarioFile = (name: string): boolean => name.endsWith(".json");

/**
 * Finds a scenario by its name, or reads the user's own.
 *
 * @throws UsageError for an unknown name, EspalierError `config_unreadable`, `config_invalid` for a file
 */
export async function openScenario(name: string): Promise<Scenario> {
  return isScenarioFile(name) ? readScenario(await readText(name), name) : findScenario(name);
}

const readText = (path: string): Promise<string> =>
  readFile(path, "utf8").catch((error: Error) => {
    throw new EspalierError("config_unreadable", `${path}: ${error.message}`, { param: path });
  });

/** The policies that a simulation can compare. */
export const simulatedPolicies: readonly string[] = [...policyNames, clusterIp, ...rivalNames];

/** The policies that `worst-case` can compare. */
export const judgedPolicies: readonly string[] = [...policyNames, ...nearRivalNames];

/** Whether the number of routers matters to a policy for which nothing is shared. */
export const hasStatePerRouter = (policy: string): boolean =>
  policy === "round_robin" || nearRivalNames.includes(policy);

/** Whether a policy's decisions are independent of everything that routers share. */
export function isBlind(policy: string): boolean {
  return policy === "random" || policy === "round_robin" || policy === clusterIp || rivalNames.includes(policy);
}
