import { didYouMean, EspalierError } from "@espalier/core";
import {
  type EngineParameters,
  enginePresets,
  maxCpuBlocks,
  type PresetName,
  presetNames,
} from "@espalier/engine-model";
import { createTraceReplay } from "../clients/traces.ts";
import { blockTokens } from "../clients/workload.ts";
import { problemOf, type Region, type Topology } from "../topology.ts";
import { mooncakeStepMs, type TraceRequest } from "../workload/index.ts";
import { limitsOf, type Scenario, type ScenarioFleet } from "./scenario.ts";

interface OwnScenarioOptions {
  /** For rows, for example the trace file's name. */
  readonly name: string;
  /** See `parseFleet`. */
  readonly fleet: ScenarioFleet;
}

/** Maximum distance from a step at which a time counts as rounded to it. */
const roundingMs = 5;

/** With fewer rows, times could lie on steps by chance. */
const minRowsToTell = 16;

/**
 * A user's own trace on a user's own fleet. Each run's `trace` gives the rows. Times rounded to steps of three seconds,
 * as Mooncake's are, are spread over their steps.
 */
export function customScenario({ name, fleet }: OwnScenarioOptions): Scenario {
  return {
    name,
    summary: `The trace ${name} on ${fleet.engines} engines.`,
    fleet,
    policies: ["round_robin", "predicted_latency"],
    variants: [],
    published: [],
    isOpenLoop: true,
    trace: name,
    createWorkload(options) {
      const { seed, scale, trace: rows = [] } = options;
      const stepMs = isRounded(rows) ? mooncakeStepMs : undefined;
      return createTraceReplay({ seed, rows, speed: scale, stepMs, limits: limitsOf(options) });
    },
  };
}

function isRounded(rows: readonly TraceRequest[]): boolean {
  if (rows.length < minRowsToTell || rows.at(-1)!.arrivalMs < mooncakeStepMs / 2) return false;
  return rows.every(({ arrivalMs, wait }) => {
    if (wait !== undefined) return false;
    const past = arrivalMs % mooncakeStepMs;
    return Math.min(past, mooncakeStepMs - past) <= roundingMs;
  });
}

/** The largest fleet that a file may describe. */
export const maxFleetEngines = 16_384;
export const maxFleetRouters = 1_024;

/** The largest whole number for a parameter. */
const maxCount = 2 ** 31 - 1;

type Check = (value: unknown) => string | undefined;

const count: Check = (value) =>
  Number.isInteger(value) && (value as number) >= 1 && (value as number) <= maxCount
    ? undefined
    : `must be a whole number from 1 to ${maxCount}`;

const cpuCount: Check = (value) =>
  Number.isInteger(value) && (value as number) >= 0 && (value as number) <= maxCpuBlocks
    ? undefined
    : `must be a whole number from 0 to ${maxCpuBlocks}`;

const duration: Check = (value) =>
  Number.isFinite(value) && (value as number) >= 0 ? undefined : "must be a number of milliseconds from 0 up";

const oneOf =
  (...choices: readonly unknown[]): Check =>
  (value) =>
    choices.includes(value) ? undefined : `must be one of ${choices.join(", ")}`;

const parameterChecks: Readonly<Record<keyof EngineParameters, Check>> = {
  flavour: oneOf("vllm", "sglang"),
  // Chains consist of blocks of this size.
  blockSize: oneOf(blockTokens),
  blockCount: count,
  maxBatchedTokens: count,
  maxRunning: count,
  maxModelLength: count,
  stepBaseMs: duration,
  prefillMsPerToken: duration,
  attentionMsPerTokenPair: duration,
  decodeMsPerSequence: duration,
  decodeMsPerContextToken: duration,
  prefixCaching: oneOf(true, false),
  freeOrder: oneOf("uncached-first", "by-age"),
  adapterSlots: count,
  adapterLoadMs: duration,
  cpuBlocks: cpuCount,
  cpuLoadMsPerBlock: duration,
  cpuWrites: oneOf("evicted", "prompt", "all"),
};

const fields = ["engines", "routers", "preset", "parameters", "topology"];
const topologyFields = ["regions", "delaysMs", "clientDelayMs", "clients"];
const regionFields = ["name", "engines", "routers", "parameters"];
const sharesFields = ["atS", "shares"];

/**
 * Reads a fleet file: `{ "engines": 8, "routers": 2, "preset": "h100-70b-tp4", "parameters": { "blockCount": 9000 } }`.
 * `routers` defaults to 1 and `parameters` to none. `topology` is a `Topology`; without it all is equally near, and with it
 * `engines` and `routers` default to those of its regions.
 *
 * @param path of the file, for messages
 * @throws EspalierError `config_invalid` naming the file and the field
 */
