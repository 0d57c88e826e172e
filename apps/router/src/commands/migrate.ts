import { readFileSync } from "node:fs";
import type { Command } from "commander";
import { describeEntry, isNotable, renderMigration } from "../migrate/migration.ts";
import { type MigrationSource, migrationSources } from "../migrate/sources.ts";
import { writeJson, writeNote, writeResult } from "../output.ts";
import { addCommand } from "./command-list.ts";
import { readName, UsageError } from "./read-flags.ts";

interface MigrateFlags {
  readonly from: string;
  readonly json?: boolean;
}

const standardInput = 0;
const sourceNames = Object.keys(migrationSources) as (keyof typeof migrationSources)[];

export function registerMigrate(program: Command): void {
  const sources = sourceNames.map((name) => `${name} (${migrationSources[name].reads})`).join(", ");
  addCommand(program, "migrate")
    .description(
      "Translates another router's configuration into one for `serve`, on standard output. What is not the same here is " +
        "listed on standard error, and in the result as comments: why, and what to do instead.",
    )
    .argument("<file>", "the other router's configuration; - for standard input")
    .requiredOption("--from <name>", `the other router: ${sources}`)
    .option("--json", "print JSON: the configuration, and what became of each thing of the other one")
    .action(migrate);
}

function migrate(file: string, { from, json }: MigrateFlags): void {
  const name = readName(from, "--from", sourceNames);
  const source: MigrationSource = migrationSources[name];
  const shownName = file === "-" ? "standard input" : file;
  const migration = source.translate(readText(file, shownName), shownName);
  for (const entry of migration.entries.filter(isNotable)) writeNote(describeEntry(entry));
  if (json) writeJson({ from: name, configuration: migration.settings, entries: migration.entries });
  else
    writeResult(
      renderMigration(migration, `Translated by \`espalier migrate --from ${name}\` from an ${source.reads}.`),
    );
}

/** @throws UsageError for a file that cannot be read */
function readText(file: string, shownName: string): string {
  try {
    return readFileSync(file === "-" ? standardInput : file, "utf8");
  } catch (error) {
    throw new UsageError(`${shownName} cannot be read: ${(error as Error).message}`);
  }
}
