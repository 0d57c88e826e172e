import { expect, test } from "vitest";
import { fakePackage, linesOf, treeOf } from "./fake-tree.ts";
import {
  checkDeclaredLibraries,
  checkLibraryDeclarations,
  checkLibraryOwners,
  checkNoRegistryHosts,
  checkWorkspaceVersions,
} from "./libraries.ts";

const undici = { undici: "7.30.2" };
const root = JSON.stringify({ name: "espalier", version: "0.1.0", devDependencies: { vitest: "4.1.12" } });

test("a second owner of a library is told, also when it takes types or a part only", () => {
  const files = {
    ...fakePackage("proxy", { libraries: undici, source: 'import { Pool } from "undici";' }),
    ...fakePackage("workers", { libraries: undici, source: '\nimport type { Agent } from "undici/types";' }),
  };
  expect(linesOf(checkLibraryOwners(treeOf(files)))).toEqual([
    "packages/workers/src/index.ts:2 imports undici, which packages/proxy owns: go through packages/proxy",
  ]);
});

test("one owner, modules of Node, packages of the workspace and tests are free", () => {
  const files = {
    ...fakePackage("proxy", { libraries: undici, source: 'import { Pool } from "undici";' }),
    ...fakePackage("workers", { imports: ["common"], source: 'import { readFileSync } from "node:fs";' }),
    "packages/proxy/src/second.ts": 'import { Agent } from "undici";',
    "packages/workers/test/a.test.ts": 'import { MockAgent } from "undici";',
  };
  expect(checkLibraryOwners(treeOf(files))).toEqual([]);
});

test.each([
  ["packages/proxy/src/index.ts", 'import { Pool } from "undici";', "packages/proxy/package.json"],
  ["packages/proxy/src/index.ts", 'import { test } from "vitest";', "packages/proxy/package.json"],
  ["packages/proxy/src/index.ts", 'import { readFileSync } from "fs";', "packages/proxy/package.json"],
  ["packages/proxy/test/a.test.ts", 'import { b } from "@scope/lib/deep";', "packages/proxy/package.json"],
  ["vitest.config.ts", 'import { b } from "undici";', "package.json"],
])("in %s, %s asks for a declaration", (file, statement, manifest) => {
  const files = { "package.json": root, ...fakePackage("proxy"), [file]: statement };
  const lines = linesOf(checkDeclaredLibraries(treeOf(files)));
  expect(lines).toHaveLength(1);
  expect(lines[0]).toMatch(new RegExp(`^${file}:1 imports \\S+: declare it in ${manifest}$`));
});

test("tests may use what their package or the root declares for development", () => {
  const source = 'import { Pool } from "undici";';
  const files = {
    "package.json": root,
    ...fakePackage("proxy", { libraries: undici, source }),
    "packages/proxy/test/a.test.ts": `import { test } from "vitest";\n${source}`,
  };
  expect(checkDeclaredLibraries(treeOf(files))).toEqual([]);
});

test.each(["^7.30.2", "~7.30.2", "latest", "7", ">=7.0.0", "file:../undici"])(
  "%s is not an exact version",
  (version) => {
    const files = fakePackage("proxy", { libraries: { undici: version }, source: 'import { Pool } from "undici";' });
    expect(linesOf(checkLibraryDeclarations(treeOf(files)))).toEqual([
      `packages/proxy/package.json:5 undici is "${version}": pin an exact version`,
    ]);
  },
);

test("a declared library that nobody uses is told; the folder of a longer name does not count as use", () => {
  const files = {
    ...fakePackage("proxy", { libraries: undici }),
    ...fakePackage("proxy-two", { libraries: undici, source: 'import { Pool } from "undici";' }),
  };
  expect(linesOf(checkLibraryDeclarations(treeOf(files)))).toEqual([
    "packages/proxy/package.json:5 undici is not used: remove it",
  ]);
});

test("programs that scripts run and types that the compiler is told of are in use", () => {
  const devDependencies = {
    "@biomejs/biome": "2.6.8",
    typescript: "7.0.2",
    turbo: "2.11.11",
    "@types/node": "20.19.43",
  };
  const scripts = { lint: "biome check .", build: "NO_COLOR=1 turbo run build", types: "tsc -b" };
  const files = {
    "package.json": JSON.stringify({ devDependencies, scripts }),
    "tsconfig.base.json": '{ "compilerOptions": { "types": ["node"] } }',
  };
  expect(checkLibraryDeclarations(treeOf(files))).toEqual([]);
  const idle = { "package.json": JSON.stringify({ devDependencies, scripts: {} }) };
  expect(checkLibraryDeclarations(treeOf(idle))).toHaveLength(4);
});

test("a dependency on another version of a workspace package is told", () => {
  const manifest = { name: "@espalier/proxy", dependencies: { "@espalier/common": "0.2.0" } };
  const files = { "package.json": root, "packages/proxy/package.json": JSON.stringify(manifest) };
  expect(linesOf(checkWorkspaceVersions(treeOf(files)))).toEqual([
    'packages/proxy/package.json:1 asks for @espalier/common "0.2.0": the workspace has 0.1.0',
  ]);
  const right = { "package.json": root, ...fakePackage("proxy", { imports: ["common"] }) };
  expect(checkWorkspaceVersions(treeOf(right))).toEqual([]);
});

// The names are put together here, so that this file does not break the rule that it tests.
const host = ["registry", "npmjs", "org"].join(".");

test.each([
  ["package-lock.json", '{\n"resolved": "https://example.com/a/-/a-1.0.0.tgz"\n}', 2],
  ["docs/BUILD.md", `Packages come from\nhttps://${host}/.\n`, 2],
  ["scripts/a.mjs", `const from = "${["npm", "pkg", "github", "com"].join(".")}";`, 1],
  ["deploy/Dockerfile", `RUN npm ci --from ${["artifactory", "example", "com"].join(".")}`, 1],
  [".npmrc", "save-exact=true\nregistry=https://example.com/", 2],
  [".npmrc", "@scope:registry = https://example.com/", 1],
  [".npmrc", "//example.com/:_authToken=abc", 1],
])("a registry in %s is told", (file, text, line) => {
  expect(linesOf(checkNoRegistryHosts(treeOf({ [file]: text })))).toEqual([
    `${file}:${line} names a package registry: take the host out`,
  ]);
});

test("a lock file of links and funding addresses names no registry", () => {
  const lock = '{"resolved": "packages/common", "link": true, "funding": { "url": "https://example.com/sponsor" } }';
  expect(checkNoRegistryHosts(treeOf({ "package-lock.json": lock, ".npmrc": "save-exact=true\n" }))).toEqual([]);
});
