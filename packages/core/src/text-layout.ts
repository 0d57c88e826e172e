export interface TableColumn<Row> {
  /** Includes the unit, for example `ttft p50 (s)`. */
  readonly header: string;
  /** Undefined when the row has no such value. */
  value(row: Row): string | number | undefined;
  /** Digits after the point of a number, 0 by default. */
  readonly digits?: number;
}

/** Layout of text by width. */
export interface TextOutput {
  readonly isTTY?: boolean;
  readonly columns?: number;
}

const usualColumns = 80;
const gap = 2;

/** Columns per line: those of a terminal. In a pipe each row is one line of any width. */
export function lineWidth(output: TextOutput = process.stdout): number {
  return output.isTTY ? (output.columns ?? usualColumns) : Number.POSITIVE_INFINITY;
}

/** One column with its text, as the layout needs it. */
interface LaidColumn {
  readonly header: string;
  readonly cells: readonly string[];
  readonly toRight: boolean;
  /** Widths with each cell on one line, with the header broken into its words, and with every cell broken too. */
  readonly widest: number;
  readonly compact: number;
  readonly narrowest: number;
}

/**
 * Lays out rows as a table that fits in `width`: columns two spaces apart, text left-aligned, numbers right-aligned,
 * `-` for absent values. Text that does not fit on one line is broken at spaces and commas, headers first. If that is
 * not enough, the columns are split into several tables below each other, which all begin with the first column. Single
 * words are never cut.
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

/** Text longer than this is broken before the table is split. */
const readableColumns = 24;

const leastReadable = ({ compact, narrowest }: LaidColumn): number =>
  Math.max(narrowest, Math.min(compact, readableColumns));

/** The columns of each table: all in one if they fit, else as many as fit next to the first one. */
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
  // Aligns headers with the bottom of the header row.
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

/** Unbreakable pieces: a line may end after a space, and after a comma within a word. */
function wordsOf(text: string): readonly string[] {
  return text.split(/\s+|(?<=,)(?=\S)/).filter((word) => word !== "");
}

/** Lines of at most `width` characters, or `laterWidth` after the first one. A line is longer if a word is. */
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
 * @param indent of continuation lines, in characters
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
/** A longer flag gets its own line. */
const maxTermColumns = 26;

/**
 * One flag, argument or command of a help page: the term in one column, its wrapped description in the next.
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
