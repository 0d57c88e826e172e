import { writeYaml } from "@espalier/server";

/** A configuration of another router, in ours. */
export interface Migration {
  /** Keyed as in our file. */
  readonly settings: Readonly<Record<string, unknown>>;
  /** Everything that the other configuration says, in its order. */
  readonly entries: readonly MigrationEntry[];
}

/**
 * What became of one thing of the other configuration.
 *
 * - `same`: a setting of ours has the same meaning, or the router does it by itself.
 * - `differs`: it was translated, and does not do quite the same.
 * - `missing`: nothing of ours corresponds to it.
 */
export interface MigrationEntry {
  readonly outcome: "same" | "differs" | "missing";
  /** Path of the thing in their file, such as `plugins[2].parameters.lruSize`. */
  readonly theirs: string;
  /** Type of the plugin that it belongs to. */
  readonly plugin?: string;
  /** `FILE:LINE:COLUMN`; absent for what the file leaves out. */
  readonly place?: string;
  /** Our settings, or the words for what needs none. */
  readonly ours?: string;
  /** Why it differs, or why it is missing. */
  readonly why?: string;
  readonly instead?: string;
}

/** Whether the entry asks for the reader's attention. */
export const isNotable = ({ outcome }: MigrationEntry): boolean => outcome !== "same";

/** One line for people: the thing, why it is not the same, and what to do. */
export function describeEntry({ outcome, theirs, plugin, place, ours, why, instead }: MigrationEntry): string {
  const subject = plugin === undefined ? theirs : `${theirs} (${plugin})`;
  const result = outcome === "missing" ? "not translated" : `here ${ours}`;
  const advice = instead === undefined ? "" : `; instead: ${instead}`;
  return `${place === undefined ? "" : `${place}: `}${subject}: ${result}${why === undefined ? "" : `: ${why}`}${advice}`;
}

/**
 * The configuration as a file of ours. What is not the same is listed above it, as comments.
 *
 * @param title one line that says where it comes from
 */
export function renderMigration({ settings, entries }: Migration, title: string): string {
  const notable = entries.filter(isNotable).map(describeEntry);
  const comments = notable.length === 0 ? [] : ["", "Differences:", ...notable.map((line) => `- ${line}`)];
  const lines = [title, ...comments].flatMap((line) => line.split(/\r?\n/));
  return `${lines.map((line) => `# ${line}`.trimEnd()).join("\n")}\n${writeYaml(settings)}`;
}
