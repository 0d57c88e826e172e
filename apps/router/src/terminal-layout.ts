import type { TableColumn } from "@espalier/workload";

/** Where text goes, as far as its width matters. */
export interface TextOutput {
  readonly isTTY?: boolean;
  readonly columns?: number;
}

const usualColumns = 80;
const gap = 2;

/** Columns that a line may have: those of a terminal. A pipe gets each row as one line, whatever its width. */
export function lineWidth(output: TextOutput = process.stdout): number {
  return output.isTTY ? (output.columns ?? usualColumns) : Number.POSITIVE_INFINITY;
}

/** One column with its text, as far as the layout needs it. */
interface LaidColumn {
  readonly header: string;
  readonly cells: readonly string[];
  readonly toRight: boolean;
  /** On one line each, with the header broken into its words, and with every cell broken as well. */
  readonly widest: number;
  readonly compact: number;
  readonly narrowest: number;
}

/**
 * Lays rows out as a table that fits in `width`: columns two spaces apart, texts to the left, numbers to the right, `-`
 * for what is absent. What does not fit on one line is broken at spaces and commas, headers first; if that is not enough,
 * the columns are shown in several tables below each other, each of which begins with the first column. A single word is
 * never cut.
 *
 * @param width in characters; unlimited unless standard output is a terminal
 */
export function layOutTable<Row>(
  rows: readonly Row[],
  columns: readonly TableColumn<Row>[],
  width: number = lineWidth(),
): string {
  const all = columns.map((column) => layOutColumn(rows, column));
  return tablesOf(all, width)
    .map((some) => renderTable(some, widthsFor(some, width)))
    .join("\n");
}

function layOutColumn<Row>(rows: readonly Row[], { header, value, digits = 0 }: TableColumn<Row>): LaidColumn {
  const values = rows.map(value);
  const cells = values.map((each) => show(each, digits));
  const widest = longest([header, ...cells]);
  const toRight = values.some((each) => typeof each === "number");
  return {
    ...{ header, cells, toRight, widest },
    compact: longest([...wordsOf(header), ...cells]),
    narrowest: longest([header, ...cells].flatMap(wordsOf)),
  };
}

function show(value: string | number | undefined, digits: number): string {
  if (value === undefined || value === "") return "-";
  if (typeof value === "string") return value;
  return Number.isFinite(value) ? value.toFixed(digits) : "-";
}

const longest = (texts: readonly string[]): number => texts.reduce((most, text) => Math.max(most, text.length), 0);

const totalOf = (widths: readonly number[]): number =>
  widths.reduce((sum, width) => sum + width, 0) + gap * (widths.length - 1);

/** A text that is longer than this is broken before the table is. */
const readableColumns = 24;

const leastReadable = ({ compact, narrowest }: LaidColumn): number =>
  Math.max(narrowest, Math.min(compact, readableColumns));

/** The columns of each table: all in one if they fit, else as many as fit beside the first one. */
function tablesOf(columns: readonly LaidColumn[], width: number): readonly (readonly LaidColumn[])[] {
  const [key, ...others] = columns;
  if (!key || totalOf(columns.map(leastReadable)) <= width) return [columns];
  const tables: LaidColumn[][] = [];
  let open: LaidColumn[] = [];
  for (const column of others) {
    if (open.length > 0 && totalOf([key, ...open, column].map(leastReadable)) > width) {
      tables.push(open);
      open = [];
    }
    open.push(column);
  }
  return [...tables, open].map((some) => [key, ...some]);
}

/** The least breaking that fits: none, then headers, then cells, the widest columns first. */
function widthsFor(columns: readonly LaidColumn[], width: number): readonly number[] {
  const widest = columns.map((column) => column.widest);
  if (totalOf(widest) <= width) return widest;
  const widths = columns.map(({ compact }) => compact);
  for (let over = totalOf(widths) - width; over > 0; over = totalOf(widths) - width) {
    const spare = widths.map((each, at) => each - columns[at]!.narrowest);
    const candidates = widths.filter((_, at) => spare[at]! > 0);
    if (candidates.length === 0) break;
    const most = Math.max(...candidates);
    const at = widths.findIndex((each, index) => each === most && spare[index]! > 0);
    widths[at] = most - 1;
  }
  return widths;
}

