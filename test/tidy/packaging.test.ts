import { expect, test } from "vitest";
import { linesOf, treeOf } from "./fake-tree.ts";
import { checkFileSizes, checkManifests, checkNoBuildProducts, checkTsconfigs } from "./packaging.ts";

const root = {
  name: "espalier",
  version: "0.1.0",
  private: true,
  description: "A router tier.",
  license: "Apache-2.0",
  type: "module",
};
const common = {
  ...root,
  name: "@espalier/common",
  exports: {
    ".": { "espalier-source": "./src/index.ts", types: "./dist/index.d.ts", default: "./dist/index.js" },
  },
  files: ["dist"],
  scripts: { build: "tsc -b" },
};

const manifestViolations = (manifest: object): string[] =>
  linesOf(
    checkManifests(
      treeOf({
        "package.json": JSON.stringify(root),
        "packages/common/package.json": JSON.stringify(manifest, null, 2),
        "test/package.json": JSON.stringify({ ...root, name: "@espalier/test" }),
      }),
    ),
  );

test("package.json files of one shape are right", () => {
  expect(manifestViolations(common)).toEqual([]);
  expect(manifestViolations({ ...common, scripts: { build: "tsc -b && node bin/bundle.mjs" } })).toEqual([]);
  expect(manifestViolations({ ...common, bin: { espalier: "./bin/espalier.mjs" } })).toEqual([]);
});

test.each([
  [{ license: "MIT" }, '6 has license "MIT": make it "Apache-2.0"'],
  [{ type: "commonjs" }, '7 has type "commonjs": make it "module"'],
  [{ private: false }, "4 has private false: make it true"],
  [{ private: undefined }, "1 has private undefined: make it true"],
  [{ version: "0.2.0" }, '3 has version "0.2.0": make it "0.1.0"'],
  [{ name: "@espalier/commons" }, '2 has name "@espalier/commons": make it "@espalier/common"'],
  [{ files: ["dist", "src"] }, '15 has files ["dist","src"]: make it ["dist"]'],
  [{ description: "" }, "1 has no description: add one line"],
  [{ scripts: { build: "tsc -b && rm -r /" } }, "1 does not build with `tsc -b`: set that script"],
  [{ scripts: {} }, "1 does not build with `tsc -b`: set that script"],
])("a package.json with %j is told", (change, rest) => {
  expect(manifestViolations({ ...common, ...change })).toEqual([`packages/common/package.json:${rest}`]);
});

test("a package without the data that it reads is told", () => {
  const files = (...names: readonly string[]) =>
    linesOf(
      checkManifests(
        treeOf({
          "package.json": JSON.stringify(root),
          "packages/common/models/tiny/tokenizer.json": "{}",
          "packages/common/package.json": JSON.stringify({ ...common, files: names }, null, 2),
        }),
      ),
    );
  expect(files("dist")).toEqual(['packages/common/package.json:15 has files ["dist"]: make it ["dist","models"]']);
  expect(files("dist", "models")).toEqual([]);
});

test("exports of another shape are told", () => {
  const [line, ...more] = manifestViolations({ ...common, exports: { ".": "./dist/index.js" } });
  expect(more).toEqual([]);
  expect(line).toContain('packages/common/package.json:8 has exports {".":"./dist/index.js"}: make it {".":');
});

test("a tree without package.json is told", () => {
  expect(linesOf(checkManifests(treeOf({})))).toEqual(["package.json:1 is missing: add it"]);
});

const tsconfig = {
  extends: "../../tsconfig.base.json",
  compilerOptions: { rootDir: "src", outDir: "dist", tsBuildInfoFile: "dist/.tsbuildinfo" },
  include: ["src/**/*.ts"],
};

test.each([
  { ...tsconfig, compilerOptions: { ...tsconfig.compilerOptions, strict: false } },
  { ...tsconfig, include: ["**/*.ts"] },
  { ...tsconfig, extends: "./tsconfig.other.json" },
  { ...tsconfig, exclude: ["src/a.ts"] },
])("a tsconfig.json that differs in more than references is told: %j", (config) => {
  const packageFile = { "packages/common/package.json": JSON.stringify(common) };
  const file = "packages/common/tsconfig.json";
  const right = { ...packageFile, [file]: JSON.stringify({ ...tsconfig, references: [{ path: "../a" }] }) };
  expect(checkTsconfigs(treeOf(right))).toEqual([]);
  expect(linesOf(checkTsconfigs(treeOf({ ...packageFile, [file]: JSON.stringify(config) })))).toEqual([
    `${file}:1 differs from the other packages in more than references: align it`,
  ]);
});

test.each([
  ["packages/a/dist/index.js", "is made by a tool: do not track it"],
  ["packages/a/src/b.d.ts", "is made by a tool: do not track it"],
  ["packages/a/.tsbuildinfo", "is made by a tool: do not track it"],
  ["packages/a/src/b.js.map", "is made by a tool: do not track it"],
  ["isolate-0x1-2-v8.log", "is made by a tool: do not track it"],
  ["bench/slow.cpuprofile", "is made by a tool: do not track it"],
  ["perf.data.old", "is made by a tool: do not track it"],
  ["packages/a/src/b.js", "is JavaScript: write TypeScript"],
  ["packages/a/src/b.mjs", "is JavaScript: write TypeScript"],
  ["scripts/start.cjs", "is JavaScript: write TypeScript"],
])("%s is told", (file, message) => {
  expect(linesOf(checkNoBuildProducts(treeOf({ [file]: "" })))).toEqual([`${file}:1 ${message}`]);
});

test("sources, and programs that run before a build, are fine", () => {
  const files = [
    "packages/a/src/b.ts",
    "scripts/start.mjs",
    "deploy/docker/steps.mjs",
    "apps/router/bin/espalier.mjs",
    "test/support/engine.mjs",
  ];
  expect(checkNoBuildProducts(treeOf(Object.fromEntries(files.map((file) => [file, ""]))))).toEqual([]);
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
