import { availableParallelism } from "node:os";
import { dirname, resolve } from "node:path";
import { defaultPolicyParts, policyNames } from "@espalier/policies";
import {
  linkModels,
  maxFleetEngines,
  maxFleetRouters,
  maxTraceRequests,
  sharings,
  type TraceFormat,
} from "@espalier/simulator";
import { readObjectives } from "../cli/objectives.ts";
import { readCount, readDurationMs, readName, readNumber, UsageError } from "../cli/read-flags.ts";
import { reportPlan } from "./report-plan.ts";
import { ablationName, judgedPolicies, simulatedPolicies, worstCaseName } from "./simulated-scenario.ts";
import { readWhatIfs, type WhatIf } from "./what-if.ts";
import { type WorstCaseSelection, worstCasePlan } from "./worst-case-plan.ts";

/** The flags of `espalier simulate` as they were written. */
export interface SimulateFlags {
  readonly list?: boolean;
  readonly policy?: string;
  readonly plugins?: string;
  readonly routers?: string;
  readonly engines?: string;
  readonly sharing?: string;
  readonly links?: string;
  readonly linkDelay?: string;
  readonly seeds?: string;
  readonly load?: string;
  readonly kneeOf?: string;
  readonly users?: string;
  readonly whatIf?: string;
  readonly admission?: "on" | "off";
  readonly slo?: string;
  readonly variant?: string;
  readonly requests?: string;
  readonly duration?: string;
  readonly trace?: string;
  readonly format?: TraceFormat;
  readonly fleet?: string;
  readonly json?: boolean;
  readonly plot?: string;
  readonly jobs?: string;
  readonly report?: boolean;
  readonly quick?: boolean;
  readonly only?: string;
  readonly without?: string;
  readonly writeTrace?: string;
}

/** The source of a run's clients and engines, in a form that a child process can load. */
export interface ScenarioSource {
  /** Undefined for the user's own scenario: a trace, and perhaps a fleet. */
  readonly name: string | undefined;
  /** Path of a trace. */
  readonly trace: string | undefined;
  readonly format: TraceFormat | undefined;
  /** Path of a fleet that replaces the scenario's. */
  readonly fleet: string | undefined;
  /** Absolute paths of plugins with policies. */
  readonly plugins?: readonly string[] | undefined;
}

/** The requested runs. Undefined fields follow the scenario. */
export type RunSelection = ReturnType<typeof readSelection>;

export interface RunCommand {
  readonly kind: "run";
  readonly selection: RunSelection;
  /** Concurrent runs. */
  readonly jobs: number;
  readonly plot: string | undefined;
  /** Changes of the fleet to compare with it; undefined without --what-if. */
  readonly whatIfs: readonly WhatIf[] | undefined;
}

export interface ReportCommand {
  readonly kind: "report";
  /** The only scenario whose section is rewritten; all when undefined. */
  readonly scenario: string | undefined;
  readonly isQuick: boolean;
  readonly jobs: number;
  /** Folder of the traces that scenarios name. */
  readonly traces: string;
}

export type WorstCaseCommand = ReturnType<typeof readWorstCase>;

export type AblationCommand = ReturnType<typeof readAblation>;

export type WriteTraceCommand = ReturnType<typeof readWriteTrace>;

/** The parsed options of `espalier simulate`. */
export type SimulateCommand =
  | { readonly kind: "list" }
  | ReportCommand
  | RunCommand
  | WorstCaseCommand
  | AblationCommand
  | WriteTraceCommand;

/** Largest `--seeds`. */
export const maxSeeds = 100;
/** Largest `--jobs`. */
export const maxJobs = 64;
/** Largest `--users`. */
export const maxSimulatedUsers = 100_000;
/** Largest `--requests`. */
export const maxSimulatedRequests = 10_000_000;
/** One way between two routers. */
const maxLinkDelayMs = 10_000;
const judgedScenarios = [...new Set(worstCasePlan.map(({ scenario }) => scenario))];
const reported = reportPlan.map(({ scenario }) => scenario);
/** Shares of the knee. */
const loadRange = { min: 0.01, max: 3 };

/**
 * Checks every flag before anything is read or run.
 *
 * @throws UsageError naming the wrong flag
 */