export function parseFleet(text: string, path: string): ScenarioFleet {
  const fail = (field: string, problem: string): never => {
    throw new EspalierError("config_invalid", `${path}: ${field}${field === "" ? "" : ": "}${problem}`, {
      param: field === "" ? path : field,
    });
  };
  const fleet = objectOf("", readJson(text, fail), fail);
  refuseUnknown(fleet, fields, "", fail);
  const upTo = (field: string, value: unknown, most: number): number =>
    Number.isInteger(value) && (value as number) >= 1 && (value as number) <= most
      ? (value as number)
      : fail(field, `must be a whole number from 1 to ${most}, is ${shown(value)}`);
  const topology = fleet.topology === undefined ? undefined : topologyOf(fleet.topology, fail);
  const totalOf = (kind: "engines" | "routers") => topology?.regions.reduce((sum, region) => sum + region[kind], 0);
  const { engines = totalOf("engines"), routers = totalOf("routers") ?? 1, preset, parameters = {} } = fleet;
  return {
    engines: upTo("engines", engines, maxFleetEngines),
    routers: upTo("routers", routers, maxFleetRouters),
    preset: isPreset(preset)
      ? preset
      : fail("preset", `must be one of ${presetNames.join(", ")}, is ${shown(preset)}${hintAt(preset, presetNames)}`),
    parameters: parametersOf(parameters, "parameters", fail),
    ...(topology && { topology }),
  };
}

type Fail = (field: string, problem: string) => never;

function readJson(text: string, fail: Fail): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    return fail("", `is not valid JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
}

function objectOf(field: string, value: unknown, fail: Fail): Readonly<Record<string, unknown>> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return fail(field, `must be an object, is ${shown(value)}`);
  }
  return value as Readonly<Record<string, unknown>>;
}

function refuseUnknown(
  object: Readonly<Record<string, unknown>>,
  known: readonly string[],
  prefix: string,
  fail: Fail,
): void {
  for (const key of Object.keys(object)) {
    if (!known.includes(key)) fail(`${prefix}${key.slice(0, 100)}`, `is not known${hintAt(key, known)}`);
  }
}

function parametersOf(value: unknown, field: string, fail: Fail): Partial<EngineParameters> {
  const parameters = objectOf(field, value, fail);
  refuseUnknown(parameters, Object.keys(parameterChecks), `${field}.`, fail);
  for (const [name, check] of Object.entries(parameterChecks)) {
    const written = parameters[name];
    const problem = written === undefined ? undefined : check(written);
    if (problem !== undefined) fail(`${field}.${name}`, `${problem}, is ${shown(written)}`);
  }
  return parameters as Partial<EngineParameters>;
}

function topologyOf(value: unknown, fail: Fail): Topology {
  const written = objectOf("topology", value, fail);
  refuseUnknown(written, topologyFields, "topology.", fail);
  const { clientDelayMs } = written;
  const topology: Topology = {
    regions: listOf("topology.regions", written.regions, fail).map((region, at) =>
      regionOf(region, `topology.regions[${at}]`, fail),
    ),
    delaysMs: listOf("topology.delaysMs", written.delaysMs, fail).map((row, at) =>
      numbersOf(`topology.delaysMs[${at}]`, row, fail),
    ),
    ...(clientDelayMs === undefined ? {} : { clientDelayMs: numberOf("topology.clientDelayMs", clientDelayMs, fail) }),
    clients: listOf("topology.clients", written.clients, fail).map((one, at) => {
      const field = `topology.clients[${at}]`;
      const moment = objectOf(field, one, fail);
      refuseUnknown(moment, sharesFields, `${field}.`, fail);
      return {
        atS: numberOf(`${field}.atS`, moment.atS, fail),
        shares: numbersOf(`${field}.shares`, moment.shares, fail),
      };
    }),
  };
  const found = problemOf(topology);
  return found ? fail(`topology.${found.field}`, found.problem) : topology;
}

function regionOf(value: unknown, field: string, fail: Fail): Region {
  const region = objectOf(field, value, fail);
  refuseUnknown(region, regionFields, `${field}.`, fail);
  const { name, parameters } = region;
  return {
    name: typeof name === "string" ? name : fail(`${field}.name`, `must be a string, is ${shown(name)}`),
    engines: numberOf(`${field}.engines`, region.engines, fail),
    routers: numberOf(`${field}.routers`, region.routers, fail),
    ...(parameters === undefined ? {} : { parameters: parametersOf(parameters, `${field}.parameters`, fail) }),
  };
}

function listOf(field: string, value: unknown, fail: Fail): readonly unknown[] {
  return Array.isArray(value) ? value : fail(field, `must be a list, is ${shown(value)}`);
}

const numbersOf = (field: string, value: unknown, fail: Fail): readonly number[] =>
  listOf(field, value, fail).map((one, at) => numberOf(`${field}[${at}]`, one, fail));

function numberOf(field: string, value: unknown, fail: Fail): number {
  return typeof value === "number" ? value : fail(field, `must be a number, is ${shown(value)}`);
}

function isPreset(value: unknown): value is PresetName {
  return typeof value === "string" && Object.hasOwn(enginePresets, value);
}

function hintAt(written: unknown, names: readonly string[]): string {
  return typeof written === "string" ? didYouMean(written, names) : "";
}

function shown(value: unknown): string {
  return value === undefined ? "absent" : JSON.stringify(value).slice(0, 60);
}
