import { UsageError } from "../cli/read-flags.ts";
import { commandLineIn } from "./command-lines.ts";
import type { FlagRouter } from "./flags/flag-router.ts";
import { foreignRouters } from "./flags/foreign-routers.ts";
import { translateValues } from "./flags/production-stack.ts";
import { flagFinder, translateFlags } from "./flags/translate-flags.ts";
import { translateLitellm } from "./litellm.ts";
import { translateLlmd } from "./llm-d/translate.ts";
import type { Migration } from "./migration.ts";

/** Another router whose configuration is understood. */
export interface MigrationSource {
  /** What it reads, for the help and for the heading of the result. */
  readonly reads: string;
  /**
   * @param file names the text in messages
   * @throws EspalierError `config_invalid` with the line and column of every mistake
   * @throws UsageError for a file without any flag of the router
   */
  translate(text: string, file: string): Migration;
  /** Absent for a router whose flags are not its configuration. */
  translateFlags?(words: readonly string[]): Migration;
}

const flagSources = Object.entries(foreignRouters()).map(([name, router]): [string, MigrationSource] => [
  name,
  {
    reads: `flags of ${router.title}`,
    translate: (text, file) =>
      (name === "vllm-production-stack" ? translateValues(router, text, file) : undefined) ??
      translateFlags(router, commandLineOf(router, text, file)),
    translateFlags: (words) => translateFlags(router, words),
  },
]);

function commandLineOf(router: FlagRouter, text: string, file: string): readonly string[] {
  const find = flagFinder(router);
  const words = commandLineIn(text, (word) => find(word) !== undefined);
  if (!words) throw new UsageError(`${file}: no command line with a flag of ${router.title} is in it`);
  return words;
}

/** By the name that `--from` takes. */
export const migrationSources: Readonly<Record<string, MigrationSource>> = {
  "llm-d": { reads: "EndpointPickerConfig", translate: translateLlmd },
  ...Object.fromEntries(flagSources),
  litellm: { reads: "config.yaml of its proxy", translate: translateLitellm },
};
