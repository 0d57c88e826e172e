import fc from "fast-check";
import { expect, test } from "vitest";
import { layOutHelpItem, layOutTable, lineWidth, wrapText } from "../src/text-layout.ts";

const widthOf = (text: string): number => Math.max(...text.split("\n").map((line) => line.length));

interface Row {
  readonly name: string;
  readonly count: number;
  readonly why: string;
}

const rows: readonly Row[] = [
  { name: "10.0.0.1:8000", count: 12, why: "connect ECONNREFUSED 10.0.0.1:8000 after 3 tries" },
  { name: "b", count: 3.5, why: "" },
];

const columns = [
  { header: "engine", value: ({ name }: Row) => name },
  { header: "requests in flight", value: ({ count }: Row) => count, digits: 1 },
  { header: "why", value: ({ why }: Row) => why },
];

test("a terminal has its own width, and a pipe none", () => {
  expect(lineWidth({ isTTY: true, columns: 132 })).toBe(132);
  expect(lineWidth({ isTTY: true })).toBe(80);
  expect(lineWidth({ columns: 80 })).toBe(Number.POSITIVE_INFINITY);
});

test("what fits is one line for each row", () => {
  expect(layOutTable(rows, columns, 100)).toBe(
    [
      "engine         requests in flight  why",
      "10.0.0.1:8000                12.0  connect ECONNREFUSED 10.0.0.1:8000 after 3 tries",
      "b                             3.5  -",
      "",
    ].join("\n"),
  );
});

test("headers are broken before cells, and stand on the rows", () => {
  expect(layOutTable(rows, columns, 80)).toBe(
    [
      "               requests",
      "                     in",
      "engine           flight  why",
      "10.0.0.1:8000      12.0  connect ECONNREFUSED 10.0.0.1:8000 after 3 tries",
      "b                   3.5  -",
      "",
    ].join("\n"),
  );
});

test("then long texts, at spaces", () => {
  expect(layOutTable(rows, columns, 50)).toBe(
    [
      "               requests",
      "                     in",
      "engine           flight  why",
      "10.0.0.1:8000      12.0  connect ECONNREFUSED",
      "                         10.0.0.1:8000 after 3",
      "                         tries",
      "b                   3.5  -",
      "",
    ].join("\n"),
  );
});

test("columns that fit in no way go below, each table with the first column", () => {
  const many = Array.from({ length: 12 }, (_, at) => ({
    header: `figure ${at} (ms)`,
    value: () => 1_000_000 + at,
  }));
  const text = layOutTable(rows, [columns[0]!, ...many], 80);
  expect(widthOf(text)).toBeLessThanOrEqual(80);
  const tables = text.split("\n\n");
  expect(tables.length).toBeGreaterThan(1);
  for (const table of tables) expect(table).toMatch(/^engine /m);
  for (const { value } of many) expect(text).toContain(String(value()));
});

test("a value that is longer than a line stays whole, and nothing is lost at any width", () => {
  const long = `http://${"x".repeat(100)}:8000`;
  for (const width of [1, 20, 40, 60, 80, 200]) {
    const text = layOutTable([{ name: long, count: 1, why: "a,b,c, and d" }], columns, width);
    expect(text).toContain(long);
    expect(text.replace(/\s+/g, "")).toContain("a,b,c,andd".slice(0, width === 1 ? 2 : undefined));
  }
  expect(layOutTable([], columns, 80)).toBe("engine  requests in flight  why\n");
});

test("lists without spaces are broken behind their commas", () => {
  const one = [{ header: "variants", value: () => "alpha,beta,gamma" }];
  expect(layOutTable([0], one, 12)).toBe("variants\nalpha,beta,\ngamma\n");
});

test("lines are broken with an indent of their own; others stay", () => {
  expect(wrapText("short\nmodels    one, two, three, four", 10, 24)).toBe(
    "short\nmodels    one, two,\n          three, four",
  );
  expect(wrapText("x".repeat(30), 4, 20)).toBe("x".repeat(30));
  expect(wrapText("a b", 0, Number.POSITIVE_INFINITY)).toBe("a b");
});

test("in help a flag has its column, and a long one its line", () => {
  const text = "One two three four five six seven eight nine ten eleven.";
  expect(layOutHelpItem("--flag <value>", 40, text, 60)).toBe(
    [
      "  --flag <value>              One two three four five six",
      "                              seven eight nine ten eleven.",
    ].join("\n"),
  );
  expect(layOutHelpItem("--a-very-long-flag-indeed <value>", 40, "What.", 60)).toBe(
    ["  --a-very-long-flag-indeed <value>", "                              What."].join("\n"),
  );
  expect(layOutHelpItem("--flag", 6, "", 60)).toBe("  --flag");
});

test("values that are no numbers show as absent, and no line ends in spaces", () => {
  const odd = [{ header: "n", value: (value: number) => value }];
  expect(layOutTable([Number.NaN, 2, Number.POSITIVE_INFINITY], odd)).toBe("n\n-\n2\n-\n");
  expect(layOutTable([0], [{ header: "a long header", value: () => "x" }])).toBe("a long header\nx\n");
});

test("every number of a table ends where its header ends", () => {
  const rows = fc.array(
    fc.record({ name: fc.stringMatching(/^[a-z]{1,12}$/), value: fc.float({ noNaN: true, min: -1e6, max: 1e6 }) }),
    { minLength: 1, maxLength: 8 },
  );
  fc.assert(
    fc.property(rows, fc.integer({ min: 0, max: 3 }), (list, digits) => {
      const lines = layOutTable(list, [
        { header: "name", value: (row) => row.name },
        { header: "value (s)", value: (row) => row.value, digits },
      ]).split("\n");
      expect(lines.pop()).toBe("");
      expect(new Set(lines.map((line) => line.length)).size).toBe(1);
      for (const [i, { name, value }] of list.entries()) {
        expect(lines[i + 1]!.split(/\s+/)).toEqual([name, value.toFixed(digits)]);
      }
    }),
  );
});
