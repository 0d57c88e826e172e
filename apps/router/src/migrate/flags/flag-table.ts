import { didYouMean } from "@espalier/core";
import { type FlagEntry, flagCatalogue } from "@espalier/server";
import type { MigrationEntry } from "../migration.ts";
import { Translation, takesOption } from "../translation.ts";
import type { Setter } from "./setters.ts";

/** What became of a flag, where the table's words do not fit the value. */
export type Outcome = Partial<Pick<MigrationEntry, "outcome" | "ours" | "why" | "instead">>;

/**
 * Flags of another router that come to the same thing here.
 *
 * - `accepted`: `serve` takes them as they are, and the configuration says what they set.
 * - `translated`: `migrate` makes them into settings of ours, or they need none.
 * - `none`: nothing of ours corresponds to them.
 */
export interface FlagRow {
  readonly how: "accepted" | "translated" | "none";
  /** Flags with one value each, such as `--queue-size --queue-timeout-secs`. */
  readonly flags?: string;
  /** Flags without a value. */
  readonly switches?: string;
  /** Flags that take every word up to the next flag, and may be repeated. */
  readonly lists?: string;
  /** Our settings in Markdown, or `built-in`. */
  readonly ours?: string;
  /** What is not the same, or why there is none. */
  readonly why?: string;
  readonly instead?: string;
  /** Sets what a value comes to, and says where the row's words do not fit it. Absent: `finish` reads the flag, or nothing has to be set. */
  readonly set?: Setter;
}

/** Flags that take a value each, or also switches and lists. */
type FlagNames = string | Pick<FlagRow, "flags" | "switches" | "lists">;

const namesOf = (names: FlagNames): Pick<FlagRow, "flags" | "switches" | "lists"> =>
  typeof names === "string" ? { flags: names } : names;

/** A row of flags that `serve` takes as they are. */
export const accepted = (names: FlagNames, details: Pick<FlagRow, "ours" | "why" | "set"> = {}): FlagRow => ({
  how: "accepted",
  ...namesOf(names),
  ...details,
});

/** A row of flags that `migrate` makes into `ours`. */
export const translated = (names: FlagNames, ours: string, details: Pick<FlagRow, "why" | "set"> = {}): FlagRow => ({
  how: "translated",
  ...namesOf(names),
  ours,
  ...details,
});

/** A row of flags to which nothing of ours corresponds. */
export const none = (names: FlagNames, why: string, instead = "nothing to set"): FlagRow => ({
  how: "none",
  ...namesOf(names),
  ...{ why, instead },
});

/** The flags of a command line, with the values of each. A flag without a value has an empty list. */
export type GivenFlags = ReadonlyMap<string, readonly string[]>;

/** A router that is configured by flags. */
export interface FlagRouter {
  /** The program and its release, for people. */
  readonly title: string;
  readonly rows: readonly FlagRow[];
  /** Other spellings of flags. */
  readonly synonyms?: Readonly<Record<string, string>>;
  /** What stands before the names of its flags where another program takes them, too. */
  readonly prefix?: string;
  /** The policy, which decides what options mean; undefined when it is ours that is best left alone. */
  policy(given: GivenFlags): string | undefined;
  /** What several flags come to together, and what is said by leaving flags out. */
  finish(given: GivenFlags, translation: Translation): void;
}

/** The row of each flag, and how many values follow it. */
interface KnownFlag {
  readonly row: FlagRow;
  readonly values: "one" | "none" | "many";
}

/** The one value of a flag; undefined if it is not given. */
export const givenValue = (given: GivenFlags, flag: string): string | undefined => given.get(flag)?.[0];

/** A flag as it was written. Keys and passwords are left out, since this goes into comments. */
const shownFlag = (flag: string, values: readonly string[]): string =>
  /-(keys?|password|url)$/.test(flag) ? flag : [flag, ...values].join(" ");

const names = (text: string | undefined): readonly string[] => text?.split(" ") ?? [];

/** Every flag of a row, in the order of the table. */
export const flagsOf = ({ flags, switches, lists }: FlagRow): readonly string[] =>
  [flags, switches, lists].flatMap((text) => names(text));

/** Every flag of a router by its name. */
export function knownFlags({ rows }: FlagRouter): ReadonlyMap<string, KnownFlag> {
  const of = (row: FlagRow, text: string | undefined, values: KnownFlag["values"]) =>
    names(text).map((name) => [name, { row, values }] as const);
  return new Map(
    rows.flatMap((row) => [
      ...of(row, row.flags, "one"),
      ...of(row, row.switches, "none"),
      ...of(row, row.lists, "many"),
    ]),
  );
}

/** Finds the router's own name of a flag; undefined for a word that is no flag of it. The value may stand behind `=`. */
export function flagFinder(router: FlagRouter): (word: string) => string | undefined {
  const known = knownFlags(router);
  return (word) => {
    const [written = ""] = word.split("=", 1);
    const { synonyms = {}, prefix } = router;
    const bare = prefix !== undefined && written.startsWith(prefix) ? `--${written.slice(prefix.length)}` : written;
    return [written, Object.hasOwn(synonyms, written) ? synonyms[written] : undefined, bare].find(
      (name) => name !== undefined && known.has(name),
    );
  };
}

