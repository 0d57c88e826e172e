import { expect, test } from "vitest";
import { linesOf, treeOf } from "./fake-tree.ts";
import {
  checkComments,
  checkConstructs,
  checkDocComments,
  checkFileNames,
  checkIndexFiles,
  checkTestModifiers,
  checkTexts,
} from "./style.ts";

const file = "packages/workers/src/probe.ts";

test.each([
  ["let a: any;", "says `any`: say `unknown` and narrow it"],
  ["const a = b as Record<string, any>;", "says `any`: say `unknown` and narrow it"],
  ["enum A { B }", "declares an enum: use a union of strings"],
  ["const enum A { B }", "declares an enum: use a union of strings"],
  ["namespace A { export const b = 1; }", "declares a namespace: use a module"],
  ["export default 1;", "has a default export: export by name"],
  ['export * from "./a.ts";', "exports everything of a module: name what is public"],
  ['import * as a from "./a.ts";', "imports our own code as a namespace: import names"],
  ['import type * as a from "@espalier/common";', "imports our own code as a namespace: import names"],
])("%s is not our style", (statement, message) => {
  expect(linesOf(checkConstructs(treeOf({ [file]: `\n${statement}` })))).toEqual([`${file}:2 ${message}`]);
});

test("what only looks like such a construct is fine", () => {
  const text = 'import * as fs from "node:fs";\n// any enum\nexport const any = "any", a = { default: 1, enum: fs };\n';
  const files = { [file]: text, "vitest.config.ts": "export default {};" };
  expect(checkConstructs(treeOf(files))).toEqual([]);
});

test("a file that does not parse is told", () => {
  const [line] = linesOf(checkConstructs(treeOf({ [file]: "const = ;" })));
  expect(line).toMatch(/^packages\/workers\/src\/probe\.ts:1 does not parse: ./);
});

test.each(["src/clockPort.ts", "src/Clock.ts", "src/clock_port.ts", "src/clock--port.ts", "src/Ports/clock.ts"])(
  "%s is not kebab-case",
  (name) => {
    expect(linesOf(checkFileNames(treeOf({ [`packages/a/${name}`]: "" })))).toEqual([
      `packages/a/${name}:1 is not named in kebab-case: rename it`,
    ]);
  },
);

test.each(["src/clock-port.ts", "test/http2.test.ts", "test/a.spec.mjs", "README.md", "docs/ERRORS.md"])(
  "%s is well named",
  (name) => {
    expect(checkFileNames(treeOf({ [`packages/a/${name}`]: "" }))).toEqual([]);
  },
);

// The words are put together here, so that a search for them finds none.
const later = ["TO", "DO"].join("");

test.each([
  [`// ${later}: bound it`, "leaves work undone: do it, or take the note out"],
  ["/* FIXME */", "leaves work undone: do it, or take the note out"],
  ["// @ts-ignore", "silences a tool: mend what it reports"],
  ["// @ts-expect-error wrong on purpose", "silences a tool: mend what it reports"],
  ["// biome-ignore lint/suspicious/noConsole: here", "silences a tool: mend what it reports"],
  ["/** See design.md. */", "cites a document that is not in the repository: say it here"],
  ["// see ../shared/traces", "names a place outside the repository: take it out"],
  ["// kept in /work/main", "names a place outside the repository: take it out"],
  ["// Fixed in #123.", "mentions an issue number: say what it was about"],
  ["// our PR #123 did this", "mentions an issue number: say what it was about"],
  ["// ticket 42", "mentions an issue number: say what it was about"],
])("the comment %s is told", (comment, message) => {
  expect(linesOf(checkComments(treeOf({ [file]: `const a = 1;\n\n${comment}\n` })))).toEqual([`${file}:3 ${message}`]);
});

test("the line inside a long comment is told", () => {
  const text = `/**\n * Waits.\n * ${later}: bound it.\n */\nexport const a = 1;\n`;
  expect(linesOf(checkComments(treeOf({ [file]: text })))).toEqual([
    `${file}:3 leaves work undone: do it, or take the note out`,
  ]);
});

test.each([
  "// The event is announced once (vLLM PR #16750).",
  "// The field is read as in vllm-project/vllm#16750.",
  "// The frame of RFC 9112, section 7.1; colour 16 of 20.",
  `const a = "// ${later}";`,
  `const a = /\\/\\/ ${later}/;`,
  `const a = \`\${b}// ${later}\`;`,
])("%s is fine", (text) => {
  expect(checkComments(treeOf({ [file]: text }))).toEqual([]);
});

