// cspell:ignore onst xport reate msvc
import { execFileSync, spawnSync } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, expect, test } from "vitest";
import { checkCommands, checkFeedReasons, checkFigures, checkLengths, checkLinks, checkTests } from "./documents.ts";
import { checkFolders } from "./folders.ts";
import { productionFlags, runKnip } from "./knip.ts";
import { checkInstallScripts, checkPlatforms } from "./lock.ts";
import { checkArrows, checkNoBuildProducts, checkReferences, checkTestImports, checkVersions } from "./packages.ts";
import { checkPatterns } from "./patterns.ts";
import { loadTree, type Tree } from "./tree.ts";
import { checkMessages, checkWords, oldWords } from "./words.ts";
import { checkActions, checkRights, runActionlint } from "./workflows.ts";

/** A rule that cannot fail is a defect: each is shown a tree that breaks it. */

type Files = Readonly<Record<string, string>>;

const treeOf = (files: Files): Tree => new Map(Object.entries(files));

const manifest = (name: string, fields: object = {}): string =>
  JSON.stringify({ name: `@espalier/${name}`, version: "0.1.0", ...fields }, null, 1);

/** A package of no dependencies, and one that depends on it and on a library. */
const two = {
  "package.json": JSON.stringify({ name: "espalier", version: "0.1.0", workspaces: ["packages/*"] }),
  "ARCHITECTURE.md": "| `core` | ports | | |\n| `mesh` | links | `core` | `ws` |\n",
  "tsconfig.json": '{ "references": [{ "path": "packages/core" }, { "path": "packages/mesh" }] }',
  "packages/core/package.json": manifest("core"),
  "packages/core/tsconfig.json": "{}",
  "packages/mesh/package.json": manifest("mesh", { dependencies: { "@espalier/core": "0.1.0", ws: "8.23.0" } }),
  "packages/mesh/tsconfig.json": '{ "references": [{ "path": "../core" }] }',
};

test.each([
  [{}, []],
  [
    { "ARCHITECTURE.md": "| `core` | ports | | |\n| `mesh` | links | | |\n| `gone` | | | |\n" },
    [
      "packages/mesh/package.json:5 imports core, for which ARCHITECTURE.md has no arrow",
      "packages/mesh/package.json:6 imports ws, for which ARCHITECTURE.md has no arrow",
      "ARCHITECTURE.md:3 has a row for gone, which is no package",
    ],
  ],
  [
    { "ARCHITECTURE.md": "| `core` | ports | `mesh` | |\n| `mesh` | links | `core` | `ws` |\n" },
    ["ARCHITECTURE.md:1 draws an arrow from core to mesh, which is none"],
  ],
])("arrows that are not drawn are told, and drawn ones that are none: %j", (change: Files, expected) => {
  expect(checkArrows(treeOf({ ...two, ...change }))).toEqual(expected);
});

test("project references lack nothing and hold nothing more", () => {
  const wrong = { "packages/mesh/tsconfig.json": '{ "references": [{ "path": "../other" }] }', "tsconfig.json": "{}" };
  expect(checkReferences(treeOf(two))).toEqual([]);
  expect(checkReferences(treeOf({ ...two, ...wrong }))).toEqual([
    "packages/mesh/tsconfig.json:1 lacks a reference to packages/core",
    "packages/mesh/tsconfig.json:1 refers to packages/other, no dependency",
    "tsconfig.json:1 lacks a reference to packages/core",
    "tsconfig.json:1 lacks a reference to packages/mesh",
  ]);
});

