/** The part of the report of `npm run bench -- peers --json` whose figures stand outside of its page. */
export interface MeasuredPeers {
  readonly rows: readonly { readonly name: string; readonly cpu_us_4k?: number; readonly cpu_us_48k?: number }[];
}

/** An entry of `docs/benchmarks/figures.json`: a figure as a page of benchmarks has it, in which section, and the command that makes it there. */
export interface KeptFigure {
  readonly figure: string;
  /** The page in `docs/benchmarks` and the anchor of the section's heading: `PAGE.md#ANCHOR`. */
  readonly section: string;
  readonly command: string;
}

/** Products whose figures the README shows. */
const shownPeers = ["espalier", "smg", "sglang-router"];
const marked = /(<!-- figure: ([\w.-]+) -->)[^<\n]*(<!-- \/figure -->)/g;

/**
 * The figures that documents may name, as text by name: those that pages of benchmarks have, and `cpu.PRODUCT` of a report, in
 * microseconds a request of 4 KB and of 48 KB.
 *
 * @throws Error when the report lacks a product's figures
 */
export function namedFigures(report: MeasuredPeers, kept: Readonly<Record<string, KeptFigure>>): Map<string, string> {
  const figures = new Map(Object.entries(kept).map(([name, { figure }]) => [name, figure]));
  for (const name of shownPeers) figures.set(`cpu.${name}`, cpuOf(report, name));
  return figures;
}

/**
 * Writes the figures into the marked places of a document: `<!-- figure: NAME -->7.0<!-- /figure -->`. `npm run docs` writes the files.
 *
 * @throws Error when a place names no figure
 */
export function withFigures(text: string, figures: ReadonlyMap<string, string>): string {
  return text.replace(marked, (_place, begin: string, name: string, end: string) => {
    const figure = figures.get(name);
    if (figure === undefined) throw new Error(`unknown figure ${name}`);
    return `${begin}${figure}${end}`;
  });
}

function cpuOf({ rows }: MeasuredPeers, name: string): string {
  const { cpu_us_4k: small, cpu_us_48k: large } = rows.find((row) => row.name === name) ?? {};
  if (small === undefined || large === undefined) throw new Error(`the report has no figures of ${name}`);
  return `${Math.round(small)} / ${Math.round(large)} us`;
}
