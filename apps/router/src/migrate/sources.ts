import { translateFlags } from "./flags/flag-table.ts";
import { foreignRouters } from "./flags/foreign-routers.ts";
import { flagsOfValues } from "./flags/production-stack.ts";
import { translateLlmd } from "./llm-d/translate.ts";
import type { Migration } from "./migration.ts";

/** Another router whose configuration is understood. */
export interface MigrationSource {
  /** What it reads, for the help and for the heading of the result. */
  readonly reads: string;
  /**
   * @param file names the text in messages
   * @throws EspalierError `config_invalid` with the line and column of every mistake
   */
  translate(text: string, file: string): Migration;
  /**
   * Absent for a router whose flags are not its configuration.
   *
   * @throws UsageError for a flag that it does not have
   */
  translateFlags?(words: readonly string[]): Migration;
}

const flagSources = Object.entries(foreignRouters).map(([name, router]): [string, MigrationSource] => [
  name,
  {
    reads: `flags of ${router.title}`,
    translate: (text, file) =>
      translateFlags(
        router,
        (name === "vllm-production-stack" ? flagsOfValues(text, file) : undefined) ?? splitWords(text),
      ),
    translateFlags: (words) => translateFlags(router, words),
  },
]);

/** By the name that `--from` takes. */
export const migrationSources: Readonly<Record<string, MigrationSource>> = {
  "llm-d": { reads: "EndpointPickerConfig", translate: translateLlmd },
  ...Object.fromEntries(flagSources),
};

/** The words of a command line as a POSIX shell splits it, without its variables. */
export function splitWords(text: string): readonly string[] {
  const joined = text.replace(/\\\r?\n/g, " ").replace(/^\s*#.*$/gm, "");
  const words = joined.match(/(?:[^\s"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+/gs) ?? [];
  return words.map((word) =>
    word.replace(
      /\\(.)|"((?:[^"\\]|\\.)*)"|'([^']*)'/gs,
      (_, escaped, quoted, literal) => escaped ?? literal ?? String(quoted).replace(/\\(["\\$`])/g, "$1"),
    ),
  );
}