test("folders that import each other are told, and leave that none needs", () => {
  const files = {
    "packages/mesh/src/index.ts": 'export { a } from "./link/a.ts";\n',
    "packages/mesh/src/link/a.ts": '\nimport type { B } from "../wire/b.ts";\nimport { c } from "./c.ts";\n',
    "packages/mesh/src/wire/b.ts": 'import { d } from "../exchange/d.ts";\n',
    "packages/mesh/src/exchange/d.ts": 'const link = await import("../link/a.ts");\n',
    "packages/mesh/src/seeds/e.ts": 'import { B } from "../wire/b.ts";\n',
  };
  const tree = treeOf(files);
  expect(checkFolders(tree, {})).toEqual([
    "packages/mesh/src/link/a.ts:2 closes a circle: link -> wire, and back",
    "packages/mesh/src/wire/b.ts:1 closes a circle: wire -> exchange, and back",
    "packages/mesh/src/exchange/d.ts:1 closes a circle: exchange -> link, and back",
  ]);
  expect(checkFolders(tree, { "packages/mesh": ["exchange -> link"] })).toEqual([]);
  expect(
    checkFolders(tree, { "packages/mesh": ["exchange -> link", "seeds -> wire"], "packages/core": ["a -> b"] }),
  ).toEqual(
    ["seeds -> wire in packages/mesh", "a -> b in packages/core"].map(
      (arrow) => `test/tidy/folders.ts:1 allows ${arrow}, which needs no leave any more`,
    ),
  );
});

test("a test that imports a file of another package is told", () => {
  const statements = 'import { a } from "../src/a.ts";\nimport { b } from "../../core/src/b.ts";\n';
  expect(checkTestImports(treeOf({ "packages/mesh/test/a.test.ts": statements }))).toEqual([
    "packages/mesh/test/a.test.ts:2 imports ../../core/src/b.ts, outside packages/mesh: import the package",
  ]);
});

test("versions that are not exact are told, and other versions of our own packages", () => {
  const dependencies = { "@espalier/core": "0.2.0", ws: "^8.23.0", yjs: "13.6.33" };
  const files = { ...two, "packages/mesh/package.json": manifest("mesh", { devDependencies: dependencies }) };
  expect(checkVersions(treeOf(two))).toEqual([]);
  expect(checkVersions(treeOf(files))).toEqual([
    'packages/mesh/package.json:5 @espalier/core is "0.2.0": pin it',
    'packages/mesh/package.json:6 ws is "^8.23.0": pin it',
  ]);
});

test("build products, JavaScript among sources and large files are told, and nothing else", () => {
  const mebibyte = 1024 * 1024;
  const files = {
    "packages/a/dist/index.js": "",
    "packages/a/src/b.d.ts": "",
    "packages/a/src/b.mjs": "",
    "isolate-0x1-2-v8.log": "",
    "a.json": "é".repeat(mebibyte / 2 + 1),
    "b.json": "x".repeat(mebibyte),
    "b.png": `\0${"é".repeat(mebibyte - 1)}`,
    "scripts/start.mjs": "",
  };
  expect(checkNoBuildProducts(treeOf(files))).toEqual([
    "packages/a/dist/index.js:1 is made by a tool: do not track it",
    "packages/a/src/b.d.ts:1 is made by a tool: do not track it",
    "packages/a/src/b.mjs:1 is JavaScript: write TypeScript",
    "isolate-0x1-2-v8.log:1 is made by a tool: do not track it",
    "a.json:1 has 1048578 bytes: make it when it is needed",
  ]);
});

test.each([
  ["packages/a/src/b.ts", "const a = Date.now();", "take a Clock"],
  ["packages/a/src/b.ts", "const a = new Date();", "take a Clock"],
  ["packages/a/src/b.ts", "const a = process.hrtime.bigint();", "take a Clock"],
  ["apps/a/src/b.ts", "const signal = AbortSignal.timeout(5);", "take a Scheduler"],
  ["bench/src/b.ts", "const a = Math.random();", "take a Random"],
  ["bench/src/b.ts", "const a = crypto.randomUUID();", "take a Random"],
  ["packages/a/test/b.test.ts", "await new Promise((resolve) => setTimeout(resolve, 50));", "sleeps"],
  ["test/e2e/b.ts", "await new Promise<void>((done) => {\n  setTimeout(() => done(), 50);\n});", "sleeps"],
  ["test/e2e/b.mjs", "await sleep(50);", "sleeps"],
  ["packages/a/test/b.test.ts", 'test.only("a", run);', "is a test that"],
  ["packages/a/test/b.test.ts", 'test.each([(1)]).skip("a", run);', "is a test that"],
  ["packages/a/test/b.test.ts", "  if (!hasHelm) return;", "passes where a program is absent"],
  ["packages/a/test/b.test.ts", 'test("a", { timeout: 9, retry: 3 }, run);', "is a test that"],
  ["package-lock.json", '"resolved": "https://example.com/a-1.0.0.tgz"', "names a package registry"],
  ["docs/site/package-lock.json", '"resolved": "https://example.com/a-1.0.0.tgz"', "names a package registry"],
])("%s may not say %s", (file, text, advice) => {
  const [first, ...more] = checkPatterns(treeOf({ [file]: `\n${text}\n` }));
  expect(more).toEqual([]);
  expect(first).toMatch(new RegExp(`^${file}:2 .*: ${advice}`, "s"));
});

