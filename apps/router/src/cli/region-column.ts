import type { TableColumn } from "@espalier/core";

/** The columns with one of regions behind the first two, where any row has a region. */
export function withRegion<Row extends { readonly region?: string | null | undefined }>(
  columns: readonly TableColumn<Row>[],
  rows: readonly Row[],
): readonly TableColumn<Row>[] {
  if (!rows.some(({ region }) => region)) return columns;
  return [
    ...columns.slice(0, 2),
    { header: "region", value: ({ region }) => region ?? undefined },
    ...columns.slice(2),
  ];
}
