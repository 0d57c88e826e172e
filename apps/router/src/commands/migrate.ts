import { EspalierError } from "@espalier/core";
import { loadConfig } from "@espalier/server";
import type { Command } from "commander";
import { readInput, readName, UsageError } from "../cli/read-flags.ts";
import { describeEntry, isNotable, type Migration, renderMigration } from "../migrate/migration.ts";
import { type MigrationSource, migrationSources } from "../migrate/sources.ts";
import { writeJson, writeNote, writeResult } from "../output.ts";
import { addCommand } from "./command-list.ts";

interface MigrateFlags {
  readonly from: string;
  readonly json?: boolean;
}

const sourceNames = Object.keys(migrationSources);

export function registerMigrate(program: Command): void {
  const sources = Object.entries(migrationSources).map(([name, { reads }]) => `${name} (${reads})`);
  addCommand(program, "migrate")
    .description(
      "Translates another router's configuration for `serve` and prints it. Differences are " +
        "listed on standard error and as comments in the result, with the alternative.",
    )
    .argument(
      "<input...>",
      "the other router's flags after --, or a file with its command line, chart values or configuration; - reads standard input",
    )
    .requiredOption("--from <name>", `source router: ${sources.join(", ")}`)
    .option("--json", "print JSON: the configuration and the outcome of each setting")
    .action(migrate);
}

function migrate(input: readonly string[], { from, json }: MigrateFlags): void {
  const name = readName(from, "--from", sourceNames);
  const source = migrationSources[name] as MigrationSource;
  const migration = translate(name, source, input);
  for (const entry of migration.entries.filter(isNotable)) writeNote(describeEntry(entry));
  const text = renderMigration(migration, `Translated by \`espalier migrate --from ${name}\` (${source.reads}).`);
  const problems = problemsOf(text);
  for (const problem of problems) writeNote(`error: ${problem}`);
  if (problems.length > 0) process.exitCode = 1;
  if (json) writeJson({ from: name, configuration: migration.settings, entries: migration.entries });
  else writeResult(text);
}

/** What `check-config` has to say of a result, whose variables count as set. */
function problemsOf(text: string): readonly string[] {
  const variables = [...text.matchAll(/(?<!\$)\$\{(\w+)\}/g)].map(([, variable = ""]) => [
    variable,
    "set-where-it-runs",
  ]);
  try {
    loadConfig({ file: { path: "the result", text }, env: Object.fromEntries(variables) });
    return [];
  } catch (error) {
    if (error instanceof EspalierError && error.code === "config_invalid") return error.message.split("\n");
    throw error;
  }
}

/** @throws UsageError for flags of a router that is configured by a file, and for a file without any flag */
function translate(name: string, source: MigrationSource, input: readonly string[]): Migration {
  const [file = "", ...more] = input;
  if (more.length > 0 || file.startsWith("--")) {
    if (source.translateFlags) return source.translateFlags(input);
    throw new UsageError(`${name} is translated from one file: its ${source.reads}`);
  }
  const shownName = file === "-" ? "standard input" : file;
  return source.translate(readInput(file, shownName), shownName);
}