test.each([
  ["packages/a/src/b.ts", "// Not Date.now(): a Clock.\nconst a = new Date(wallMs);"],
  ["packages/core/src/clock.ts", "const a = Date.now();"],
  ["packages/a/test/b.test.ts", "const a = Date.now();"],
  ["packages/a/test/b.test.ts", "await new Promise((resolve, reject) => setTimeout(reject, 50));"],
  ["packages/a/test/b.test.ts", 'test.each([{ retry: 1, skip: 2 }])("a", () => reader.skip(2));'],
  ["package-lock.json", '"resolved": "packages/core"'],
])("%s may say %s", (file, text) => {
  expect(checkPatterns(treeOf({ [file]: text }))).toEqual([]);
});

test.each(oldWords.flatMap(({ words, use }) => words.map((word) => [word, use])))(
  "no identifier and no file has the word %s",
  (word, use) => {
    const camelCase = word.replace(/-(.)/g, (_, letter: string) => letter.toUpperCase());
    const capital = camelCase.replace(/^./, (letter) => letter.toUpperCase());
    const files = {
      "packages/a/src/b.ts": `export const ${camelCase}Of = 1;\n`,
      "packages/a/test/b.ts": `// ${word}\nclass A {\n  readonly #is${capital} = true;\n}\n`,
      [`test/e2e/${word}.ts`]: "",
    };
    expect(checkWords(treeOf(files))).toEqual([
      `packages/a/src/b.ts:1 ${camelCase}Of has ${word}: the field says ${use}`,
      `packages/a/test/b.ts:3 is${capital} has ${word}: the field says ${use}`,
      `test/e2e/${word}.ts:1 is named with ${word}: the field says ${use}`,
    ]);
  },
);

test.each([
  ['describe("lanes of a pool", () => {});', "lanes"],
  ['test.each([1, 2])("%i errands", () => {});', "errands"],
  ["it(`${2} duties`, () => {});", "duties"],
  ['testWithRedis("what an heir does", () => {});', "heir"],
])("no title of a test has an old word: %s", (text, word) => {
  const [first, ...more] = checkWords(treeOf({ "packages/a/test/b.test.ts": text }));
  expect(more).toEqual([]);
  expect(first).toMatch(new RegExp(`^packages/a/test/b.test.ts:1 .* has ${word}: the field says `));
});

test.each([
  ["packages/a/src/b.ts", '// Lanes, told by a teller.\nconst a = `${b("lanes")}: a knee`;'],
  ["packages/a/src/b.ts", "const usageHalfLifeMs = 1;"],
  ["packages/a/src/b.ts", "const their = planes.map(lifecycleOf);"],
  ["packages/a/test/b.test.ts", 'test("who is told of a doubt", () => {});\nitems("lanes");'],
  ["packages/core/src/hash/hash-kernel.ts", "const lanes = 4;"],
  ["packages/simulator/src/measure/knee.ts", "export const findKnee = 1;"],
  ["docs/lanes.md", "lanes"],
])("%s may have %s", (file, text) => {
  expect(checkWords(treeOf({ [file]: text }))).toEqual([]);
});

