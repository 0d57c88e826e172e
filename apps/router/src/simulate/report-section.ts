import type { MedianRow } from "@espalier/simulator";
import { boundsNotes } from "./bounds-notes.ts";
import type { TextTable } from "./extra-tables.ts";
import { columnsOf, documentCell } from "./row-columns.ts";

const begin = "<!-- simulate:begin -->";
const end = "<!-- simulate:end -->";

/** What one entry of the report came to. */
export interface ReportSection {
  readonly scenario: string;
  readonly summary: string;
  readonly command: string;
  readonly medians: readonly MedianRow[];
  readonly tables: readonly TextTable[];
  /** Path of the plot, seen from the document. */
  readonly plot: string | undefined;
  /** What is not there, and why. */
  readonly remarks: readonly string[];
}

/** The part of the document between its marks. */
export function renderReport(sections: readonly ReportSection[], command: string): string {
  return [
    "## Fleets in virtual time",
    "",
    "```sh",
    command,
    "```",
    "",
    "Made by that command. The policies, the index and the mesh are the routers' own; engines, links and clients are modelled.",
    "Medians over seeds, with the extremes where they differ.",
    "",
    ...sections.flatMap(renderSection),
  ]
    .join("\n")
    .trimEnd();
}

function renderSection({ scenario, summary, command, medians, tables, plot, remarks }: ReportSection): string[] {
  return [
    `### ${scenario}`,
    "",
    summary,
    "",
    "```sh",
    command,
    "```",
    "",
    ...(medians.length === 0 ? [] : [...rowTable(medians), "", ...boundsNotes(medians).flatMap((line) => [line, ""])]),
    ...tables.flatMap(({ title, headers, lines }) => [`${title}:`, "", ...markdown(headers, lines), ""]),
    ...(plot === undefined ? [] : [`![${scenario}: plots of the table's runs](${plot})`, ""]),
    ...remarks.flatMap((remark) => [remark, ""]),
  ];
}

function rowTable(medians: readonly MedianRow[]): readonly string[] {
  const columns = columnsOf(medians).filter(
    (column) => "label" in column || medians.some(({ figures }) => column.figure in figures),
  );
  return markdown(
    columns.map(({ header }) => header),
    medians.map((row) => columns.map((column) => documentCell(column, row))),
  );
}

function markdown(headers: readonly string[], lines: readonly (readonly string[])[]): readonly string[] {
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
  return [line(headers), `|${headers.map(() => "---").join("|")}|`, ...lines.map(line)];
}

/**
 * Puts one scenario's section into a document that has a report, in place of the one that it has, or behind the others.
 *
 * @throws Error for a document without a report
 */
export function replaceSection(document: string, section: ReportSection): string {
  const from = document.indexOf(begin);
  const to = document.indexOf(end);
  if (from === -1 || to < from) throw new Error("the document has no report yet: make the whole one first");
  const report = document.slice(from + begin.length, to).trim();
  const parts = report.split(/\n(?=### )/);
  const rendered = renderSection(section).join("\n").trimEnd();
  const at = parts.findIndex((part) => part.startsWith(`### ${section.scenario}\n`));
  const others = parts.map((part) => part.trimEnd());
  if (at === -1) others.push(rendered);
  else others[at] = rendered;
  return replaceReport(document, others.join("\n\n"));
}

/**
 * Puts the report into a document, in place of what is between its marks, or at the end of a document without them.
 *
 * @throws Error for a document that has one mark alone, or has them in the wrong order
 */
export function replaceReport(document: string, report: string): string {
  const from = document.indexOf(begin);
  const to = document.indexOf(end);
  const section = `${begin}\n${report}\n${end}`;
  if (from === -1 && to === -1) return `${document.trimEnd()}\n\n${section}\n`;
  if (from === -1 || to < from) throw new Error(`the document has ${begin} and ${end} not in pairs: mend it first`);
  return document.slice(0, from) + section + document.slice(to + end.length);
}
