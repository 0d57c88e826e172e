import { expect, test } from "vitest";
import { checkDanglingImports, checkDeadExports, checkDeadFiles, checkUnwired } from "./dead-code.ts";
import { linesOf, treeOf } from "./fake-tree.ts";

const dead = "is reached from nowhere: wire it or delete it";

test("a file that nothing reaches is told, and so are two that reach only each other", () => {
  const files = {
    "packages/a/src/index.ts": 'export { b } from "./b.ts";',
    "packages/a/src/b.ts": 'import type { C } from "./deep/c.ts";',
    "packages/a/src/deep/c.ts": "export interface C {}",
    "packages/a/src/lonely.ts": "export const x = 1;",
    "packages/a/src/pair-one.ts": 'import { y } from "./pair-two.ts";',
    "packages/a/src/pair-two.ts": 'import { x } from "./pair-one.ts";',
  };
  expect(linesOf(checkDeadFiles(treeOf(files)))).toEqual([
    `packages/a/src/lonely.ts:1 ${dead}`,
    `packages/a/src/pair-one.ts:1 ${dead}`,
    `packages/a/src/pair-two.ts:1 ${dead}`,
  ]);
});

test("a file that only a test imports is dead for the sources, though not for the test", () => {
  const files = {
    "packages/a/src/index.ts": "export {};",
    "packages/a/src/b.ts": "export const b = 1;",
    "packages/a/test/b.test.ts": 'import { b } from "../src/b.ts";\nimport { c } from "./helper.ts";',
    "packages/a/test/helper.ts": "export const c = 1;",
    "packages/a/test/unused.ts": "export const d = 1;",
  };
  expect(linesOf(checkDeadFiles(treeOf(files)))).toEqual([
    `packages/a/src/b.ts:1 ${dead}`,
    `packages/a/test/unused.ts:1 ${dead}`,
  ]);
});

test("programs start somewhere: main.ts, built files that a package.json names, files that `new URL` names", () => {
  const files = {
    "package.json": '{ "scripts": { "docs": "node apps/b/dist/docs/render.js" } }',
    "packages/a/package.json": '{ "exports": { "./kernel": "./dist/kernel.js" } }',
    "packages/a/src/index.ts": 'export { pool } from "./pool.ts";',
    "packages/a/src/pool.ts": 'const program = new URL("./worker.js", import.meta.url);',
    "packages/a/src/worker.ts": "export {};",
    "packages/a/src/kernel.ts": "export {};",
    "packages/a/src/main.ts": "export {};",
    "apps/b/src/main.ts": 'await import("./serve.ts");',
    "apps/b/src/serve.ts": "export {};",
    "apps/b/src/docs/render.ts": "export {};",
  };
  expect(linesOf(checkDeadFiles(treeOf(files)))).toEqual([`packages/a/src/main.ts:1 ${dead}`]);
});

test("an import of a file that does not exist is told", () => {
  const files = {
    "packages/a/src/index.ts": '\nexport { b } from "./b.ts";\nexport { c } from "./c.ts";',
    "packages/a/src/c.ts": "export const c = 1;",
    "apps/b/bin/b.mjs": 'await import("../dist/main.js");',
  };
  expect(linesOf(checkDanglingImports(treeOf(files)))).toEqual([
    "packages/a/src/index.ts:2 imports ./b.ts: no such file",
  ]);
});

test.each([
  ["export function unused() {}", "unused"],
  ["export const used2 = 1, unused = 2;", "unused"],
  ["export class unused {}", "unused"],
  ["export interface unused {}", "unused"],
  ["export type unused = string;", "unused"],
  ["const inner = 1;\nexport { inner as unused };", "unused"],
])("an export that nobody imports is told: %s", (text, name) => {
  const files = {
    "packages/a/src/index.ts": 'export { used, used2 } from "./b.ts";',
    "packages/a/src/b.ts": `export const used = 1;\n${text}`,
  };
  const line = 1 + text.split("\n").length;
  expect(linesOf(checkDeadExports(treeOf(files)))).toEqual([
    `packages/a/src/b.ts:${line} exports ${name}, which nobody imports: unexport it or delete it`,
  ]);
});

test.each([
  ["packages/a/src/c.ts", 'import { x as y } from "./b.ts";'],
  ["packages/a/src/c.ts", 'import { type x } from "./b.ts";'],
  ["packages/a/src/c.ts", 'let a: import("./b.ts").x;'],
  ["packages/a/src/c.ts", 'const { x } = await import("./b.ts");'],
  ["packages/a/test/b.test.ts", 'import { x } from "../src/b.ts";'],
])("an export counts as imported in %s by %s", (file, statement) => {
  const files = { "packages/a/src/b.ts": "export const x = 1;", [file]: statement };
  expect(checkDeadExports(treeOf(files))).toEqual([]);
});

test("the module that makes an export does not count as its user; nobody imports from a main", () => {
  const files = {
    "packages/a/src/b.ts": 'export const x = 1;\nexport const y = 2;\nimport { x as z } from "./b.ts";',
    "packages/a/src/index.ts": 'export { y } from "./b.ts";',
    "apps/c/src/main.ts": "export const run = 1;",
    "packages/a/test/helper.ts": "export const p = 1;\nexport const q = 2;",
    "packages/a/test/b.test.ts": 'import { p } from "./helper.ts";',
  };
  expect(linesOf(checkDeadExports(treeOf(files)))).toEqual([
    "apps/c/src/main.ts:1 exports run, which nobody imports: unexport it or delete it",
    "packages/a/src/b.ts:1 exports x, which nobody imports: unexport it or delete it",
    "packages/a/test/helper.ts:2 exports q, which nobody imports: unexport it or delete it",
  ]);
});

test("public functions and classes are used by a program or a package; constants, types and `testing` are free", () => {
  const files = {
    "packages/a/src/b.ts": [
      "export function wired() {}",
      "export const idle = () => 1;",
      "export class Idle {}",
      "export function usedBeside() {}",
      "export function usedHere() {}",
      "const one = usedHere();",
      "export const limit = 5;",
      "export interface Options {}",
    ].join("\n"),
    "packages/a/src/c.ts": 'import { usedBeside } from "./b.ts";',
    "packages/a/src/index.ts": 'export { wired, idle, Idle, usedBeside, usedHere, limit, type Options } from "./b.ts";',
    "packages/a/test/a.test.ts": 'import { idle } from "@espalier/a";',
    "packages/testing/src/index.ts": 'export { helper } from "./b.ts";',
    "packages/testing/src/b.ts": "export function helper() {}",
    "apps/c/src/main.ts": 'import { wired as renamed } from "@espalier/a";',
    "test/e2e/a.test.ts": 'import { Idle } from "@espalier/a";',
  };
  expect(linesOf(checkUnwired(treeOf(files)))).toEqual([
    "packages/a/src/b.ts:2 makes idle public, which no program and no package uses: wire it or delete it",
    "packages/a/src/b.ts:3 makes Idle public, which no program and no package uses: wire it or delete it",
  ]);
});