test.each([
  ['throw new Error("the key stands twice");', "1 a message has stands twice: say duplicate"],
  ["const a = 1;\nlog(`${a} is told ${a} it`);", "2 a message has told: say send"],
])("no message has a word that documents avoid: %s", (text, expected) => {
  const terms = 'rules: { terminology: { terms: [["stands? twice", duplicate], ["(tell|told)", send]] } }';
  const files = { "docs/site/voice.yaml": terms, "packages/a/src/b.ts": text, "packages/a/test/b.ts": text };
  expect(checkMessages(treeOf(files))).toEqual([`packages/a/src/b.ts:${expected}`]);
});

test.each([['// Told by nobody.\nconst told = key("told");'], ['const a = "hold and untold";']])(
  "a source may have %s",
  (text) => {
    const terms = 'rules: { terminology: { terms: [["(tell|told)", send]] } }';
    expect(checkMessages(treeOf({ "docs/site/voice.yaml": terms, "packages/a/src/b.ts": text }))).toEqual([]);
  },
);

test.each([
  ["[a](no.md)", "links to no.md, which does not exist: correct it"],
  ["[a](../docs/no/)", "links to ../docs/no/, which does not exist: correct it"],
  ["[a][1]\n\n[1]: no.md", "links to no.md, which does not exist: correct it"],
  ['<img alt="tree" src="no.svg">', "links to no.svg, which does not exist: correct it"],
  ["[a](#nowhere)", "links to #nowhere, but docs/A.md has no such heading: correct it"],
  ["[a](../README.md#start-2)", "links to ../README.md#start-2, but README.md has no such heading: correct it"],
  ["[a](../README.md) [b](../README.md#start-1) [c](#a) [d](https://example.com/no.md) [e](../docs)", undefined],
  ["```md\n[a](no.md)\n```\nand `[a](no.md)`", undefined],
])("links of a document: %s", (text, message) => {
  const files = { "README.md": "# Start\n\n## Start\n", "docs/A.md": `# A\n\n${text}` };
  const line = text.split("\n").length + 2;
  expect(checkLinks(treeOf(files))).toEqual(message === undefined ? [] : [`docs/A.md:${line} ${message}`]);
});

test.each([
  ["npm test", "npm script test"],
  ["npm run lint.", "npm script lint"],
  ["npm run start -w bench", "npm script start"],
  ["`npx espalier simulate --seed 1`", "espalier simulate"],
  ["node scripts/bench.mjs --json", "scripts/bench.mjs"],
  ["npm run build -w bench", undefined],
  ["npm start, npx espalier serve, npx espalier help, node scripts/start.mjs", undefined],
])("commands of a document: %s", (text, what) => {
  const files = {
    "package.json": '{ "scripts": { "start": "node scripts/start.mjs" } }',
    "bench/package.json": '{ "scripts": { "build": "tsc -b" } }',
    "scripts/start.mjs": "",
    "apps/router/src/main.ts": 'program.command("serve [url]");',
    "docs/A.md": `\n${text}`,
  };
  const expected = what === undefined ? [] : [`docs/A.md:2 names ${what}, which does not exist: correct it`];
  expect(checkCommands(treeOf(files))).toEqual(expected);
});

test("a page of one word too many, and one word too many in all", () => {
  const words = (count: number): string => "a ".repeat(count);
  expect(checkLengths(treeOf({ "docs/a.md": words(1_500), "docs/LIMITS.md": words(4_000) }))).toEqual([]);
  expect(checkLengths(treeOf({ "docs/a.md": words(1_501), "docs/LIMITS.md": words(4_001) }))).toEqual([
    "docs/a.md:1 has 1501 words, over 1500: shorten it",
    "docs/LIMITS.md:1 has 4001 words, over 4000: shorten it",
  ]);
  const pages = Object.fromEntries(Array.from({ length: 35 }, (_, at) => [`docs/${at}.md`, words(1_000)]));
  const others = { "docs/decisions/1.md": words(9), "docs/benchmarks/1.md": words(9), "CHANGELOG.md": words(9) };
  const generated = { "docs/M.md": `# Metrics\n\nGenerated by a script. ${words(9_000)}` };
  expect(checkLengths(treeOf({ ...pages, ...others, ...generated }))).toEqual([]);
  expect(checkLengths(treeOf({ ...pages, "README.md": "a" }))).toEqual([
    "docs: 35001 words in all, over 35000: shorten or merge pages",
  ]);
});