/**
 * Reads a command line of the router as its own parser does. Words before the first flag are the program. What that parser
 * would refuse is said, and the rest is read.
 */
function readFlagWords(router: FlagRouter, words: readonly string[], translation: Translation): GivenFlags {
  const known = knownFlags(router);
  const find = flagFinder(router);
  const given = new Map<string, string[]>();
  const start = words.findIndex((word) => word.startsWith("--"));
  for (let at = start < 0 ? words.length : start; at < words.length; at += 1) {
    const [, written = "", inline] = /^(--[^=]*)(?:=(.*))?$/s.exec(words[at] ?? "") ?? [];
    const values = inline === undefined ? [] : [inline];
    while (at + 1 < words.length && !words[at + 1]?.startsWith("--")) {
      at += 1;
      values.push(words[at] ?? "");
    }
    const name = find(written);
    const flag = known.get(name ?? "");
    if (name === undefined || !flag) {
      // Its words are not shown: one of them may be a key.
      const why = `${router.title} has no such flag${didYouMean(written, [...known.keys()])}`;
      translation.missing(written, why, "look in docs/CONFIGURATION.md for what it does");
      continue;
    }
    const wanted = { none: 0, one: 1, many: values.length }[flag.values];
    if (values.length > wanted) {
      const left = shownFlag(name, values.slice(wanted));
      translation.missing(left, `the flag takes ${wanted === 0 ? "no value" : "one value"}`, "look for a mistake");
    }
    if (flag.values === "one" && values.length === 0) {
      translation.missing(name, "it has no value", "look for a mistake");
      continue;
    }
    // Of one value, the last one counts.
    given.set(name, flag.values === "many" ? [...(given.get(name) ?? []), ...values] : values.slice(0, wanted));
  }
  return given;
}

/**
 * Translates a command line of another router.
 *
 * @param words the flags, with or without the program before them
 */
export function translateFlags(router: FlagRouter, words: readonly string[]): Translation {
  const translation = new Translation();
  const given = readFlagWords(router, words, translation);
  const known = knownFlags(router);
  const policy = router.policy(given);
  if (policy !== undefined) translation.set("policy.name", policy);
  const shown = new Map<FlagRow, string[]>();
  for (const [name, values] of given) {
    const row = known.get(name)?.row;
    if (!row) continue;
    if (row.set) {
      const special = row.set(values, translation);
      translation.remark({ theirs: shownFlag(name, values), ...outcomeOf(row), ...special });
    } else if (row.how === "accepted") translateAccepted(name, values, row, translation);
    else shown.set(row, [...(shown.get(row) ?? []), shownFlag(name, values)]);
  }
  // Flags that come to something together are told of together.
  for (const [row, flags] of shown) translation.remark({ theirs: flags.join(" "), ...outcomeOf(row) });
  router.finish(given, translation);
  return translation;
}

function outcomeOf({ how, ours, why, instead }: FlagRow): Outcome & Pick<MigrationEntry, "outcome"> {
  return {
    outcome: how === "none" ? "missing" : why === undefined ? "same" : "differs",
    ...(ours === undefined ? {} : { ours }),
    ...(why === undefined ? {} : { why }),
    ...(instead === undefined ? {} : { instead }),
  };
}

const entryOf = (flag: string): FlagEntry | undefined =>
  flagCatalogue.find((entry) => entry.flag === flag || entry.aliases.includes(flag));

/** Sets what `serve` would set. */
function translateAccepted(flag: string, values: readonly string[], { why }: FlagRow, translation: Translation): void {
  const entry = entryOf(flag);
  if (!entry) throw new Error(`${flag} is no flag of serve`);
  const theirs = shownFlag(flag, values);
  const [option] = entry.path.match(/(?<=^policy\.).*/) ?? [];
  const policy = translation.get("policy.name") ?? "predicted_latency";
  if (option !== undefined && !takesOption(policy, option)) {
    translation.remark({ theirs, outcome: "same", ours: `without effect on \`policy: ${policy}\`` });
    return;
  }
  const [value = ""] = values;
  const written = entry.isRepeatable ? values : writtenValue(value, entry);
  translation.translate(entry.path, written, { theirs, ...(why === undefined ? {} : { why }) });
}

/** A value in the form that our file has for it. Bare times of other routers are seconds. */
function writtenValue(text: string, { type }: FlagEntry): string | number {
  const isBare = /^\d+(\.\d+)?$/.test(text);
  if (isBare && type.includes("duration")) return `${text}s`;
  return isBare && /integer|number|size/.test(type) ? Number(text) : text;
}

/** The settings of a row, in Markdown. */
export function settingsOf({ how, ours, ...row }: FlagRow): string {
  if (how === "none") return "none";
  if (ours !== undefined) return ours;
  const paths = flagsOf(row as FlagRow).map((flag) => entryOf(flag)?.path.replace(/\.name$/, ""));
  return [...new Set(paths)].map((path) => `\`${path}\``).join(", ");
}