export function readSimulateOptions(scenario: string | undefined, flags: SimulateFlags): SimulateCommand {
  if (flags.list) return alone({ kind: "list" }, "--list", scenario, flags, ["list", "json"]);
  const jobs =
    flags.jobs === undefined ? Math.min(availableParallelism(), maxJobs) : readCount(flags.jobs, "--jobs", maxJobs);
  if (scenario === ablationName) return readAblation(flags, jobs);
  if (flags.report) {
    if (scenario !== undefined) readName(scenario, "--report", reported);
    const traces = flags.trace === undefined ? "." : dirname(flags.trace);
    const command: ReportCommand = { kind: "report", scenario, isQuick: flags.quick ?? false, jobs, traces };
    return alone(command, "--report", undefined, flags, ["report", "quick", "jobs", "trace"]);
  }
  if (scenario === worstCaseName) return readWorstCase(flags, jobs);
  if (flags.writeTrace !== undefined) return readWriteTrace(scenario, flags.writeTrace, flags);
  if (flags.only !== undefined) throw new UsageError(`--only: goes with ${worstCaseName} and ${ablationName} only`);
  if (flags.without !== undefined) throw new UsageError(`--without: goes with ${ablationName} only`);
  if (flags.quick) throw new UsageError(`--quick: goes with --report, ${worstCaseName} and ${ablationName} only`);
  if (scenario === undefined && flags.trace === undefined)
    throw new UsageError("name a scenario (--list shows them), or give a --trace of your own");
  if (flags.fleet !== undefined && flags.variant !== undefined)
    throw new UsageError("--variant: is about the scenario's own fleet and does not go with --fleet");
  if (flags.format !== undefined && flags.trace === undefined) throw new UsageError("--format: goes with --trace only");
  if (flags.users !== undefined && flags.load !== undefined) throw new UsageError("--users: does not go with --load");
  if (flags.kneeOf !== undefined && flags.load === undefined) throw new UsageError("--knee-of: goes with --load only");
  const stranger =
    flags.whatIf === undefined ? undefined : (["load", "users", "variant"] as const).find((name) => flags[name]);
  if (stranger !== undefined) throw new UsageError(`--${stranger}: does not go with --what-if`);
  const { trace, format, fleet } = flags;
  return {
    kind: "run",
    selection: readSelection(
      { name: scenario, trace, format, fleet, plugins: listOf(flags.plugins, (path) => resolve(path)) },
      flags,
    ),
    jobs,
    plot: flags.plot,
    whatIfs: flags.whatIf === undefined ? undefined : readWhatIfs(flags.whatIf),
  };
}

/** The flags of a comparison of all policies over all scenarios. */
const worstCaseFlags = ["policy", "routers", "seeds", "jobs", "only", "quick", "trace", "json"] as const;

function readWorstCase(flags: SimulateFlags, jobs: number) {
  const { trace = ".", json: isJson = false } = flags;
  const isAll = flags.policy === undefined || flags.policy.trim() === "all";
  const selection: WorstCaseSelection = {
    policies: isAll ? policyNames : (listOf(flags.policy, (word) => readName(word, "--policy", judgedPolicies)) ?? []),
    ...readCases(flags, flags.quick ? 1 : 3),
  };
  /** `trace` is a trace, or the folder with the traces; `jobs` is of concurrent runs. */
  const command = { kind: "worst-case", selection, trace, jobs, isJson } as const;
  return alone(command, worstCaseName, undefined, flags, worstCaseFlags);
}

/** The flags of a comparison of the default policy with itself without each of its parts. */
const ablationFlags = ["without", "routers", "seeds", "jobs", "only", "quick", "trace", "json", "report"] as const;

function readAblation(flags: SimulateFlags, jobs: number) {
  const { trace = ".", json: isJson = false, report: isReport = false } = flags;
  if (isJson && isReport) throw new UsageError("--json: does not go with --report");
  const without = listOf(flags.without, (word) => readName(word, "--without", defaultPolicyParts));
  /** Three seeds, for a quick one too: the spread of one says nothing. */
  const cases = readCases(flags, 3);
  const command = {
    kind: "ablation",
    without: without ?? defaultPolicyParts,
    cases,
    trace,
    jobs,
    isJson,
    isReport,
  } as const;
  return alone(command, ablationName, undefined, flags, ablationFlags);
}

