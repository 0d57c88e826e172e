import { type EngineSpec, type Logger, silentLogger } from "@espalier/common";
import { maxEnginesPerSource } from "../discovered-engine.ts";
import type { SourceObserver } from "../engine-source.ts";
import type { FailureReport } from "../failure-report.ts";
import type { AddressFamily } from "../family.ts";
import { type FoundEngines, listEngines } from "./found-engines.ts";

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
