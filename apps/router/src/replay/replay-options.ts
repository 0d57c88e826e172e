import { policyNames } from "@espalier/policies";
import type { TraceFormat } from "@espalier/workload";
import { maxLocalEngines, maxLocalRouters } from "../local-fleet/local-fleet.ts";
import { type Sharing, sharings } from "../local-fleet/start-routers.ts";
import { readCount, readEndpointUrl, readNumber, UsageError } from "../output/usage-error.ts";
import type { PromptForm } from "./replay-plan.ts";

/** The flags of `espalier replay` as they were written. */
export interface ReplayFlags {
  readonly trace: string;
  readonly format?: TraceFormat;
  readonly requests?: string;
  readonly speed: string;
  readonly closed?: string;
  readonly seed: string;
  readonly url?: readonly string[];
  readonly apiKey?: string;
  readonly model: string;
  readonly prompts?: PromptForm;
  readonly policy: string;
  readonly kvEvents: string;
  readonly engines: string;
  readonly routers: string;
  readonly sharing: string;
  readonly preset: string;
  readonly blocks?: string;
  readonly json?: boolean;
}

/** What `espalier replay` is to do. */
export interface ReplayOptions {
  readonly trace: string;
  readonly format: TraceFormat | undefined;
  /** Requests to read; undefined for all. */
  readonly limit: number | undefined;
  /** Trace seconds per real second. */
  readonly speed: number;
  /** Users of a closed loop; undefined for an open one. */
  readonly users: number | undefined;
  readonly seed: number;
  /** Endpoints that run already; undefined for a fleet of its own. */
  readonly urls: readonly string[] | undefined;
  readonly apiKey: string | undefined;
  readonly model: string;
  readonly prompts: PromptForm;
  readonly policies: readonly string[];
  /** Whether the engines tell what they cache: a run for each, of the policies that look at it. */
  readonly kvEvents: readonly boolean[];
  readonly engines: number;
  readonly routers: number;
  /** What several routers share: a run for each. */
  readonly sharing: readonly Sharing[];
  readonly preset: string;
  /** KV blocks of an engine; undefined for the preset's. */
  readonly blocks: number | undefined;
}

const maxRequests = 1_000_000;
const maxUsers = 100_000;
const maxBlocks = 10_000_000;

/**
 * Checks every flag before anything is read or started: a mistake in the last policy must not cost the runs before it.
 *
 * @throws UsageError naming the flag at fault
 */
export function readReplayOptions(flags: ReplayFlags): ReplayOptions {
  const { trace, format, apiKey, model, preset } = flags;
  return {
    trace,
    format,
    limit: optional(flags.requests, "--requests", maxRequests),
    speed: readNumber(flags.speed, "--speed", { min: 0.001, max: 10_000 }),
    users: optional(flags.closed, "--closed", maxUsers),
    seed: readNumber(flags.seed, "--seed", { min: 0, max: 2 ** 32 - 1, integer: true }),
    urls: flags.url?.map((url) => readEndpointUrl(url, "--url")),
    apiKey,
    model,
    prompts: flags.prompts ?? (flags.url ? "text" : "tokens"),
    policies: readNames(flags.policy, "--policy", policyNames),
    kvEvents: readSwitches(flags.kvEvents, "--kv-events"),
    engines: readCount(flags.engines, "--engines", maxLocalEngines),
    routers: readCount(flags.routers, "--routers", maxLocalRouters),
    sharing: readNames(flags.sharing, "--sharing", sharings),
    preset,
    blocks: optional(flags.blocks, "--blocks", maxBlocks),
  };
}

function readNames<Name extends string>(text: string, flag: string, names: readonly Name[]): readonly Name[] {
  return text.split(",").map((word) => {
    const name = names.find((known) => known === word.trim());
    if (name === undefined)
      throw new UsageError(`${flag}: ${JSON.stringify(word.trim())} is not one of ${names.join(", ")}`);
    return name;
  });
}

function readSwitches(text: string, flag: string): readonly boolean[] {
  const words = text.split(",").map((word) => word.trim());
  const stranger = words.find((word) => word !== "on" && word !== "off");
  if (stranger === undefined) return words.map((word) => word === "on");
  throw new UsageError(`${flag}: ${JSON.stringify(stranger)} is neither on nor off`);
}

function optional(text: string | undefined, name: string, max: number): number | undefined {
  return text === undefined ? undefined : readCount(text, name, max);
}