test("a limit that a part of the bench is said to go to is gone to", () => {
  const files = {
    "bench/src/limits/parts.ts": 'fleetPart({ ...{ name: "feeds" } })',
    "docs/LIMITS.md": "| feeds | 4 | `--part feeds` |\n| others | 5 | `--part others` |",
  };
  expect(checkCommands(treeOf(files))).toEqual([
    "docs/LIMITS.md:2 names part others of bench -- limits, which does not exist: correct it",
  ]);
});

test("a reason of a feed's state in no row of the operators' tables is a violation", () => {
  const files = {
    "packages/shared-tree/src/events/feed-state.ts":
      'export type FeedReason =\n  /** live. */\n  | "complete"\n  | "new-epoch"\n  | "gap";\ntype Other = "x" | "y";',
    "docs/concepts/feeds.md": "`gap`\n| state | why |\n| `live` | `complete`, `new-epoch` |",
  };
  expect(checkFeedReasons(treeOf(files))).toEqual([
    "docs/concepts/feeds.md: explains no feed that is `gap`: add it to the table",
  ]);
});

test.each([
  ["`packages/mesh/test/gone`", "packages/mesh/test/gone"],
  ["`test/integration/cors`, `gone`", "test/integration/gone"],
  ["`test/integration/cors` and `gone`", "test/integration/gone"],
  ["`test/integration/cor`, `link`", "test/integration/cor", "test/integration/link"],
  ["`test/link`", "test/link"],
  ["`packages/mesh/test/b.test.test.ts`", "packages/mesh/test/b.test.test.ts"],
  ["`packages/mesh/test/*a.test.ts`", "packages/mesh/test/*a.test.ts"],
  ["`packages/mesh/test/link`, `packages/*/test/*.fuzz.test.ts`, `test/integration/cors` and `slow`; `cors` is a word"],
])("tests of a document: %s", (text, ...gone: string[]) => {
  const tests = [
    "packages/mesh/test/link/a.test.ts",
    "packages/mesh/test/mesh.fuzz.test.ts",
    "packages/mesh/test/b-test.test.ts",
    "test/integration/cors.test.ts",
  ];
  const files = Object.fromEntries([...tests, "test/integration/slow.deep.test.ts"].map((path) => [path, ""]));
  const expected = gone.map((path) => `docs/A.md:2 names the test ${path}, which does not exist: correct it`);
  expect(checkTests(treeOf({ ...files, "docs/A.md": `\n${text}` }))).toEqual(expected);
});

test("a section of the threat model that names no test is a violation, and so is a row of its table", () => {
  const claims = ["No key is logged.", "| what | tests |\n|---|---|\n| a | `test/a` |\n| b | none |"];
  for (const claim of claims) {
    const text = `# T\n\n## Who may do what\n\nx\n\n## Keys\n\n${claim}\n`;
    const found = checkTests(treeOf({ "docs/THREAT_MODEL.md": text, "test/a.test.ts": "" }));
    expect(found).toEqual(['docs/THREAT_MODEL.md:7 claims under "Keys" what no test is named for: add it to a table']);
  }
});

test.each([
  ["It costs 63 us.", "63 us"],
  ["It takes 40\u00b5s or 12,000 req/s.", "40\u00b5s", "12,000 req/s"],
  ["It is 3.5 times as fast and 12 % smaller.", "3.5 times as", "12 %"],
  ["A mean of 1.4 s, in 48 to 57 s.", "mean of 1.4 s", "48 to 57 s"],
  ["| a | 1.77 / 19.6 | 2.27 |", "| 1.77 / 19.6 | 2.27 |"],
  ["`63 us` after 30 s, every 500 ms, in 20.19, two times, a `mean` of 3"],
  ["It costs <!-- figure: cpu.espalier -->63 us<!-- /figure -->.\n\n```sh\nsleep 63 us\n```"],
  ["A TTL of 5 to 30 s."],
])("figures of a document: %s", (text, ...figures: string[]) => {
  const files = { "docs/A.md": `\n${text}`, "docs/BENCHMARKS.md": text, "docs/decisions/1.md": text };
  const expected = figures.map(
    (figure) => `docs/A.md:2 has "${figure}": link to BENCHMARKS.md, or put it into docs/benchmarks/figures.json`,
  );
  expect(checkFigures(treeOf(files), text.includes("TTL") ? [["docs/A.md", "5 to 30 s", "a setting"]] : [])).toEqual(
    expected,
  );
});

