import { expect, test } from "vitest";
import { fakePackage, linesOf, treeOf } from "./fake-tree.ts";
import {
  checkArrows,
  checkCycles,
  checkDeclaredWorkspaces,
  checkImportPaths,
  checkReferences,
} from "./import-graph.ts";

const arrows = { common: [], policies: ["common"], workers: ["common"] };
const good = {
  ...fakePackage("common"),
  ...fakePackage("policies", { imports: ["common"] }),
  ...fakePackage("workers", { imports: ["common"] }),
  "tsconfig.json": JSON.stringify({
    references: [{ path: "packages/common" }, { path: "packages/policies" }, { path: "packages/workers" }],
  }),
};

test("a tree that follows the graph has no violation", () => {
  const tree = treeOf(good);
  const checks = [checkDeclaredWorkspaces, checkReferences, checkCycles, checkImportPaths];
  expect(checks.flatMap((check) => check(tree))).toEqual([]);
  expect(checkArrows(tree, arrows)).toEqual([]);
});

test("a feature that imports a feature breaks the arrows", () => {
  const tree = treeOf({ ...good, ...fakePackage("workers", { imports: ["common", "policies"] }) });
  expect(linesOf(checkArrows(tree, arrows))).toEqual([
    "packages/workers/package.json:6 workers may not import policies: wire the two in server or an app",
  ]);
  expect(checkArrows(tree, { ...arrows, workers: "anything" })).toEqual([]);
});

test("a package without a row, and a row without a package, are told", () => {
  const tree = treeOf({ ...fakePackage("common"), ...fakePackage("newborn") });
  expect(linesOf(checkArrows(tree, { common: [], gone: [] }))).toEqual([
    "packages/newborn/package.json:1 has no row in allowedImports: add one to test/tidy/house-rules.ts",
    "test/tidy/house-rules.ts:1 allowedImports has a row for gone, which does not exist: remove it",
  ]);
});

const packageJson = "packages/policies/package.json";
const undeclared = { name: "@espalier/policies", dependencies: {} };

test.each([
  ["static", 'import { a } from "@espalier/common";'],
  ["of types", 'import type { A } from "@espalier/common";'],
  ["passed on", 'export { a } from "@espalier/common";'],
  ["dynamic", 'const a = await import("@espalier/common");'],
  ["inside a type", 'let a: import("@espalier/common").A;'],
])("an undeclared import is found: %s", (_kind, statement) => {
  const files = { ...good, [packageJson]: JSON.stringify(undeclared), "packages/policies/src/index.ts": statement };
  expect(linesOf(checkDeclaredWorkspaces(treeOf(files)))).toEqual([
    `packages/policies/src/index.ts:1 imports @espalier/common: declare it in ${packageJson}`,
  ]);
});

test("an import in a string or a comment is none", () => {
  const source = `// import { a } from "@espalier/common";\nexport const text = 'import { a } from "@espalier/common"';\n`;
  const files = { [packageJson]: JSON.stringify(undeclared), "packages/policies/src/index.ts": source };
  expect(checkDeclaredWorkspaces(treeOf(files))).toEqual([]);
});

test("a declared package must be used by sources, not only by tests", () => {
  const files = {
    ...good,
    "packages/policies/src/index.ts": "export {};",
    "packages/policies/test/a.test.ts": 'import { a } from "@espalier/common";',
  };
  expect(linesOf(checkDeclaredWorkspaces(treeOf(files)))).toEqual([
    `${packageJson}:5 declares @espalier/common but does not import it: remove it`,
  ]);
});

test("tests over the whole tree declare in devDependencies", () => {
  const manifest = { name: "@espalier/test", devDependencies: { "@espalier/common": "0.1.0" } };
  const files = {
    "test/package.json": JSON.stringify(manifest),
    "test/e2e/a.test.ts": 'import { a } from "@espalier/common";\nimport { b } from "@espalier/server";',
  };
  expect(linesOf(checkDeclaredWorkspaces(treeOf(files)))).toEqual([
    "test/e2e/a.test.ts:2 imports @espalier/server: declare it in test/package.json",
  ]);
});

test("a package does not import itself by name", () => {
  const files = { ...good, "packages/common/src/a.ts": '\nimport { b } from "@espalier/common";' };
  expect(linesOf(checkDeclaredWorkspaces(treeOf(files)))).toEqual([
    "packages/common/src/a.ts:2 imports its own package: use a relative path",
  ]);
});

test("project references lack nothing and hold nothing more", () => {
  const files = {
    ...good,
    "packages/policies/tsconfig.json": '{\n"references": [\n{"path": "../workers"}]}',
    "tsconfig.json": JSON.stringify({ references: [{ path: "packages/common" }, { path: "./packages/policies" }] }),
  };
  expect(linesOf(checkReferences(treeOf(files)))).toEqual([
    "packages/policies/tsconfig.json:1 lacks a reference to packages/common: add it",
    "packages/policies/tsconfig.json:3 refers to packages/workers, no dependency: remove it",
    "tsconfig.json:1 lacks a reference to packages/workers: add it",
  ]);
});

test("a package without tsconfig.json is told", () => {
  const tree = new Map(Object.entries(good));
  tree.delete("packages/common/tsconfig.json");
  expect(linesOf(checkReferences(tree))).toEqual(["packages/common/tsconfig.json:1 is missing: add it"]);
});

test("a cycle is told at each of its packages, and not at those that lead to it", () => {
  const files = {
    ...fakePackage("common", { imports: ["workers"] }),
    ...fakePackage("workers", { imports: ["common"] }),
    ...fakePackage("policies", { imports: ["workers"] }),
  };
  expect(linesOf(checkCycles(treeOf(files)))).toEqual([
    "packages/common/package.json:1 common depends on itself through others: cut the cycle",
    "packages/workers/package.json:1 workers depends on itself through others: cut the cycle",
  ]);
});

test.each([
  ["src/a.ts", "../../common/src/clock.ts", "outside packages/workers/src/: import the package instead"],
  ["src/a.ts", "../test/helper.ts", "outside packages/workers/src/: import the package instead"],
  ["src/deep/a.ts", "../../package.json", "outside packages/workers/src/: import the package instead"],
  ["test/a.test.ts", "../../../test/support/engine.ts", "outside packages/workers/: import the package instead"],
  ["src/a.ts", "@espalier/common/src/clock.ts", "import the package by its bare name"],
])("%s may not import %s", (file, specifier, advice) => {
  const files = { ...good, [`packages/workers/${file}`]: `import { a } from "${specifier}";` };
  const lines = linesOf(checkImportPaths(treeOf(files)));
  expect(lines).toHaveLength(1);
  expect(lines[0]).toContain(`packages/workers/${file}:1 imports ${specifier}`);
  expect(lines[0]).toContain(advice);
});

test.each([
  ["src/a.ts", 'import { b } from "./deep/b.ts";'],
  ["src/deep/a.ts", 'import { b } from "../b.ts";'],
  ["src/a.ts", 'const program = new URL("../bin/worker.mjs", import.meta.url);'],
  ["test/a.test.ts", 'import { b } from "../src/b.ts";'],
])("%s may say %s", (file, statement) => {
  expect(checkImportPaths(treeOf({ ...good, [`packages/workers/${file}`]: statement }))).toEqual([]);
});
