import { translateLlmd } from "./llm-d/translate.ts";
import type { Migration } from "./migration.ts";

/** Another router whose configuration is understood. */
export interface MigrationSource {
  /** The kind of file it reads, for the help and for the heading of the result. */
  readonly reads: string;
  /**
   * @param file names the text in messages
   * @throws EspalierError `config_invalid` with the line and column of every mistake
   */
  translate(text: string, file: string): Migration;
}

/** By the name that `--from` takes. */
export const migrationSources = {
  "llm-d": { reads: "EndpointPickerConfig", translate: translateLlmd },
} as const satisfies Readonly<Record<string, MigrationSource>>;
