/**
 * What the tables of `migration` say of our own settings. Symptom: the guide said that CORS, zones and prefetch are not known,
 * when they were. Mechanism: nothing compared the sentences with the configuration's schema.
 */
import { globSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { type FlagRow, flagsOf, howOf } from "../../src/migrate/flags/flag-router.ts";
import { foreignRouters } from "../../src/migrate/flags/foreign-routers.ts";
import { llmdPlugins, type ParameterRule } from "../../src/migrate/llm-d/plugins.ts";
import { readTable } from "../../src/migrate/tables.ts";
import { namedSettings, ourSettings, ourWords, unknownNames } from "./our-names.ts";

const rowKeys = ["flags", "switches", "lists", "sets", "to", "as", "by", "values", "ours", "why", "instead", "lacks"];

const theirPolicies = Object.values(foreignRouters()).flatMap(({ policies }) => Object.keys(policies));

const rows = ["sglang", "production-stack", "litellm"].flatMap(
  (name) => (readTable(name) as { flags: readonly FlagRow[] }).flags,
);
const named = rows.map((row) => [flagsOf(row)[0]?.flag ?? "a row without flags", row] as const);

/** The tests of rows for which there is something to say. */
const testOf =
  (isApplicable: boolean) =>
  (name: string, run: () => void): void => {
    if (isApplicable) test(name, run);
  };

describe.each(named)("%s", (_, row) => {
  const text = [
    row.ours,
    row.why,
    row.instead,
    ...Object.values(row.values ?? {}).map((each) => JSON.stringify(each)),
  ].join(" ");

  test("has the keys that the translation reads, and settings that there are", () => {
    expect(Object.keys(row).filter((key) => !rowKeys.includes(key))).toEqual([]);
    expect([row.sets].filter((path) => path !== undefined && !ourSettings.has(path))).toEqual([]);
    const theirs = new Set([...Object.entries(row.values ?? {}).flat(), ...theirPolicies]);
    expect(unknownNames(text).filter((name) => !theirs.has(name))).toEqual([]);
  });

  testOf(howOf(row) === "none")("names what is here instead, or words of which no setting has one", () => {
    expect(row.why).toEqual(expect.any(String));
    const words = row.lacks?.split(" ") ?? [];
    expect([...words, ...namedSettings(text), ...(text.match(/`[^`]+`/g) ?? [])]).not.toEqual([]);
    expect(words.filter((word) => ourWords.has(word))).toEqual([]);
  });

  testOf(howOf(row) === "none")("names each setting of ours that is called as its flag is", () => {
    const flags = flagsOf(row).map(({ flag }) => flag.split(/[-_.]+/));
    const alike = [...ourSettings].filter((path) => {
      const words = path.split(/[^a-z0-9]+/).filter((word) => word !== "");
      return words.length > 1 && flags.some((flag) => words.every((word) => flag.includes(word)));
    });
    const known = namedSettings(text);
    expect(alike.filter((path) => !known.some((name) => path.startsWith(name) || name.startsWith(path)))).toEqual([]);
  });
});

const plugins = (readTable("llm-d") as { plugins: readonly (Readonly<Record<string, unknown>> & PluginRow)[] }).plugins;

interface PluginRow {
  readonly ours?: string;
  readonly why?: string;
  readonly instead?: string;
  readonly lacks?: string;
  readonly weight?: string;
  readonly parameters?: Readonly<Record<string, ParameterRule>>;
}

const kinds = new Set(Object.values(llmdPlugins).map(({ kind }) => kind as string));
const pluginKeys = ["ours", "why", "instead", "lacks", "policy", "weight", "factor", "reads", "parameters"];
const pluginNames = new Set(Object.keys(llmdPlugins));

/** The parameters of a row, with those of its sections. */
function parametersOf(rules: PluginRow["parameters"] = {}): readonly Exclude<ParameterRule, "read">[] {
  return Object.values(rules).flatMap((rule) => {
    if (rule === "read") return [];
    return "parameters" in rule ? parametersOf(rule.parameters) : [rule];
  });
}

describe.each(plugins.map((row) => [String(Object.values(row)[0]), row] as const))("%s", (_, row) => {
  test("has the keys that the translation reads, and names settings that there are", () => {
    expect(Object.keys(row).filter((key) => !kinds.has(key) && !pluginKeys.includes(key))).toEqual([]);
    const rules = parametersOf(row.parameters);
    for (const rule of rules) {
      expect([["same"], ["sets"], ["instead", "why"], ["instead", "unless", "why"]]).toContainEqual(
        Object.keys(rule).toSorted(),
      );
    }
    const set = [
      ...rules.flatMap((rule) => ("sets" in rule ? [rule.sets] : [])),
      ...(row.weight === undefined ? [] : [`policy.${row.weight}`]),
    ];
    expect(set.filter((path) => !ourSettings.has(path))).toEqual([]);
    const text = [row.ours, row.why, row.instead, ...rules.flatMap((rule) => Object.values(rule))].join(" ");
    expect(unknownNames(text).filter((name) => !pluginNames.has(name))).toEqual([]);
  });

  const isAbsent = row.ours === undefined && row.weight === undefined;
  testOf(isAbsent)("names what is here instead, or words of which no setting has one", () => {
    expect(row.why).toEqual(expect.any(String));
    const words = row.lacks?.split(" ") ?? [];
    expect([...words, ...(`${row.why} ${row.instead}`.match(/`[^`]+`/g) ?? [])]).not.toEqual([]);
    expect(words.filter((word) => ourWords.has(word))).toEqual([]);
  });
});

const folder = new URL("../../src/migrate/", import.meta.url);

test.each(globSync("**/*.ts", { cwd: folder }))("sentences of %s name settings that there are", (name) => {
  const text = readFileSync(new URL(name, folder), "utf8").replaceAll(/\/\*\*.*?\*\/|^\s*\/\/[^\n]*/gms, "");
  // What a template fills in is left out, and so are names that follow from it.
  const quoted = [...text.matchAll(/"[^"\n]*"|\\`[^`$\n]*\\`/g)].map(([each]) => each.replaceAll("\\`", "`"));
  expect(unknownNames(quoted.join(" ")).filter((word) => !pluginNames.has(word))).toEqual([]);
});
