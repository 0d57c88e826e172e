import { type Clock, EspalierError, type TargetIndex } from "@espalier/core";
import { closed, type Described, nullable, Type } from "@espalier/core/schema";
import { createPrefixMatches, type PrefixIndex } from "@espalier/prefix-index";
import { maxKnownTargets } from "@espalier/routing";
import { type PrefixUse, prefixUsers } from "./prefix-use.ts";

const holderReport = closed({
  target: Type.String(),
  /** Its engine announced it. */
  isReported: Type.Boolean(),
  /** A router sent it there recently. */
  isPredicted: Type.Boolean(),
});

type HolderReport = Described<typeof holderReport>;

/** A prefix that several prompts or targets share. */
const prefixReport = closed({
  /** Sixteen hexadecimal digits: the hash of its last block. */
  hash: Type.String(),
  blocks: Type.Integer(),
  /** Index in the list of the longest prefix that this one continues; null for none. */
  parent: nullable(Type.Integer()),
  /** How many different blocks continue it. */
  continuations: Type.Integer(),
  /** At most `maxListedHolders`, in the order of targets. */
  holders: Type.Array(holderReport),
  holderCount: Type.Integer(),
  users: prefixUsers,
});

export const prefixesReport = closed(
  {
    /** Tokens per block, or bytes where prompts are matched by bytes. */
    blockSize: Type.Integer(),
    /** Largest first, by blocks times targets. */
    prefixes: Type.Array(prefixReport),
  },
  { title: "Prefixes" },
);

export type PrefixesReport = Described<typeof prefixesReport>;

export interface PrefixReporterOptions {
  /** Created for `maxKnownTargets`. */
  readonly index: PrefixIndex;
  readonly blockSize: number;
  /** The key of a target; undefined when unknown. */
  readonly keyOf: (target: TargetIndex) => string | undefined;
  readonly use: Pick<PrefixUse, "listed">;
  readonly clock: Clock;
}

/** Most prefixes of a report. */
export const maxListedPrefixes = 48;
/** Engines listed for one prefix. */
export const maxListedHolders = 64;
/** The latest report is cached for this long, since it takes some milliseconds to compute. */
export const prefixReportAgeMs = 1_000;

/**
 * The largest shared prefixes, for `GET /admin/prefixes`. Its parameter is the hash of a prefix as the report names it: then that prefix
 * comes first, and the others continue it. It throws EspalierError `invalid_value` for another text.
 */
export function createPrefixReporter(options: PrefixReporterOptions): (below?: string) => PrefixesReport {
  const { index, blockSize, use, clock } = options;
  const matches = createPrefixMatches(maxKnownTargets);
  let latest: PrefixesReport | undefined;
  let latestBelow: string | undefined;
  let latestMs = Number.NEGATIVE_INFINITY;
  /** A hash identifies its whole prefix: a holder of the last block has the rest. */
  const holdersOf = (hash: Uint32Array, placed: readonly number[]): HolderReport[] => {
    index.match(hash, 1, clock.nowMs(), matches);
    const facts = new Set<number>();
    for (let at = 0; at < matches.count; at++) {
      const target = matches.targets[at]!;
      if (matches.factBlocks[target]! > 0) facts.add(target);
    }
    const all = [...new Set([...placed, ...facts])].sort((one, other) => one - other);
    return all.flatMap((target) => {
      const key = options.keyOf(target as TargetIndex);
      return key === undefined
        ? []
        : [{ target: key, isReported: facts.has(target), isPredicted: placed.includes(target) }];
    });
  };
  return (below) => {
    if (latest && below === latestBelow && clock.nowMs() - latestMs < prefixReportAgeMs) return latest;
    const hash = below === undefined ? undefined : readHash(below);
    [latestMs, latestBelow] = [clock.nowMs(), below];
    const found = index.largestSharedPrefixes(maxListedPrefixes, latestMs, hash);
    const prefixes = found.map(({ hash, blocks, parent, continuations, targets }) => {
      const holders = holdersOf(hash, targets);
      return {
        hash: [...hash].map((word) => word.toString(16).padStart(8, "0")).join(""),
        blocks,
        parent: parent < 0 ? null : parent,
        continuations,
        holders: holders.slice(0, maxListedHolders),
        holderCount: holders.length,
        users: use.listed(hash, blocks),
      };
    });
    latest = { blockSize, prefixes };
    return latest;
  };
}

function readHash(text: string): Uint32Array {
  if (!/^[0-9a-f]{16}$/.test(text)) throw new EspalierError("invalid_value", undefined, { param: "below" });
  return Uint32Array.of(Number.parseInt(text.slice(0, 8), 16), Number.parseInt(text.slice(8), 16));
}
