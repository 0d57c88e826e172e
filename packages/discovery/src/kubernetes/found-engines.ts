import type { EngineSpec } from "@espalier/common";
import { maxEnginesPerSource } from "../discovered-engine.ts";
import type { AddressFamily } from "../family.ts";

/** An engine that an object tells of. */
export interface FoundEngine {
  readonly spec: EngineSpec;
  readonly family: 4 | 6;
}

/** What is kept of an object. */
export interface FoundEngines {
  /** Names the object in messages. */
  readonly name: string;
  readonly engines: readonly FoundEngine[];
  /** Values of annotations and labels that do not count. */
  readonly problems: readonly string[];
}

export interface EngineList {
  /** In the order of their ids. */
  readonly specs: readonly EngineSpec[];
  readonly leftOut: number;
}

/**
 * Makes the list of what all objects tell of. An engine that several tell of, as slices do while they are being
 * rearranged, counts once, as the first says.
 */
export function listEngines(found: readonly FoundEngines[], family: AddressFamily): EngineList {
  const all = found.flatMap(({ engines }) => engines);
  const wanted = familyOf(family, all);
  const specs = new Map<string, EngineSpec>();
  for (const { spec, family: own } of all) if (own === wanted && !specs.has(spec.id)) specs.set(spec.id, spec);
  const sorted = [...specs.values()].sort((left, right) => (left.id < right.id ? -1 : 1));
  const kept = sorted.slice(0, maxEnginesPerSource);
  return { specs: kept, leftOut: sorted.length - kept.length };
}

/** Which family counts among addresses of both. */
export function familyOf(family: AddressFamily, all: readonly Pick<FoundEngine, "family">[]): 4 | 6 {
  if (family !== "auto") return family === "ipv4" ? 4 : 6;
  return all.some((one) => one.family === 4) ? 4 : 6;
}
