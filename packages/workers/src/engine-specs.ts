import type { EngineId, EngineSpec } from "@espalier/common";
import type { ApplyReport } from "./fleet.ts";

/** More engines than this are refused. Removed ones that still have requests in flight do not count. */
export const maxEngines = 4_096;

/** Those of a list that can be engines side by side, and why the others cannot. */
export function selectSpecs(specs: readonly EngineSpec[]): {
  wanted: ReadonlyMap<EngineId, EngineSpec>;
  refused: ApplyReport["refused"];
} {
  const wanted = new Map<EngineId, EngineSpec>();
  const refused: { id: EngineId; reason: string }[] = [];
  for (const spec of specs) {
    if (wanted.has(spec.id)) refused.push({ id: spec.id, reason: "another engine has this id" });
    else if (wanted.size === maxEngines) refused.push({ id: spec.id, reason: `more than ${maxEngines} engines` });
    else wanted.set(spec.id, spec);
  }
  return { wanted, refused };
}

/** What cannot change without it being another engine: where it is, and how many targets it has. */
export function samePlace(left: EngineSpec, right: EngineSpec): boolean {
  return left.url === right.url && (left.ranks ?? 1) === (right.ranks ?? 1);
}

/** Whether two descriptions of one engine say the same. */
export function sameSpec(left: EngineSpec, right: EngineSpec): boolean {
  return (
    left.role === right.role &&
    left.weight === right.weight &&
    left.models.length === right.models.length &&
    left.models.every((model, index) => model === right.models[index]) &&
    sameLabels(left.labels, right.labels) &&
    left.kvEvents?.endpoint === right.kvEvents?.endpoint &&
    left.kvEvents?.replayEndpoint === right.kvEvents?.replayEndpoint &&
    left.kvEvents?.topic === right.kvEvents?.topic &&
    left.kvTransfer?.protocol === right.kvTransfer?.protocol &&
    left.kvTransfer?.host === right.kvTransfer?.host &&
    left.kvTransfer?.port === right.kvTransfer?.port
  );
}

function sameLabels(left: EngineSpec["labels"], right: EngineSpec["labels"]): boolean {
  const keys = Object.keys(left);
  return keys.length === Object.keys(right).length && keys.every((key) => left[key] === right[key]);
}
