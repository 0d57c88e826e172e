import type { PrefixRow } from "./prefixes.ts";

/** A prefix in the picture: a branch from the end of the one that it continues to its own end. */
export interface TreeBranch {
  readonly row: PrefixRow;
  /** Where its parent ends and where it ends, as shares of the longest prefix's tokens. */
  readonly fromShare: number;
  readonly toShare: number;
  /** The lines of its parent and its own, from 0. A root's parent is the trunk, at its own line. */
  readonly fromLine: number;
  readonly line: number;
}

/** Branches that a picture has at most. */
export const maxBranches = 48;

/**
 * Lays out prefixes as a tree: one line each, the length in tokens to the right. Long prefixes would leave no space for the others, so
 * lengths are drawn by their square roots.
 *
 * @param rows as `prefixRows` gives them: children after their parent
 */
export function treeOf(rows: readonly PrefixRow[]): readonly TreeBranch[] {
  const shown = rows.slice(0, maxBranches);
  const longest = Math.max(1, ...shown.map(({ tokens }) => tokens));
  const share = (tokens: number): number => Math.sqrt(tokens / longest);
  /** The latest branch of each depth. */
  const open: TreeBranch[] = [];
  return shown.map((row, line) => {
    const parent = row.depth > 0 ? open[row.depth - 1] : undefined;
    const branch = {
      ...{ row, line, toShare: share(row.tokens) },
      ...{ fromShare: parent?.toShare ?? 0, fromLine: parent?.line ?? line },
    };
    open[row.depth] = branch;
    return branch;
  });
}

/** A prefix on the way to the one that is looked at. */
export interface PathStep {
  readonly hash: string;
  readonly tokens: number;
}

/**
 * The way to a prefix that was chosen: back on the present way, or on from it through what the picture shows.
 *
 * @param rows what is shown now
 * @returns the way, the chosen prefix last; empty for none
 */
export function pathTo(hash: string, path: readonly PathStep[], rows: readonly PrefixRow[]): readonly PathStep[] {
  const back = path.findIndex((step) => step.hash === hash);
  if (back >= 0) return path.slice(0, back + 1);
  const at = rows.findIndex((row) => row.hash === hash);
  if (at < 0) return [{ hash, tokens: 0 }];
  const above: PathStep[] = [];
  let depth = rows[at]!.depth + 1;
  for (const row of rows.slice(0, at + 1).reverse()) {
    if (row.depth >= depth) continue;
    depth = row.depth;
    above.unshift({ hash: row.hash, tokens: row.tokens });
  }
  // The first one that is shown may be the end of the present way.
  return above[0]?.hash === path.at(-1)?.hash ? [...path.slice(0, -1), ...above] : [...path, ...above];
}
