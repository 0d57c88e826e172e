import { llmdPlugins, type PluginRule } from "./plugins.ts";

/** The line of the guide above the table. */
const mark = "<!-- llm-d plugins -->";

/**
 * Writes the table of llm-d's plugins into the migration guide, in the place of the one there. `npm run docs` writes the
 * file.
 *
 * @param guide Markdown with the mark of the table
 * @throws Error when the mark is missing
 */
export function withPluginTable(guide: string): string {
  const [before, after] = guide.split(`${mark}\n\n`);
  if (before === undefined || after === undefined) throw new Error(`the guide has no line ${mark}`);
  return `${before}${mark}\n\n${renderPluginTable()}\n${after.replace(/^(\|.*\n)*\n*/, "")}`;
}

/** A row for each thing of ours, with the plugins that come to it. */
function renderPluginTable(): string {
  const rows = new Map<string, string[]>();
  for (const [type, rule] of Object.entries(llmdPlugins)) {
    const cells = `| ${rule.ours ?? "none"} | ${difference(rule)} |`;
    const types = rows.get(cells) ?? [];
    rows.set(cells, [...types, `\`${type}\``]);
  }
  const lines = [...rows].map(([cells, types]) => `| ${types.join(", ")} ${cells}\n`);
  return `| theirs | ours | the same but for |\n|---|---|---|\n${lines.join("")}`;
}

/** What is different, and what to do about it. */
const difference = ({ why, instead }: PluginRule): string =>
  [why, instead === undefined ? undefined : `instead: ${instead}`].filter((part) => part !== undefined).join("; ");
