import { expect, test } from "vitest";
import { checkArchitectureTable } from "./architecture-table.ts";
import { fakePackage, linesOf, treeOf } from "./fake-tree.ts";

const packages = {
  ...fakePackage("common"),
  ...fakePackage("openai", { imports: ["common"] }),
  ...fakePackage("proxy", { imports: ["common", "openai"], libraries: { undici: "7.30.2" } }),
};

const documentOf = (...rows: string[]): string =>
  ["# Architecture", "", "## Dependencies", "", "| package | responsibility | imports | owns |", "|---|---|---|---|"]
    .concat(rows, "", "## Tests", "", "| `clock` | a table of another section | `nothing` | |", "")
    .join("\n");

const violationsOf = (...rows: string[]): string[] =>
  linesOf(checkArchitectureTable(treeOf({ ...packages, "ARCHITECTURE.md": documentOf(...rows) })));

const common = "| `common` | ports | - | |";
const openai = "| `openai` | views | `common` | |";

test("a table that equals the package.json files is right", () => {
  expect(violationsOf(common, openai, "| `proxy` | upstream | `common`, `openai` | `undici` |")).toEqual([]);
});

test("missing and superfluous names are told with the line of the row", () => {
  expect(violationsOf(common, openai, "| `proxy` | upstream | `common`, `policies` | fastify |")).toEqual([
    "ARCHITECTURE.md:9 `proxy` imports openai: add it to the table",
    "ARCHITECTURE.md:9 `proxy` imports no policies: take it out of the table",
    "ARCHITECTURE.md:9 `proxy` owns undici: add it to the table",
    "ARCHITECTURE.md:9 `proxy` owns no fastify: take it out of the table",
  ]);
});

test("packages without a row and rows without a package are told", () => {
  expect(violationsOf(common, openai, "| `mesh` | links | `common` | |")).toEqual([
    "ARCHITECTURE.md:1 has no row for `proxy`: add it",
    "ARCHITECTURE.md:9 has a row for `mesh`, no package: remove it",
  ]);
});

test("a document without the table, or no document, is told once", () => {
  expect(violationsOf()).toEqual(['ARCHITECTURE.md:1 has no table under a heading "Dependencies": add it']);
  expect(linesOf(checkArchitectureTable(treeOf(packages)))).toEqual(["ARCHITECTURE.md:1 is missing: write it"]);
});