test("documents and configuration carry no unfinished work and no workplace", () => {
  const files = {
    "README.md": `# A\n\n${later}: write this\n`,
    "deploy/a.yaml": "volumes:\n  - /work/shared/traces\n",
    "package-lock.json": `"integrity": "sha512-XXX/${later}"`,
    [file]: `const a = "${later}";`,
  };
  expect(linesOf(checkTexts(treeOf(files)))).toEqual([
    "README.md:3 leaves work undone: do it, or take the note out",
    "deploy/a.yaml:2 names a place outside the repository: take it out",
  ]);
});

test.each([
  ['test.only("a", run);', "uses .only: take it off"],
  ['describe.skip("a", run);', "uses .skip: take it off"],
  ['it.todo("a");', "uses .todo: take it off"],
  ['test.only.each([1])("a", run);', "uses .only: take it off"],
  ['describe.each([1]).skip("a", run);', "uses .skip: take it off"],
  ['test("a", { retry: 3 }, run);', "sets retry on a test: take it off"],
  ['test("a", { timeout: 9, skip: true }, run);', "sets skip on a test: take it off"],
  ['test.skipIf(absent)("a", run);', "uses .skipIf without saying so: print a line that starts with NOT RUN"],
])("%s is told", (statement, message) => {
  const tree = treeOf({ "packages/a/test/b.test.ts": `\n${statement}` });
  expect(linesOf(checkTestModifiers(tree))).toEqual([`packages/a/test/b.test.ts:2 ${message}`]);
});

test.each([
  'const path = sharedPath("traces"); test.skipIf(!path)("a", run);',
  'test.skipIf(!hasRedisServer("tests of redis"))("a", run);',
  'if (!redis) log("NOT RUN: tests of redis"); describe.runIf(redis)("a", run);',
  'test.each([{ retry: 1, skip: 2 }])("a", run);',
  'test("a", { timeout: 9 }, () => reader.skip(2));',
  "const text = 'test.only()';",
])("%s is fine", (statement) => {
  expect(checkTestModifiers(treeOf({ "packages/a/test/b.test.ts": statement }))).toEqual([]);
});

const index = "packages/workers/src/index.ts";

test.each([
  ['/** Engines. */\nexport const a = 1;\nexport { b } from "./b.ts";', 2],
  ["/** Engines. */\nconst a = 1;\nexport { a };", 2],
  ['/** Engines. */\nimport { b } from "./b.ts";', 2],
  ["/** Engines. */\nexport type A = string;", 2],
])("an index with code in it is told: %s", (text, line) => {
  expect(linesOf(checkIndexFiles(treeOf({ [index]: text })))).toContain(
    `${index}:${line} holds more than re-exports: move it to a module of its own`,
  );
});

test.each(['export { b } from "./b.ts";', "// Engines.\nexport {};", "export {};\n/** Engines. */"])(
  "an index without its doc comment is told: %s",
  (text) => {
    expect(linesOf(checkIndexFiles(treeOf({ [index]: text })))).toEqual([
      `${index}:1 does not start with a doc comment on its package: write one`,
    ]);
  },
);

test("an index inside of a package is a barrel; the one of the package is not", () => {
  const text = '/** Engines. */\nexport { b, type C } from "./b.ts";\nexport type { D } from "./d.ts";\nexport {};\n';
  expect(linesOf(checkIndexFiles(treeOf({ [index]: text, "packages/workers/src/health/index.ts": text })))).toEqual([
    "packages/workers/src/health/index.ts:1 is a barrel: import the modules themselves",
  ]);
});

const undocumented = "is public and has no doc comment: say what it does, its units and errors";

test.each([
  ["export function b() {}", "b"],
  ["export async function b() {}", "b"],
  ["export class b {}", "b"],
  ["export const b = () => 1;", "b"],
  ["// not a doc comment\nexport function b() {}", "b"],
  ["/** Of something else. */\nconst c = 1;\nexport function b() {}", "b"],
])("a public definition without doc comment is told: %s", (text, name) => {
  const files = { [index]: 'export { b } from "./b.ts";', "packages/workers/src/b.ts": text };
  const line = text.split("\n").length;
  expect(linesOf(checkDocComments(treeOf(files)))).toEqual([
    `packages/workers/src/b.ts:${line} ${name} ${undocumented}`,
  ]);
});

test("documented, private and passive definitions are fine", () => {
  const text = [
    "/** Adds. */\nexport function b() {}",
    "/** Adds. */\n\nexport const c = () => 1;",
    "export function notPublic() {}",
    "export const limit = 5;",
    "export interface D {}",
  ].join("\n");
  const files = { [index]: 'export { b, c, limit, type D } from "./b.ts";', "packages/workers/src/b.ts": text };
  expect(checkDocComments(treeOf(files))).toEqual([]);
});