test("an exception for a figure that is gone is told", () => {
  expect(checkFigures(treeOf({ "docs/A.md": "5 s" }), [["docs/A.md", "5 %", "a share"]])).toEqual([
    'docs/A.md:1 no longer has "5 %": drop the exception',
  ]);
});

/** A library whose native packages are `native`, with what is locked beside it. */
const lockOf = (native: readonly string[], locked: object): string =>
  JSON.stringify(
    {
      packages: {
        "": { name: "espalier" },
        "node_modules/tool": { optionalDependencies: Object.fromEntries(native.map((name) => [name, "1.0.0"])) },
        ...locked,
      },
    },
    null,
    1,
  );

const lockAdvice = "remove node_modules, then npm install --package-lock-only";

test.each([
  [["@tool/linux-x64", "colours"], { "node_modules/@tool/linux-x64": { os: ["linux"] }, "node_modules/colours": {} }],
  [["@tool/darwin-64"], { "node_modules/tool/node_modules/@tool/darwin-64": { os: ["darwin"] } }],
  [["@tool/darwin-64"], {}, "@tool/darwin-64"],
  [["@tool/darwin-64"], { "node_modules/other/node_modules/@tool/darwin-64": { os: ["darwin"] } }, "@tool/darwin-64"],
  [["tool-win32-x64-msvc"], { "node_modules/tool-win32-x64-msvc": {} }, "the system of tool-win32-x64-msvc"],
])(
  "a native package that a lock file lacks, or has for no system, is told: %j beside %j",
  (native, locked, ...lacks) => {
    const found = checkPlatforms(treeOf({ "docs/package-lock.json": lockOf(native, locked) }));
    expect(found).toEqual(
      lacks.map((lack) => `docs/package-lock.json:6 node_modules/tool lacks ${lack}: ${lockAdvice}`),
    );
  },
);

test("install scripts that nobody decided on are told, and decisions on scripts that are gone", () => {
  const lock = lockOf([], {
    "node_modules/a/node_modules/@native/b": { hasInstallScript: true },
    "node_modules/c": { hasInstallScript: true },
  });
  const manifestOf = (allowScripts: object): string => JSON.stringify({ name: "espalier", allowScripts }, null, 1);
  const violations = (allowScripts: object): string[] =>
    checkInstallScripts(treeOf({ "package-lock.json": lock, "package.json": manifestOf(allowScripts) }));
  expect(violations({ "@native/b": false, c: true })).toEqual([]);
  expect(violations({ c: false, d: false })).toEqual([
    "package.json:3 allowScripts lacks @native/b",
    "package.json:3 allowScripts has d, which has no install script",
  ]);
});

const commit = "3d3c42e5aac5ba805825da76410c181273ba90b1";
const workflowFile = ".github/workflows/ci.yml";

test.each([
  [`- uses: actions/checkout@${commit} # v7.0.1`],
  ["uses: ./.github/workflows/other.yml"],
  ["- uses: actions/checkout@v7", "actions/checkout@v7"],
  [`- uses: actions/checkout@${commit}`, `actions/checkout@${commit}`],
  [`- uses: actions/checkout@${commit.slice(0, 7)} # v7.0.1`, `actions/checkout@${commit.slice(0, 7)}`],
  [`  uses: other/repository/.github/workflows/a.yml@main`, "other/repository/.github/workflows/a.yml@main"],
  ["- uses: docker://alpine:3", "docker://alpine:3"],
])("actions of a workflow: %s", (line, ...unpinned: string[]) => {
  const expected = unpinned.map((action) => `${workflowFile}:2 ${action}: pin it as @COMMIT # vRELEASE`);
  expect(checkActions(treeOf({ [workflowFile]: `steps:\n${line}\n` }))).toEqual(expected);
});

