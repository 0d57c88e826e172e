import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { boundsPage, checkBounds, renderBounds } from "./bounds.ts";
import { loadTree, type Tree } from "./tree.ts";

test("every bound has a doc comment, and a row in the table of bounds", () => {
  const tree = loadTree(fileURLToPath(new URL("../..", import.meta.url)));
  expect(checkBounds(tree).join("\n")).toBe("");
});

const treeOf = (files: Readonly<Record<string, string>>): Tree => new Map(Object.entries(files));

const queueOf = (comment: string): Tree =>
  treeOf({
    "packages/a/src/queue.ts": [
      'import { kib as unit } from "./units.ts";',
      `${comment}export const maxQueuedBytes = 4 * unit;`,
      "const maxOf = () => 1;",
    ].join("\n"),
    "packages/a/src/units.ts": "export const kib = 2 ** 10;",
    "packages/testing/src/a.ts": "export const maxTests = 1;",
  });

test("the table of bounds has the constants of the code with their values and meanings", () => {
  const tree = queueOf("/**\n * Bytes that\n * wait.\n *\n * More.\n */\n");
  const page = renderBounds(tree);
  expect(page.split("\n").filter((line) => line.includes("`m"))).toEqual([
    "| `maxQueuedBytes` | 4 KiB | Bytes that wait. | [queue.ts](../../packages/a/src/queue.ts) |",
  ]);
  expect(checkBounds(new Map([...tree, [boundsPage, page]]))).toEqual([]);
  expect(checkBounds(new Map([...tree, [boundsPage, page.replace("4 KiB", "8 KiB")]]))).toEqual([
    "docs/reference/bounds.md:1 is stale: run `npm run docs`",
  ]);
});

test("a bound without a doc comment, or without a number, is a violation", () => {
  const tree = queueOf("// Bytes.\n");
  expect(checkBounds(new Map([...tree, [boundsPage, renderBounds(tree)]]))).toEqual([
    "packages/a/src/queue.ts:3 does not say what maxQueuedBytes bounds: give it a doc comment",
  ]);
  const other = treeOf({ "packages/a/src/queue.ts": "/** Bytes. */ const maxBytes = Math.min(1, 2);" });
  expect(checkBounds(new Map([...other, [boundsPage, renderBounds(other)]]))).toEqual([
    "packages/a/src/queue.ts:1 has no number for maxBytes: make it of numbers and constants",
  ]);
});
