import { asList, asNumber, asNumberOrNull, asObject, asText, type JsonObject } from "./read-json.ts";

/** One shared prefix as the tree shows it, below the one that it continues. */
export interface PrefixRow {
  readonly hash: string;
  /** 0 for one that continues none of the others. */
  readonly depth: number;
  /** Of the whole prefix, and of what it has beyond the one it continues. */
  readonly tokens: number;
  readonly ownTokens: number;
  readonly continuations: number;
  readonly holders: readonly PrefixHolder[];
  readonly holderCount: number;
}

export interface PrefixHolder {
  readonly target: string;
  /** Reported by the engine, estimated from requests sent there, or both. */
  readonly source: "fact" | "placement" | "both";
}

interface Prefix extends Omit<PrefixRow, "depth" | "ownTokens"> {
  readonly parent: number | null;
}

/** @param report of `GET /admin/prefixes` */
export function prefixRows(report: unknown): readonly PrefixRow[] {
  const { prefixes, blockSize } = asObject(report);
  const all = asList(prefixes).map((one) => readPrefix(asObject(one), asNumber(blockSize, 1)));
  const rows: PrefixRow[] = [];
  const add = (at: number, depth: number, above: number): void => {
    const { parent: _, ...prefix } = all[at]!;
    rows.push({ ...prefix, depth, ownTokens: prefix.tokens - above });
    for (const [child, { parent }] of all.entries())
      if (parent === at && child !== at) add(child, depth + 1, prefix.tokens);
  };
  for (const [at, { parent }] of all.entries()) if (parent === null) add(at, 0, 0);
  return rows;
}

function readPrefix(prefix: JsonObject, blockSize: number): Prefix {
  return {
    hash: asText(prefix.hash),
    parent: asNumberOrNull(prefix.parent),
    tokens: asNumber(prefix.blocks) * blockSize,
    continuations: asNumber(prefix.continuations),
    holders: asList(prefix.holders).map((one) => readHolder(asObject(one))),
    holderCount: asNumber(prefix.holderCount),
  };
}

function readHolder({ target, isFact, isPlaced }: JsonObject): PrefixHolder {
  const source = isFact === true ? (isPlaced === true ? "both" : "fact") : "placement";
  return { target: asText(target), source };
}