const ownStep = `steps: [{ uses: actions/checkout@${commit} }]`;
const foreignStep = `steps: [{ run: "true" }, { uses: other/deploy@${commit} }]`;
const mayWrite = `${workflowFile}:1 may write: give such rights to the job that needs them`;
const publishes = `${workflowFile}:4 the job a may publish, and runs other/deploy@${commit}`;

test.each([
  ["permissions: {}", `permissions: { contents: write, id-token: write }\n    ${ownStep}`],
  ["permissions: { contents: read }", `permissions: { contents: write }\n    ${foreignStep}`],
  ["name: a", ownStep, mayWrite],
  ["permissions: write-all", ownStep, mayWrite],
  ["permissions: { contents: write }", ownStep, mayWrite],
  ["permissions: {}", `permissions: { id-token: write }\n    ${foreignStep}`, publishes],
  ["permissions: {}", `permissions: write-all\n    ${foreignStep}`, publishes],
  ["permissions: {}", `env: { TOKEN: "\${{ secrets.NPM }}" }\n    ${foreignStep}`, publishes],
  ["permissions: {}", `secrets: inherit\n    uses: other/deploy@${commit}`, publishes],
])("rights of a workflow: %s, of its job: %s", (rights, job, ...expected: string[]) => {
  expect(checkRights(treeOf({ [workflowFile]: `${rights}\non: push\njobs:\n  a:\n    ${job}\n` }))).toEqual(expected);
});

const repository = fileURLToPath(new URL("../..", import.meta.url));
let root = "";
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "espalier-tidy-"));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

function write(files: Files): void {
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
}

test("the tree holds what git tracks or would track, and nothing else", () => {
  const git = (...words: string[]) => execFileSync("git", words, { cwd: root, stdio: "ignore" });
  git("init");
  write({ ".gitignore": "dist\n", "docs/ä b.md": "é\n", "gone.ts": "", "tracked.ts": "1;\n", "dist/a.js": "made" });
  symlinkSync("tracked.ts", join(root, "link.ts"));
  git("add", "tracked.ts", "gone.ts");
  rmSync(join(root, "gone.ts"));
  expect([...loadTree(root)]).toEqual([
    [".gitignore", "dist\n"],
    ["docs/ä b.md", "é\n"],
    ["tracked.ts", "1;\n"],
  ]);
});

/** What knip says, with knip.json as it is, of two packages that are in order but for what `files` change. */
function knipOf(files: Files, flags: readonly string[]): Promise<string> {
  copyFileSync(join(repository, "knip.json"), join(root, "knip.json"));
  write({
    "package.json": two["package.json"],
    "packages/core/package.json": manifest("core", { exports: "./src/index.ts" }),
    "packages/core/src/index.ts": "export const limit = 1;",
    "packages/mesh/package.json": manifest("mesh", {
      exports: "./src/index.ts",
      dependencies: { "@espalier/core": "0.1.0" },
    }),
    "packages/mesh/src/index.ts": 'import { limit } from "@espalier/core";\nlimit.toFixed();',
    ...files,
  });
  return runKnip(root, ["--no-config-hints", ...flags]);
}

test("files, exports and dependencies for nothing are told, and imports of nothing", async () => {
  const files = {
    "packages/core/src/index.ts": "export const limit = 1, more = 2;",
    "packages/core/src/lonely.ts": "",
    "packages/mesh/src/index.ts": 'import "ws";',
    "packages/mesh/test/a.test.ts": 'import "../src/no.ts";',
  };
  const reported = await knipOf(files, []);
  expect(reported).toMatch(/Unused files \(1\)\s+packages\/core\/src\/lonely\.ts/);
  expect(reported).toMatch(/Unused exports \(2\)\s+limit .*\s+more /);
  expect(reported).toMatch(/Unused dependencies \(1\)\s+@espalier\/core/);
  expect(reported).toMatch(/Unlisted dependencies \(1\)\s+ws/);
  expect(reported).toMatch(/Unresolved imports \(1\)\s+\.\.\/src\/no\.ts/);
});

