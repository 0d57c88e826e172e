import { type FlagEntry, flagCatalogue } from "@espalier/server";
import type { MigrationEntry } from "../migration.ts";
import { readTable, wordsOf } from "../tables.ts";
import type { Translation } from "../translation.ts";

/** What became of a flag, where the table's words do not fit the value. */
export type Outcome = Partial<Pick<MigrationEntry, "outcome" | "ours" | "why" | "instead">>;

/** Flags of other routers that come to the same thing here: a row of `migration/*.yaml`, whose head says what each key means. */
export interface FlagRow extends Omit<Outcome, "outcome"> {
  readonly flags?: string;
  readonly switches?: string;
  readonly lists?: string;
  readonly sets?: string;
  readonly to?: unknown;
  readonly values?: Readonly<Record<string, string | Outcome>>;
  readonly as?: "aliases" | "first" | "headers";
  readonly by?: "api-key" | "client-key" | "policy" | "tenant-keys";
  readonly lacks?: string;
}

/** A row as it is used: a switch, a flag with one value, or one that takes every word up to the next flag. */
export interface KnownFlag {
  readonly row: FlagRow;
  readonly values: "one" | "none" | "many";
}

/** The flags of a command line, with the values of each. A flag without a value has an empty list. */
export type GivenFlags = ReadonlyMap<string, readonly string[]>;

/** What several flags come to together. */
export type Finish = (given: GivenFlags, translation: Translation, router: FlagRouter) => void;

/** A policy of ours, with the options that make it theirs. */
export type Counterpart = Outcome & {
  readonly name?: string;
  readonly options?: Readonly<Record<string, number>>;
};

interface WrittenRouter {
  /** The program and its release, for people. */
  readonly title: string;
  /** Other spellings of flags. */
  readonly synonyms?: Readonly<Record<string, string>>;
  /** What stands before the names of its flags where another program takes them, too. */
  readonly prefix?: string;
  /** How its engines hand over KV blocks unless a flag says it. */
  readonly transfer?: string;
  readonly policy: { readonly flag: string; readonly default: string };
  /** Policies that have another name here; without `name`, our default is the nearest. The others have the same name. */
  readonly policies: Readonly<Record<string, Counterpart>>;
  /** Defaults of theirs that clients and engines notice. */
  readonly unset: readonly (Outcome & { readonly flag: string; readonly value: string | number })[];
}

/** A router that is configured by flags. */
export interface FlagRouter extends WrittenRouter {
  /** Every flag of its release by its name, in the order of the table. */
  readonly known: ReadonlyMap<string, KnownFlag>;
  /** Every row of the table that it shares with routers of its family. */
  readonly rows: readonly FlagRow[];
  /** The chart's values that are flags. */
  readonly chart: Readonly<Record<string, string>>;
  readonly finish: Finish;
}

interface WrittenFamily {
  /** `released` has the flags of a release, without the dashes; absent where all rows are meant. */
  readonly routers: Readonly<Record<string, WrittenRouter & { readonly released?: string }>>;
  readonly flags: readonly FlagRow[];
  readonly chart?: Readonly<Record<string, string>>;
}

/**
 * Reads the routers of a table.
 *
 * @param name of the file of `migration`
 */
export function readRouters(name: string, finish: Finish): Readonly<Record<string, FlagRouter>> {
  const { routers, flags: rows, chart = {} } = readTable(name) as WrittenFamily;
  const all = rows.flatMap((row) => flagsOf(row).map((known) => ({ ...known, row })));
  return Object.fromEntries(
    Object.entries(routers).map(([key, { released, ...router }]) => {
      const has = new Set(wordsOf(released).map((flag) => `--${flag}`));
      const known = all
        .filter(({ flag }) => released === undefined || has.has(flag))
        .map(({ flag, ...each }) => [flag, each] as const);
      return [key, { ...router, known: new Map(known), rows, chart, finish }];
    }),
  );
}

/** Every flag of a row, in the order of the table. */
export const flagsOf = ({ flags, switches, lists }: FlagRow) =>
  [
    ...wordsOf(flags).map((flag) => ({ flag, values: "one" as const })),
    ...wordsOf(switches).map((flag) => ({ flag, values: "none" as const })),
    ...wordsOf(lists).map((flag) => ({ flag, values: "many" as const })),
  ] satisfies readonly (Omit<KnownFlag, "row"> & { readonly flag: string })[];

/** The flag of ours that `serve` takes for one of theirs. */
export const entryOf = (flag: string): FlagEntry | undefined =>
  flagCatalogue.find((entry) => entry.flag === flag || entry.aliases.includes(flag));

/**
 * - `accepted`: `serve` takes the flags as they are, and the configuration says what they set.
 * - `translated`: `migrate` makes them into settings of ours, or they need none.
 * - `none`: nothing of ours corresponds to them.
 */
export function howOf(row: FlagRow): "accepted" | "translated" | "none" {
  if (row.ours !== undefined || row.sets !== undefined) return "translated";
  return flagsOf(row).every(({ flag }) => entryOf(flag) !== undefined) ? "accepted" : "none";
}

/** The settings of a row, in Markdown. */
export function settingsOf(row: FlagRow): string {
  if (row.ours !== undefined) return row.ours;
  if (row.sets !== undefined) return `\`${row.sets}${row.to === undefined ? "" : `: ${row.to}`}\``;
  const paths = flagsOf(row).map(({ flag }) => entryOf(flag)?.path.replace(/\.name$/, ""));
  return [...new Set(paths)].map((path) => `\`${path}\``).join(", ");
}

/** What the table says of a row. */
export function outcomeOf(row: FlagRow): Outcome & Pick<MigrationEntry, "outcome"> {
  const { why, instead } = row;
  const reason = why === undefined ? {} : { why };
  if (howOf(row) === "none") return { outcome: "missing", ...reason, instead: instead ?? "nothing to set" };
  const outcome = why === undefined ? "same" : "differs";
  return { outcome, ours: settingsOf(row), ...reason, ...(instead === undefined ? {} : { instead }) };
}
