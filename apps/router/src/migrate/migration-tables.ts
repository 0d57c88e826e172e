import { flagsOf, howOf, outcomeOf, readRouters, settingsOf } from "./flags/flag-router.ts";
import { llmdPlugins } from "./llm-d/plugins.ts";

/** The tables of the migration guide, by the line above each. */
const tables: Readonly<Record<string, () => string>> = {
  "<!-- flags of SGLang's router, SMG and vllm-router -->": () => renderFlags("sglang"),
  "<!-- flags of vLLM's production stack -->": () => renderFlags("production-stack"),
  "<!-- settings of LiteLLM -->": () => renderFlags("litellm"),
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

/** A row for each row of the table, those that `serve` takes first. @param table its file */
function renderFlags(table: string): string {
  const routers = Object.entries(readRouters(table, () => {}));
  const rows = routers[0]?.[1].rows ?? [];
  const lines = Object.entries(orders).flatMap(([how, words]) =>
    rows
      .filter((row) => howOf(row) === how)
      .map((row) => {
        const flags = flagsOf(row).map(({ flag }) => flag);
        const owners = routers.filter(([, { known }]) => flags.some((flag) => known.has(flag))).map(([name]) => name);
        const of = owners.length === routers.length ? "all" : owners.join(", ");
        const ours = how === "none" ? "none" : settingsOf(row);
        const cells = [flags.map((flag) => `\`${flag}\``).join(", "), ...(routers.length > 1 ? [of] : []), words, ours];
        return `| ${[...cells, difference(outcomeOf(row))].join(" | ")} |\n`;
      }),
  );
  const head = ["theirs", ...(routers.length > 1 ? ["of"] : []), "taken", "ours", "the same but for"];
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