function renderTable(columns: readonly LaidColumn[], widths: readonly number[]): string {
  const rowCount = columns[0]?.cells.length ?? 0;
  const headers = columns.map(({ header }, at) => wrapWords(header, widths[at]!));
  const height = Math.max(0, ...headers.map((lines) => lines.length));
  // Headers stand on the rows.
  const heading = headers.map((lines) => [...Array<string>(height - lines.length).fill(""), ...lines]);
  const rows = Array.from({ length: rowCount }, (_, row) =>
    columns.map(({ cells }, at) => wrapWords(cells[row]!, widths[at]!)),
  );
  const lines = [heading, ...rows].flatMap((cells) => {
    const count = Math.max(...cells.map((parts) => parts.length));
    return Array.from({ length: count }, (_, line) =>
      cells
        .map((parts, at) => {
          const text = parts[line] ?? "";
          return columns[at]!.toRight ? text.padStart(widths[at]!) : text.padEnd(widths[at]!);
        })
        .join(" ".repeat(gap))
        .trimEnd(),
    );
  });
  return `${lines.join("\n")}\n`;
}

/** Pieces that stay whole: a line may end behind a space, and behind a comma within a word. */
function wordsOf(text: string): readonly string[] {
  return text.split(/\s+|(?<=,)(?=\S)/).filter((word) => word !== "");
}

/** Lines of at most `width` characters, those behind the first one of `laterWidth`; longer ones where a word is. */
function wrapWords(text: string, width: number, laterWidth = width): readonly string[] {
  if (text.length <= width) return [text];
  const lines: string[] = [];
  let line = "";
  for (const [piece] of text.matchAll(/\s*(?:[^\s,]|,(?=\s|$))*,?/g)) {
    if (piece === "") continue;
    if (line !== "" && (line + piece).length > (lines.length === 0 ? width : laterWidth)) {
      lines.push(line);
      line = piece.trimStart();
    } else line += line === "" ? piece.trimStart() : piece;
  }
  return line === "" ? lines : [...lines, line];
}

/**
 * Breaks the lines of a text at spaces.
 *
 * @param indent of the lines that a line is broken into, in characters
 * @param width in characters; unlimited unless standard output is a terminal
 */
export function wrapText(text: string, indent: number, width: number = lineWidth()): string {
  return text
    .split("\n")
    .map((line) => {
      if (line.length <= width) return line;
      const [lead = ""] = /^\s*/.exec(line) ?? [];
      const margin = " ".repeat(indent);
      const [first = "", ...rest] = wrapWords(line.trim(), width - lead.length, width - indent);
      return [`${lead}${first}`, ...rest.map((each) => `${margin}${each}`)].join("\n");
    })
    .join("\n");
}

const itemIndent = 2;
/** A longer flag has its line to itself. */
const maxTermColumns = 26;

/**
 * One flag, argument or command of a help page: the term in its own column, what it means wrapped beside it.
 *
 * @param termColumns of the widest term
 * @param width of the page in characters
 */
export function layOutHelpItem(term: string, termColumns: number, description: string, width: number): string {
  const lead = " ".repeat(itemIndent);
  if (description === "") return `${lead}${term}`;
  const column = Math.min(termColumns, maxTermColumns);
  const margin = itemIndent + column + gap;
  const lines = description.split("\n").flatMap((line) => wrapWords(line, width - margin));
  const body = lines.map((line) => `${" ".repeat(margin)}${line}`);
  if (term.length > column) return [`${lead}${term}`, ...body].join("\n");
  return [`${lead}${term.padEnd(column)}${" ".repeat(gap)}${lines[0] ?? ""}`, ...body.slice(1)].join("\n");
}
