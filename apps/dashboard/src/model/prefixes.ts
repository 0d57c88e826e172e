import { formatCount } from "./format.ts";
import {
  asList,
  asNumber,
  asNumberOrNull,
  asObject,
  asText,
  asTextOrNull,
  type JsonObject,
  listOf,
  objectOf,
} from "./read-json.ts";
import type { Sessions } from "./sessions.ts";

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
  readonly users: PrefixUsers;
}

export interface PrefixHolder {
  readonly target: string;
  /** Reported by the engine, predicted from routed requests, or both. */
  readonly source: "fact" | "placement" | "both";
}

/** Who asked for it, since when that is counted. */
export type PrefixUsers = ReturnType<typeof readUsers>;

const readUsers = objectOf({
  sinceMs: asNumber,
  requests: asNumber,
  by: listOf(objectOf({ model: asText, class: asTextOrNull, requests: asNumber })),
  /** Opaque names, the latest last. */
  sessions: listOf(asText),
});

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
    users: readUsers(prefix.users),
  };
}

function readHolder({ target, isReported, isPredicted }: JsonObject): PrefixHolder {
  const source = isReported === true ? (isPredicted === true ? "both" : "fact") : "placement";
  return { target: asText(target), source };
}

/** What would have to be computed again, or move, if an engine took no requests any more. */
export interface DrainLoss {
  /** Prefixes that no other engine has, and the tokens of these. */
  readonly prefixes: number;
  readonly tokens: number;
  /** Sessions whose latest request went there. */
  readonly sessions: number;
}

/** @param rows the prefixes that are known to the page: of smaller ones nothing is said */
export function drainLossOf(target: string, rows: readonly PrefixRow[], sessions: Sessions): DrainLoss {
  const only = rows.filter(({ holders, holderCount }) => holderCount === 1 && holders[0]?.target === target);
  return {
    prefixes: only.length,
    tokens: only.reduce((sum, { ownTokens }) => sum + ownTokens, 0),
    sessions: [...sessions.values()].filter(({ steps }) => steps.at(-1)?.target === target).length,
  };
}

/** Models of the engines that have it, by the requests for it where there were any. */
export function modelsOf(
  { users, holders }: Pick<PrefixRow, "users" | "holders">,
  engines: readonly { readonly key: string; readonly models: readonly string[] }[],
): readonly string[] {
  if (users.by.length > 0) return [...new Set(users.by.map(({ model }) => model))];
  const targets = new Set(holders.map(({ target }) => target));
  return [...new Set(engines.flatMap(({ key, models }) => (targets.has(key) ? models : [])))];
}

/** `interactive 12, batch 3`: classes, the one with the most requests first. */
export function classesText({ by }: PrefixUsers): string {
  const counts = new Map<string, number>();
  for (const { class: name, requests } of by) {
    const key = name ?? "not queued";
    counts.set(key, (counts.get(key) ?? 0) + requests);
  }
  const sorted = [...counts].sort(([, one], [, other]) => other - one);
  return sorted.map(([name, requests]) => `${name} ${formatCount(requests)}`).join(", ");
}
