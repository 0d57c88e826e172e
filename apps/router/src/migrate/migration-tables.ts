import { type FlagRow, flagsOf, settingsOf } from "./flags/flag-table.ts";
import { productionStack } from "./flags/production-stack.ts";
import { sglangRouter, smg } from "./flags/sglang.ts";
import { llmdPlugins } from "./llm-d/plugins.ts";

/** The tables of the migration guide, by the line above each. */
const tables: Readonly<Record<string, () => string>> = {
  "<!-- flags of SGLang's router and SMG -->": () =>
    renderFlags([...new Set([...sglangRouter.rows, ...smg.rows])], (row) => {
      if (!smg.rows.includes(row)) return "sglang-router";
      return sglangRouter.rows.includes(row) ? "both" : "SMG";
    }),
  "<!-- flags of vLLM's production stack -->": () => renderFlags(productionStack.rows),
  "<!-- llm-d plugins -->": renderPlugins,
};

/**
 * Writes the tables of flags and plugins into the migration guide, in the place of those there. `npm run docs` writes the
 * file.
 *
 * @param guide Markdown with the marks of the tables
 * @throws Error when a mark is missing
 */
export function withMigrationTables(guide: string): string {
  return Object.entries(tables).reduce((text, [mark, render]) => {
    const [before, after] = text.split(`${mark}\n\n`);
    if (before === undefined || after === undefined) throw new Error(`the guide has no line ${mark}`);
    return `${before}${mark}\n\n${render()}\n${after.replace(/^(\|.*\n)*\n*/, "")}`;
  }, guide);
}

const orders = { accepted: "as it is", translated: "`migrate`", none: "" };

/** A row for each row of the code, those that `serve` takes first. */
function renderFlags(rows: readonly FlagRow[], of?: (row: FlagRow) => string): string {
  const lines = Object.entries(orders).flatMap(([how, words]) =>
    rows
      .filter((row) => row.how === how)
      .map((row) => {
        const theirs = flagsOf(row).map((flag) => `\`${flag}\``);
        const cells = [theirs.join(", "), ...(of ? [of(row)] : []), words, settingsOf(row), difference(row)];
        return `| ${cells.join(" | ")} |\n`;
      }),
  );
  const head = ["theirs", ...(of ? ["of"] : []), "taken", "ours", "the same but for"];
  return `| ${head.join(" | ")} |\n|${"---|".repeat(head.length)}\n${lines.join("")}`;
}

/** A row for each thing of ours, with the plugins that come to it. */
function renderPlugins(): string {
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
const difference = ({ why, instead }: { readonly why?: string; readonly instead?: string }): string =>
  [why, instead === undefined ? undefined : `instead: ${instead}`].filter((part) => part !== undefined).join("; ");