/** Which cases are run, and how often. */
function readCases(flags: SimulateFlags, usualSeeds: number): Omit<WorstCaseSelection, "policies"> {
  return {
    routers: listOf(flags.routers, (word) => readCount(word, "--routers", maxFleetRouters)) ?? [1, 8],
    seeds: flags.seeds === undefined ? usualSeeds : readCount(flags.seeds, "--seeds", maxSeeds),
    isQuick: flags.quick ?? false,
    only: listOf(flags.only, (word) => readName(word, "--only", judgedScenarios)),
  };
}

function readWriteTrace(scenario: string | undefined, file: string, flags: SimulateFlags) {
  if (scenario === undefined) throw new UsageError("--write-trace: name a scenario (--list shows them)");
  const { variant, requests, duration } = flags;
  const command = {
    kind: "write-trace" as const,
    ...{ scenario, variant, file },
    requests: requests === undefined ? undefined : readCount(requests, "--requests", maxTraceRequests),
    durationS: duration === undefined ? undefined : readDurationMs(duration, "--duration") / 1_000,
  };
  return alone(command, "--write-trace", undefined, flags, ["writeTrace", "variant", "requests", "duration"]);
}

/** The flags that select runs. */
export function readSelection(source: ScenarioSource, flags: SimulateFlags) {
  const allPolicies = flags.policy?.trim() === "all";
  // Which policies plugins have is known when they are loaded.
  const readPolicy = (word: string): string =>
    source.plugins === undefined ? readName(word, "--policy", simulatedPolicies) : word;
  return {
    source,
    policies: allPolicies ? simulatedPolicies : listOf(flags.policy, readPolicy),
    routers: listOf(flags.routers, (word) => readCount(word, "--routers", maxFleetRouters)),
    engines: listOf(flags.engines, (word) => readCount(word, "--engines", maxFleetEngines)),
    sharing: listOf(flags.sharing, (word) => readName(word, "--sharing", sharings)),
    links: listOf(flags.links, (word) => readName(word, "--links", linkModels)) ?? ["real"],
    /** One way between two routers: runs for each; the usual delay when undefined. */
    linkDelaysMs: listOf(flags.linkDelay, readLinkDelayMs),
    seeds: flags.seeds === undefined ? 1 : readCount(flags.seeds, "--seeds", maxSeeds),
    /** Shares of the scenario's knee; undefined for the published rates or clients. */
    loads: listOf(flags.load, (word) => readNumber(word, "--load", loadRange)),
    /** The policy of the search for the knee; the scenario's last policy when undefined. */
    kneePolicy: flags.kneeOf === undefined ? undefined : readName(flags.kneeOf, "--knee-of", simulatedPolicies),
    /** Users of a closed loop: one run for each number. */
    users: listOf(flags.users, (word) => readCount(word, "--users", maxSimulatedUsers)),
    admission: flags.admission === undefined ? undefined : flags.admission === "on",
    objectives: flags.slo === undefined ? undefined : readObjectives(flags.slo),
    /** Undefined for the scenario itself, without a variant. */
    variants: flags.variant?.trim() === "all" ? ("all" as const) : listOf(flags.variant, (word) => word),
    requests: flags.requests === undefined ? undefined : readCount(flags.requests, "--requests", maxSimulatedRequests),
    durationS: flags.duration === undefined ? undefined : readDurationMs(flags.duration, "--duration") / 1_000,
  };
}

function readLinkDelayMs(text: string): number {
  const delayMs = readDurationMs(text, "--link-delay");
  if (delayMs > maxLinkDelayMs) throw new UsageError(`--link-delay: at most 10s, not ${JSON.stringify(text)}`);
  return delayMs;
}

function alone<Command>(
  command: Command,
  flag: string,
  scenario: string | undefined,
  flags: SimulateFlags,
  companions: readonly (keyof SimulateFlags)[],
): Command {
  const stranger = Object.keys(flags).find((name) => !companions.some((companion) => companion === name));
  if (stranger !== undefined) throw new UsageError(`--${kebabCase(stranger)}: does not go with ${flag}`);
  if (scenario !== undefined) throw new UsageError(`${flag}: takes no scenario, not ${JSON.stringify(scenario)}`);
  return command;
}

/** A flag as the user writes it. */
const kebabCase = (name: string): string => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);

/** The words between commas, without duplicates. */
function listOf<Value>(text: string | undefined, read: (word: string) => Value): readonly Value[] | undefined {
  return text === undefined ? undefined : [...new Set(text.split(",").map((word) => read(word.trim())))];
}
