import { type FaultKind, faultKindNames } from "./fault-kinds.ts";

/** Each of them once found something. */
export const keptSeeds: readonly number[] = [
  22, 162, 2007, 2059, 2065, 2152, 2215, 2270, 2427, 3380, 312544188, 312544409, 312544622, 312544691, 312545304,
  700130, 701508, 800185, 900519, 700000126, 710000108, 760000153, 760000212, 780000276,
];
/** Together they reach everything that is counted. */
export const fixedSeeds: readonly number[] = [1, 3, 4, 5, 12, 16];

/** What `npm run simulate:seeds` asks for. */
export interface SeedRequest {
  readonly seeds: readonly number[];
  readonly only: readonly FaultKind[];
  /** Takes a line of JSON per seed. */
  readonly reportFile: string;
  /** Takes what happens, in words, where somebody wants to read it. */
  readonly traceFile: string | undefined;
}

/**
 * @param text JSON with `first`, `count`, `step`, `only`, `reportFile` and `traceFile`
 * @throws RangeError for a kind of fault that there is not
 */
export function readSeedRequest(text: string): SeedRequest {
  const { first, count, step, only, reportFile, traceFile } = JSON.parse(text) as {
    readonly first: number;
    readonly count: number;
    readonly step: number;
    readonly only: string | undefined;
    readonly reportFile: string;
    readonly traceFile: string | undefined;
  };
  const seeds = Array.from({ length: count }, (_, at) => first + at * step);
  return { seeds, only: only === undefined ? faultKindNames : readKinds(only), reportFile, traceFile };
}

function readKinds(text: string): readonly FaultKind[] {
  const names = text === "none" ? [] : text.split(",");
  return names.map((name) => {
    const kind = faultKindNames.find((known) => known === name);
    if (kind === undefined) throw new RangeError(`no fault is called ${name}; there are ${faultKindNames.join(", ")}`);
    return kind;
  });
}
