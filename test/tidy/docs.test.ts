import { expect, test } from "vitest";
import { checkCommands, checkLinks, checkScripts } from "./docs.ts";
import { linesOf, treeOf } from "./fake-tree.ts";

const files = {
  "README.md": "# Espalier\n\n## Getting started\n\n## What's `new`, and why?\n\n## Getting started\n",
  "docs/LIMITS.md": '# Limits\n\n<a id="queues"></a>\n\n```md\n# Not a heading\n```\n',
  "docs/img/tree.svg": "<svg/>",
  LICENSE: "",
};

const linkViolations = (text: string): string[] => linesOf(checkLinks(treeOf({ ...files, "docs/A.md": text })));

test.each([
  "[a](LIMITS.md)",
  "[a](./LIMITS.md#limits)",
  "[a](LIMITS.md#queues)",
  "[a](../README.md#getting-started)",
  "[a](../README.md#getting-started-1)",
  "[a](../README.md#whats-new-and-why)",
  '[a](../README.md "a title")',
  "[a](../LICENSE)",
  "[a](img/) and [b](..) and [c](img)",
  "![tree](img/tree.svg)",
  "[a][1]\n\n[1]: LIMITS.md",
  '<img alt="tree" src="img/tree.svg">',
  "[a](https://example.com/no.md#no) and [b](mailto:a@example.com)",
  "# Here\n\n[a](#here)",
  "```md\n[a](no.md)\n```\n\nand `[a](no.md)`",
])("%s leads somewhere", (text) => {
  expect(linkViolations(text)).toEqual([]);
});

test.each([
  ["[a](no.md)", "no.md, which does not exist: correct it"],
  ["[a](../docs/no/)", "../docs/no/, which does not exist: correct it"],
  ["[a](/README.md)", "/README.md, which does not exist: correct it"],
  ["[a][1]\n\n[1]: no.md", "no.md, which does not exist: correct it"],
  ["![tree](img/no.svg)", "img/no.svg, which does not exist: correct it"],
  ['<img alt="tree" src="img/no.svg">', "img/no.svg, which does not exist: correct it"],
  ["[`code`](no.md)", "no.md, which does not exist: correct it"],
  ["[a](#nowhere)", "#nowhere, but docs/A.md has no such heading: correct it"],
  ["[a](LIMITS.md#not-a-heading)", "LIMITS.md#not-a-heading, but docs/LIMITS.md has no such heading: correct it"],
  [
    "[a](../README.md#getting-started-2)",
    "../README.md#getting-started-2, but README.md has no such heading: correct it",
  ],
])("%s leads nowhere", (text, message) => {
  const line = text.split("\n").length + 2;
  expect(linkViolations(`# A\n\n${text}`)).toEqual([`docs/A.md:${line} links to ${message}`]);
});

test("after a fence is closed, links count again", () => {
  expect(linkViolations("```sh\nnpm test\n```\n\n[a](no.md)\n")).toEqual([
    "docs/A.md:5 links to no.md, which does not exist: correct it",
  ]);
});

const programs = {
  "package.json": JSON.stringify({ scripts: { start: "node scripts/start.mjs", "test:unit": "vitest run" } }),
  "bench/package.json": JSON.stringify({ scripts: { build: "tsc -b" } }),
  "scripts/start.mjs": "",
  "apps/router/src/main.ts": 'program.command("serve [url]");\nprogram.addCommand(new Command("check-config"));',
  "apps/router/src/commands/demo.ts": 'addCommand(program, "demo").description("a fleet")',
};

const commandViolations = (text: string): string[] =>
  linesOf(checkCommands(treeOf({ ...programs, "docs/A.md": `\n${text}` })));

test.each([
  "npm start",
  "npm run test:unit",
  "`npm run build -w bench` builds",
  "npm install, npm ci",
  "npx espalier serve --port 8080",
  "npx espalier check-config a.yaml",
  "npx espalier demo",
  "npx espalier help",
  "npx espalier --version",
  "node scripts/start.mjs",
])("the command %s exists", (text) => {
  expect(commandViolations(text)).toEqual([]);
});

test.each([
  ["npm test", "names npm script test, which does not exist: correct it"],
  ["npm run lint", "names npm script lint, which does not exist: correct it"],
  ["npm run build.", "names npm script build, which does not exist: correct it"],
  ["npm run no -w bench", "names npm script no, which does not exist: correct it"],
  ["`npx espalier simulate --seed 1`", "names espalier simulate, which does not exist: correct it"],
  ["node scripts/bench.mjs --json", "runs scripts/bench.mjs, which does not exist: correct it"],
])("the command %s does not exist", (text, message) => {
  expect(commandViolations(text)).toEqual([`docs/A.md:2 ${message}`]);
});

test("programs that package.json files name exist, built ones as their sources", () => {
  const manifest = {
    bin: { espalier: "./bin/espalier.mjs" },
    scripts: { docs: "node dist/docs.js && node dist/no.js --all", start: "node ../../scripts/start.mjs" },
  };
  const text = JSON.stringify(manifest, null, 2);
  const tree = treeOf({ ...programs, "apps/router/package.json": text, "apps/router/src/docs.ts": "" });
  expect(linesOf(checkScripts(tree))).toEqual([
    "apps/router/package.json:3 runs ./bin/espalier.mjs: no such file",
    "apps/router/package.json:6 runs dist/no.js: no such file",
  ]);
});
