import { expect, test } from "vitest";
import { checkBenchmarks, checkFigures } from "./documents.ts";

const treeOf = (files: Readonly<Record<string, string>>): ReadonlyMap<string, string> => new Map(Object.entries(files));
const table = (rows: string): string => `| run | s | reproduced | ours |\n|---|---|---|---|\n${rows}`;

test("a page that the list of pages does not link, and figures that no linked page has", () => {
  const files = {
    "docs/BENCHMARKS.md":
      `# B\n\n## A\n\n[a](benchmarks/a.md)\n\n${table("| 7 runs | 1.25, 30 | `9` | [4](benchmarks/a.md#8) |\n")}\n` +
      `## B\n\n${table("| 7 runs | 1.26 | | |\n")}\n[published](benchmarks/published.md)\n`,
    "docs/benchmarks/README.md": "[a](a.md), [published](published.md)",
    "docs/benchmarks/a.md": "| a | 1.25 (1.2 .. 1.3) | 30 |",
    "docs/benchmarks/b.md": "",
    "docs/benchmarks/published.md": table("| [a](a.md) | 3 | 2 | 1.25 .. 1.4 |\n"),
  };
  expect(checkBenchmarks(treeOf(files))).toEqual([
    "docs/benchmarks/b.md:1 is not linked from docs/benchmarks/README.md: add it",
    "docs/BENCHMARKS.md:9 has 4, which no linked page has: correct it",
    "docs/BENCHMARKS.md:15 has 1.26, which no linked page has: correct it",
    "docs/benchmarks/published.md:3 has 2, which no linked page has: correct it",
    "docs/benchmarks/published.md:3 has 1.4, which no linked page has: correct it",
  ]);
});

test("a page of benchmarks has figures of its own", () => {
  expect(checkFigures(treeOf({ "docs/benchmarks/a.md": "It costs 63 us." }), [])).toEqual([]);
});
