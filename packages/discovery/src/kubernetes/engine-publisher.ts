import { type EngineSpec, type Logger, silentLogger } from "@espalier/common";
import { type AddressFamily, maxEnginesPerSource } from "../discovered-engine.ts";
import type { FailureReport, SourceObserver } from "../engine-source.ts";

/** Gives the list that objects come to, when it is another one than before, and says what of them was of no use. */
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
        if (!known.has(problem)) logger.warn("an annotation or label of an engine does not count", { problem });
      }
      known = problems;
      const { specs, leftOut } = listEngines(found, family);
      if (leftOut > 0) report.fail("engines", `more than ${maxEnginesPerSource} engines; the others are left out`);
      else report.clear("engines");
      if (isSame(specs, shown)) return;
      shown = specs;
      observer.onList(specs);
    },
  };
}

/** Of objects that have not changed the specs are the same ones, so that there is little to compare in depth. */
function isSame(left: readonly EngineSpec[], right: readonly EngineSpec[]): boolean {
  return (
    left.length === right.length &&
    left.every((spec, at) => spec === right[at] || JSON.stringify(spec) === JSON.stringify(right[at]))
  );
}

/** An engine that an object tells of. */
interface FoundEngine {
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

interface EngineList {
  /** In the order of their ids. */
  readonly specs: readonly EngineSpec[];
  readonly leftOut: number;
}

/**
 * Makes the list of what all objects tell of. An engine that several tell of, as slices do while they are being
 * rearranged, counts once, as the first says.
 */
function listEngines(found: readonly FoundEngines[], family: AddressFamily): EngineList {
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