test("what only a test reaches is told, and an import of what only development has", async () => {
  const dependencies = { "@espalier/core": "0.1.0" };
  const files = {
    "packages/mesh/package.json": manifest("mesh", { exports: "./src/index.ts", devDependencies: dependencies }),
    "packages/mesh/src/tested.ts": "export const a = 1;",
    "packages/mesh/test/a.test.ts": 'import { a } from "../src/tested.ts";\na.toFixed();',
  };
  expect(await knipOf(files, [])).toBe("");
  const reported = await knipOf(files, productionFlags);
  expect(reported).toMatch(/Unused files \(1\)\s+packages\/mesh\/src\/tested\.ts/);
  expect(reported).toMatch(/Unlisted dependencies \(1\)\s+@espalier\/core +packages\/mesh\/src\/index/);
});

test("a job that waits for none that exists is reported by actionlint", { timeout: 120_000 }, async () => {
  const job = 'needs: gone\n    runs-on: ubuntu-24.04\n    steps: [{ run: "true" }]';
  write({ [workflowFile]: `on: push\njobs:\n  a:\n    ${job}\n` });
  expect(await runActionlint(root)).toMatch(/ci\.yml:3:3 .*"gone"/);
});

test("biome's rules for this tree bite", () => {
  copyFileSync(join(repository, "biome.jsonc"), join(root, "biome.jsonc"));
  const broken: Readonly<Record<string, readonly [rule: string, text: string]>> = {
    "packages/a/src/timer.ts": ["noRestrictedGlobals", "setTimeout(run, 5);"],
    "packages/a/src/now.ts": ["noRestrictedGlobals", "export const at = performance.now();"],
    "packages/a/src/nonce.ts": ["noRestrictedImports", 'import { randomBytes } from "node:crypto";\nrandomBytes(1);'],
    "packages/a/src/wait.ts": [
      "noRestrictedImports",
      'import { setTimeout } from "node:timers/promises";\nsetTimeout(1);',
    ],
    "apps/a/src/home.ts": ["noProcessEnv", "export const home = process.env.HOME;"],
    "bench/src/log.ts": ["noConsole", "console.log(1);"],
    "packages/a/src/one.ts": [
      "noImportCycles",
      'import { two } from "./two.ts";\nexport const one = (): number => two();',
    ],
    "packages/a/src/two.ts": [
      "noImportCycles",
      'import { one } from "./one.ts";\nexport const two = (): number => one();',
    ],
    "packages/a/src/kind.ts": ["noEnum", "export enum Kind {\n  A,\n}"],
    "packages/a/src/all.ts": ["noReExportAll", 'export * from "./kind.ts";'],
    "packages/a/src/whole.ts": ["noDefaultExport", "export default 1;"],
    "packages/a/src/any.ts": ["noExplicitAny", "export let a: any;"],
    "packages/a/src/someName.ts": ["useFilenamingConvention", "export const a = 1;"],
    "test/e2e/wait.test.ts": [
      "noRestrictedImports",
      'import { setTimeout } from "node:timers/promises";\nsetTimeout(1);',
    ],
  };
  const right = {
    "packages/core/src/clock.ts": "setTimeout(run, 5);",
    "packages/a/src/hash.ts": 'import { createHash } from "node:crypto";\ncreateHash("sha256");',
    "packages/a/test/timer.test.ts": "setTimeout(run, 5);\nperformance.now();",
  };
  write({ ".gitignore": "dist\n", ...right });
  write(Object.fromEntries(Object.entries(broken).map(([path, [, text]]) => [path, text])));
  const program = join(repository, "node_modules", ".bin", "biome");
  const { stdout } = spawnSync(program, ["lint", "--reporter=json", "."], { cwd: root, encoding: "utf8" });
  const { diagnostics } = JSON.parse(stdout) as {
    readonly diagnostics: readonly { readonly category: string; readonly location: { readonly path: string } }[];
  };
  const reported = diagnostics.map(({ category, location }) => `${location.path} ${category.split("/").at(-1)}`);
  expect(reported.toSorted()).toEqual(
    Object.entries(broken)
      .map(([path, [rule]]) => `${path} ${rule}`)
      .toSorted(),
  );
});
