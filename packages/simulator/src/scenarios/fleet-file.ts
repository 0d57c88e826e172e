import { type EngineParameters, maxCpuBlocks, type PresetName, presetNames } from "@espalier/engine-model";
import { blockTokens } from "../clients/workload.ts";
import { problemOf, type Topology } from "../topology.ts";
import {
  count,
  inside,
  list,
  milliseconds,
  named,
  number,
  object,
  oneOf,
  plainObject,
  type Read,
  readFile,
  string,
  whole,
} from "./read-fields.ts";
import type { ScenarioFleet } from "./scenario.ts";

/** The largest fleet that a file may describe. */
export const maxFleetEngines = 16_384;
/** Routers of a fleet file. */
export const maxFleetRouters = 1_024;

export const engines = whole(1, maxFleetEngines);
export const routers = whole(1, maxFleetRouters);

export const preset: Read<PresetName> = named(presetNames);

/** What engines without tokens have. */
type FleetParameters = Required<
  Omit<EngineParameters, "windowTokens" | "stateGroups" | "retention" | "cpuChunkBlocks">
>;

const parameterReaders: { readonly [Name in keyof FleetParameters]: Read<FleetParameters[Name]> } = {
  flavour: oneOf("vllm", "sglang"),
  // Chains consist of blocks of this size.
  blockSize: oneOf(blockTokens),
  blockCount: count,
  maxBatchedTokens: count,
  maxRunning: count,
  maxModelLength: count,
  stepBaseMs: milliseconds,
  prefillMsPerToken: milliseconds,
  attentionMsPerTokenPair: milliseconds,
  decodeMsPerSequence: milliseconds,
  decodeMsPerContextToken: milliseconds,
  prefixCaching: oneOf(true, false),
  freeOrder: oneOf("uncached-first", "by-age"),
  adapterSlots: count,
  adapterLoadMs: milliseconds,
  cpuBlocks: whole(0, maxCpuBlocks),
  cpuLoadMsPerBlock: milliseconds,
  cpuWrites: oneOf("prompt", "all", "write_through", "write_through_selective", "write_back"),
};

export const parameters: Read<Partial<EngineParameters>> = object({}, parameterReaders);

const topologyFields = object(
  {
    regions: list(object({ name: string, engines: number, routers: number }, { parameters })),
    delaysMs: list(list(number)),
    clients: list(object({ atS: number, shares: list(number) })),
  },
  { clientDelayMs: number },
);

export const topology: Read<Topology> = (value, field, fail) => {
  const read = topologyFields(value, field, fail);
  const found = problemOf(read);
  return found ? fail(inside(field, found.field), found.problem) : read;
};

export const cells = object({ count, balancer: oneOf("dns", "hash", "region") });

const fleetFields = object({ engines, routers, preset }, { parameters, perEngine: list(parameters), topology, cells });

/**
 * Reads a fleet: `{ "engines": 8, "routers": 2, "preset": "h100-70b-tp4", "parameters": { "blockCount": 9000 } }`.
 * `routers` defaults to 1 and `parameters` to none. `topology` is a `Topology`; without it all is equally near, and with it
 * `engines` and `routers` default to those of its regions.
 */
export const fleet: Read<ScenarioFleet> = (value, field, fail) => {
  const written = plainObject(value, field, fail);
  const near = written.topology === undefined ? undefined : topology(written.topology, inside(field, "topology"), fail);
  const totalOf = (kind: "engines" | "routers") => near?.regions.reduce((sum, region) => sum + region[kind], 0);
  const { engines = totalOf("engines"), routers = totalOf("routers") ?? 1, parameters = {} } = written;
  return fleetFields({ ...written, engines, routers, parameters }, field, fail) as ScenarioFleet;
};

/**
 * Reads a fleet file; see `fleet`.
 *
 * @param path of the file, for messages
 * @throws EspalierError `config_invalid` naming the file and the field
 */
export const parseFleet = (text: string, path: string): ScenarioFleet => readFile(text, path, fleet);
