import { didYouMean } from "@espalier/core";
import { policyCatalogue, policyNames } from "@espalier/policies";
import { ourSetting } from "../our-settings.ts";
import { Translation, takesOption } from "../translation.ts";
import {
  type Counterpart,
  entryOf,
  type FlagRouter,
  type FlagRow,
  type GivenFlags,
  howOf,
  type Outcome,
  outcomeOf,
} from "./flag-router.ts";

/** The one value of a flag; undefined if it is not given. */
export const givenValue = (given: GivenFlags, flag: string): string | undefined => given.get(flag)?.[0];

/** A flag as it was written. Keys and passwords are left out, since this goes into comments. */
const shownFlag = (flag: string, values: readonly string[]): string =>
  /[-_](keys?|password|url)$/.test(flag) ? flag : [flag, ...values].join(" ");

/** Finds the router's own name of a flag; undefined for a word that is no flag of it. The value may stand behind `=`. */
export function flagFinder({ known, synonyms = {}, prefix }: FlagRouter): (word: string) => string | undefined {
  return (word) => {
    const [written = ""] = word.split("=", 1);
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
    const flag = router.known.get(name ?? "");
    if (name === undefined || !flag) {
      // Its words are not shown: one of them may be a key.
      const why = `unknown flag of ${router.title}${didYouMean(written, [...router.known.keys()])}`;
      translation.missing(written, why, "look in docs/CONFIGURATION.md for what it does");
      continue;
    }
    const wanted = { none: 0, one: 1, many: values.length }[flag.values];
    if (values.length > wanted) {
      const left = shownFlag(name, values.slice(wanted));
      translation.missing(left, `the flag takes ${wanted === 0 ? "no value" : "one value"}`, "check the spelling");
    }
    if (flag.values === "one" && values.length === 0) {
      translation.missing(name, "it has no value", "check the spelling");
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
  translateGiven(router, readFlagWords(router, words, translation), translation);
  return translation;
}

/** Translates flags, or settings that the table lists as flags. */
export function translateGiven(router: FlagRouter, given: GivenFlags, translation: Translation): void {
  // What options mean depends on the policy.
  const { name, options = {} } = counterpart(givenValue(given, router.policy.flag) ?? router.policy.default, router);
  if (name !== undefined) translation.set("policy.name", name);
  for (const [option, value] of Object.entries(options)) translation.set(`policy.${option}`, value);
  const together = new Map<FlagRow, string[]>();
  for (const [name, values] of given) {
    const row = router.known.get(name)?.row;
    if (!row) continue;
    const theirs = shownFlag(name, values);
    const said = row.by ? setters[row.by](values, translation, router) : outcomeOfValue(row, values);
    if (row.by || said) translation.remark({ theirs, ...outcomeOf(row), ...said });
    else if (row.sets !== undefined || howOf(row) === "accepted") setValue(name, values, row, translation);
    else together.set(row, [...(together.get(row) ?? []), theirs]);
  }
  // Flags that come to something together are told of together.
  for (const [row, flags] of together) translation.remark({ theirs: flags.join(" "), ...outcomeOf(row) });
  router.finish(given, translation, router);
  for (const { flag, value, ...said } of router.unset) {
    if (given.has(flag)) continue;
    if (said.ours !== undefined)
      translation.remark({ theirs: `${flag} ${value}, their default`, outcome: "differs", ...said });
    else translation.translate(pathOf(flag), value, { theirs: `${flag}, their default` });
  }
}

function outcomeOfValue({ values }: FlagRow, [value = ""]: readonly string[]): Outcome | undefined {
  const said = values && Object.hasOwn(values, value) ? values[value] : undefined;
  return typeof said === "object" ? said : undefined;
}

function pathOf(flag: string): string {
  const entry = entryOf(flag);
  if (!entry) throw new Error(`${flag} is not a flag of serve`);
  return entry.path;
}

/** Sets what `serve` would set, or what the row says. */
function setValue(flag: string, values: readonly string[], row: FlagRow, translation: Translation): void {
  const path = row.sets ?? pathOf(flag);
  const theirs = shownFlag(flag, values);
  const [option] = path.match(/(?<=^policy\.).*/) ?? [];
  const policy = translation.get("policy.name") ?? "predicted_latency";
  if (option !== undefined && !takesOption(policy, option)) {
    translation.remark({ theirs, outcome: "same", ours: `without effect on \`policy: ${policy}\`` });
    return;
  }
  const [value = ""] = values;
  const mapped = row.values && Object.hasOwn(row.values, value) ? row.values[value] : undefined;
  const written = row.to ?? mapped ?? writtenValue(path, values, row);
  const why = row.values && mapped === undefined ? undefined : row.why;
  const from = { theirs, ...(row.ours === undefined ? {} : { ours: row.ours }), ...(why === undefined ? {} : { why }) };
  if (row.sets !== undefined && typeof written === "number") translation.translateNumber(path, written, from);
  else translation.translate(path, written, from);
}

/** A value in the form that our file has for it. Bare times of other routers are seconds. */
function writtenValue(path: string, values: readonly string[], { as }: FlagRow): unknown {
  const [value = ""] = values;
  if (as === "first") return value;
  if (as === "headers") return values.map((name) => `header:${name.toLowerCase()}`);
  if (as === "aliases") {
    const pairs = values
      .flatMap((list) => list.split(","))
      .map((pair) => pair.trim().split(pair.includes("=") ? /=(.*)/s : /:(.*)/s));
    return Object.fromEntries(pairs.map(([alias = "", model = ""]) => [alias, model]));
  }
  const { type } = ourSetting(path);
  if (type === "list") return values;
  const isBare = /^-?\d+(\.\d+)?$/.test(value);
  if (isBare && type === "duration") return `${value}s`;
  return isBare && type === "number" ? Number(value) : value;
}

/** Sets what the values of a flag come to, and says where the table's words do not fit them. */
type Setter = (values: readonly string[], translation: Translation, router: FlagRouter) => Outcome | undefined;

const setters: Readonly<Record<NonNullable<FlagRow["by"]>, Setter>> = {
  /** It is set before everything else. */
  policy: ([written = ""], _, router) => {
    const { name = "predicted_latency", options = {}, ...said } = counterpart(written, router);
    const ours = [`\`policy: ${name}\``, ...Object.entries(options).map(([key, value]) => `\`${key}: ${value}\``)].join(
      ", ",
    );
    return { ours, outcome: said.why === undefined ? "same" : "differs", ...said };
  },
  "api-key": ([key = ""], translation) => {
    translation.set("pools", [{ models: ["*"], "engine-api-key": key }]);
    return addKey("clients", key, translation);
  },
  "client-key": ([key = ""], translation) => addKey("clients", key, translation),
  "tenant-keys": (values, translation) => {
    const said = values.map((value) => {
      const [tenant = "", ...key] = value.split(":");
      return addKey(tenant, key.join(":"), translation);
    });
    return said.find((outcome) => outcome !== undefined);
  },
};

/** Shortest key that a client may have here. */
const minKeyLength = 8;

function addKey(name: string, key: string, translation: Translation): Outcome | undefined {
  const isVariable = key.startsWith("${");
  if (key.length < minKeyLength && !isVariable) {
    return { outcome: "missing", why: `keys have ${minKeyLength} characters at least`, instead: "a longer key" };
  }
  const keys = (translation.get("api-keys") ?? []) as readonly unknown[];
  translation.settings["api-keys"] = [...keys, { name, key }];
  return undefined;
}

/** The policy that a name of theirs stands for; without `name`, our default is the nearest. */
function counterpart(written: string, { policies }: FlagRouter): Counterpart {
  if (Object.hasOwn(policies, written)) return policies[written] ?? {};
  if (Object.hasOwn(policyCatalogue, written)) return { name: written };
  return { why: `it is the name of no policy${didYouMean(written, [...Object.keys(policies), ...policyNames])}` };
}

/** Sets where traces go: a collector takes gRPC at 4317 and HTTP at 4318. */
export function setCollector(address: string, scheme: "http" | "https", translation: Translation): void {
  const place = address.replace(/^[a-z]+:\/\//, "").replace(/:4317$/, ":4318");
  translation.set("tracing.endpoint", `${scheme}://${place}`);
}
