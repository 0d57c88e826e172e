import { expect, test } from "vitest";
import { linesOf, treeOf } from "./fake-tree.ts";
import { checkFileLengths, checkFileSizes, checkFunctionLengths, checkTestRatio } from "./sizes.ts";

const textOf = (lines: number): string => "export {};\n".repeat(lines);

test.each([
  ["packages/a/src/b.ts", 300],
  ["bench/src/d.ts", 300],
  ["scripts/e.mjs", 300],
  ["packages/a/test/b.test.ts", 500],
  ["test/support/c.mjs", 500],
])("%s may have %i lines and not one more", (file, limit) => {
  expect(checkFileLengths(treeOf({ [file]: textOf(limit) }), [])).toEqual([]);
  expect(linesOf(checkFileLengths(treeOf({ [file]: textOf(limit + 1) }), []))).toEqual([
    `${file}:${limit + 1} has ${limit + 1} lines, ${limit} are allowed: split it by concept`,
  ]);
});

test("documents and data may be longer", () => {
  expect(checkFileLengths(treeOf({ "docs/A.md": textOf(900), "test/data.json": textOf(900) }), [])).toEqual([]);
});

const exception = { path: "packages/a/src/table.ts", maxLines: 400, reason: "a table" };

test("an exception raises the limit of one file, to 500 at most", () => {
  const tree = treeOf({ [exception.path]: textOf(400) });
  expect(checkFileLengths(tree, [exception])).toEqual([]);
  const longer = treeOf({ [exception.path]: textOf(401) });
  expect(linesOf(checkFileLengths(longer, [exception]))).toEqual([
    "packages/a/src/table.ts:401 has 401 lines, 400 are allowed: split it by concept",
  ]);
  const longest = treeOf({ [exception.path]: textOf(501) });
  expect(linesOf(checkFileLengths(longest, [{ ...exception, maxLines: 900 }]))).toEqual([
    "packages/a/src/table.ts:1 its size exception is not needed or above 500: remove it",
    "packages/a/src/table.ts:501 has 501 lines, 500 are allowed: split it by concept",
  ]);
});

test.each([{ [exception.path]: textOf(300) }, {}])("an exception that is not needed is told", (files) => {
  expect(linesOf(checkFileLengths(treeOf(files), [exception]))).toEqual([
    "packages/a/src/table.ts:1 its size exception is not needed or above 500: remove it",
  ]);
});

/** The first and last line of a function count too. */
const bodyOf = (lines: number): string => `{\n${"  step();\n".repeat(lines - 2)}}`;

test.each([
  ["a function", (body: string) => `export function long() ${body}`],
  ["an arrow", (body: string) => `export const long = () => ${body};`],
  ["an async generator", (body: string) => `export const long = async function* () ${body};`],
  ["a method of a class", (body: string) => `export class A { long() ${body} }`],
  ["a method of an object", (body: string) => `export const a = { long() ${body} };`],
  ["a getter", (body: string) => `export const a = { get long() ${body} };`],
  ["a constructor", (body: string) => `export class A { constructor() ${body} }`],
])("%s may have 70 lines, not 71", (_kind, wrap) => {
  const file = "packages/a/src/b.ts";
  expect(checkFunctionLengths(treeOf({ [file]: wrap(bodyOf(70)) }))).toEqual([]);
  expect(linesOf(checkFunctionLengths(treeOf({ [file]: `\n${wrap(bodyOf(71))}` })))).toEqual([
    `${file}:2 function of 71 lines, 70 are allowed: move leaves out of it`,
  ]);
});

test.each(['test("x", ', 'test.each([1])("x", ', 'describe.skipIf(absent)("x", ', "beforeEach("])(
  "the callback of %s may have 120 lines in a test, not 121",
  (call) => {
    const textWith = (lines: number): string => `${call}async () => ${bodyOf(lines)});`;
    const file = "packages/a/test/b.test.ts";
    expect(checkFunctionLengths(treeOf({ [file]: textWith(120) }))).toEqual([]);
    expect(checkFunctionLengths(treeOf({ [file]: textWith(121) }))).toHaveLength(1);
    expect(checkFunctionLengths(treeOf({ "packages/a/src/b.ts": textWith(120) }))).toHaveLength(1);
  },
);

test("helpers inside a test have the limit of all functions", () => {
  const text = `test("x", () => {\n  const helper = () => ${bodyOf(71)};\n});`;
  expect(linesOf(checkFunctionLengths(treeOf({ "test/a.test.ts": text })))).toEqual([
    "test/a.test.ts:2 function of 71 lines, 70 are allowed: move leaves out of it",
  ]);
});

test("a file may have 1 MiB, not a byte more; characters are counted in UTF-8, other files in bytes", () => {
  const mebibyte = 1024 * 1024;
  expect(checkFileSizes(treeOf({ "a.json": "x".repeat(mebibyte), "b.png": `\0${"é".repeat(mebibyte - 1)}` }))).toEqual(
    [],
  );
  const files = { "a.json": "é".repeat(mebibyte / 2 + 1), "b.png": `\0${"é".repeat(mebibyte)}` };
  expect(linesOf(checkFileSizes(treeOf(files)))).toEqual([
    "a.json:1 has 1048578 bytes, 1048576 are allowed: make it when needed",
    "b.png:1 has 1048577 bytes, 1048576 are allowed: make it when needed",
  ]);
});

test("1.3 lines of tests for each line of source are enough, fewer are not; benches do not count", () => {
  const files = {
    "packages/a/src/b.ts": textOf(60),
    "apps/c/src/d.ts": textOf(40),
    "packages/a/test/b.test.ts": textOf(100),
    "test/e2e/e.test.ts": textOf(30),
    "bench/src/f.ts": textOf(500),
  };
  expect(checkTestRatio(treeOf(files))).toEqual([]);
  expect(linesOf(checkTestRatio(treeOf({ ...files, "test/e2e/e.test.ts": textOf(29) })))).toEqual([
    "test:1 129 lines of tests for 100 of source, at least 1.3 to 1 is asked: write tests",
  ]);
});
