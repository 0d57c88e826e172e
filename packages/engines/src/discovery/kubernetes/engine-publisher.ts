import { type EngineSpec, type Logger, silentLogger } from "@espalier/core";
import { type AddressFamily, maxEnginesPerSource } from "../discovered-engine.ts";
import type { FailureReport, SourceObserver } from "../engine-source.ts";

/** Publishes the engines of all objects when the list has changed, and logs annotations and labels that cannot be used. */
export interface EnginePublisher {
  publish(found: readonly FoundEngines[]): void;
}

export function createEnginePublisher(
  observer: SourceObserver,
  report: FailureReport,
  family: AddressFamily,
  logger: Logger = silentLogger,
): EnginePublisher {
  let shown: readonly EngineSpec[] = [];
  let known: ReadonlySet<string> = new Set();
  return {
    publish(found) {
      const problems = new Set(found.flatMap(({ name, problems: all }) => all.map((problem) => `${name}: ${problem}`)));
      for (const problem of problems) {
        if (!known.has(problem)) logger.warn("invalid annotation or label of an engine ignored", { problem });
      }
      known = problems;
      const { specs, ignored } = listEngines(found, family);
      if (ignored > 0) report.fail("engines", `more than ${maxEnginesPerSource} engines; the rest is ignored`);
      else report.clear("engines");
      if (isSame(specs, shown)) return;
      shown = specs;
      observer.onList(specs);
    },
  };
}

/** Unchanged objects keep their specs, so that few are compared in depth. */
function isSame(left: readonly EngineSpec[], right: readonly EngineSpec[]): boolean {
  return (
    left.length === right.length &&
    left.every((spec, at) => spec === right[at] || JSON.stringify(spec) === JSON.stringify(right[at]))
  );
}

/** An engine of an object. */
interface FoundEngine {
  readonly spec: EngineSpec;
  readonly family: 4 | 6;
}

/** The stored part of an object. */
export interface FoundEngines {
  /** Names the object in messages. */
  readonly name: string;
  readonly engines: readonly FoundEngine[];
  /** Annotations and labels that cannot be used. */
  readonly problems: readonly string[];
}

interface EngineList {
  /** Sorted by id. */
  readonly specs: readonly EngineSpec[];
  readonly ignored: number;
}

/**
 * The engines of all objects. An engine in several objects, as while slices are being rearranged, is listed once, as in
 * the first of them.
 */
function listEngines(found: readonly FoundEngines[], family: AddressFamily): EngineList {
  const all = found.flatMap(({ engines }) => engines);
  const wanted = familyOf(family, all);
  const specs = new Map<string, EngineSpec>();
  for (const { spec, family: own } of all) if (own === wanted && !specs.has(spec.id)) specs.set(spec.id, spec);
  const sorted = [...specs.values()].sort((left, right) => (left.id < right.id ? -1 : 1));
  const kept = sorted.slice(0, maxEnginesPerSource);
  return { specs: kept, ignored: sorted.length - kept.length };
}

/** Which family to use among addresses of both. */
export function familyOf(family: AddressFamily, all: readonly Pick<FoundEngine, "family">[]): 4 | 6 {
  if (family !== "auto") return family === "ipv4" ? 4 : 6;
  return all.some((one) => one.family === 4) ? 4 : 6;
}
