export interface TableColumn<Row> {
  /** Includes the unit, for example `ttft p50 (s)`. */
  readonly header: string;
  /** Undefined when the row has no such value. */
  value(row: Row): string | number | undefined;
  /** Digits after the point of a number, 0 by default. */
  readonly digits?: number;
}

/**
 * Formats rows as a table for a terminal: columns two spaces apart, text left-aligned, numbers right-aligned, `-` for
 * absent values. No line ends in spaces.
 */
export function formatTable<Row>(rows: readonly Row[], columns: readonly TableColumn<Row>[]): string {
  const laidOut = columns.map((column) => {
    const values = rows.map((row) => column.value(row));
    const cells = values.map((value) => show(value, column.digits ?? 0));
    const width = Math.max(column.header.length, ...cells.map((cell) => cell.length));
    const toRight = values.some((value) => typeof value === "number");
    return [column.header, ...cells].map((cell) => (toRight ? cell.padStart(width) : cell.padEnd(width)));
  });
  const lines = Array.from({ length: rows.length + 1 }, (_, line) => laidOut.map((cells) => cells[line]!).join("  "));
  return `${lines.map((line) => line.trimEnd()).join("\n")}\n`;
}

function show(value: string | number | undefined, digits: number): string {
  if (value === undefined || value === "") return "-";
  if (typeof value === "string") return value;
  return Number.isFinite(value) ? value.toFixed(digits) : "-";
}
