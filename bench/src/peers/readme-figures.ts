/** The products in the README's table, in column order; undefined for one that was not measured. */
const columns = ["espalier", "smg", "sglang-router", undefined, undefined, undefined] as const;
const mark = "<!-- cpu-row -->";

/** The part of the report of `npm run bench -- peers --json` that the README shows. */
export interface MeasuredPeers {
  readonly rows: readonly { readonly name: string; readonly cpu_us_4k?: number; readonly cpu_us_48k?: number }[];
}

/**
 * Writes the figures of a report into the README's marked row. `npm run docs` writes the file.
 *
 * @throws Error when the row or a product's figures are missing
 */
export function withFigures(readme: string, report: MeasuredPeers): string {
  const line = readme.split("\n").find((each) => each.includes(mark));
  if (line === undefined) throw new Error(`README.md has no row with ${mark}`);
  const title = line.slice(0, line.indexOf(mark) + mark.length);
  const cells = columns.map((name) => (name === undefined ? "not measured" : figuresOf(report, name)));
  return readme.replace(line, `${title} | ${cells.join(" | ")} |`);
}

function figuresOf({ rows }: MeasuredPeers, name: string): string {
  const { cpu_us_4k: small, cpu_us_48k: large } = rows.find((row) => row.name === name) ?? {};
  if (small === undefined || large === undefined) throw new Error(`the report has no figures of ${name}`);
  return `${Math.round(small)} / ${Math.round(large)} us`;
}
