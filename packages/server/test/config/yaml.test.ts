import { EspalierError } from "@espalier/core";
import { randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { expect, test } from "vitest";
import { loadConfig, parseEnginesFile } from "../../src/config/index.ts";
import { load, problemsIn, problemsOf } from "./loading.ts";

test.each([
  ["a bracket that is not closed", "engines: [http://a", /^e\.yaml:1:\d+: /],
  ["a tab as indentation", "listen:\n\tport: 1", /^e\.yaml:2:1: Tabs/],
  ["a wrong indentation", "listen:\n  port: 1\n host: a", /^e\.yaml:3:\d+: /],
  ["a key that appears twice", "listen: {}\nlog: {}\nlisten: {}", /^e\.yaml:3:1: listen appears twice$/],
  ["a key that appears twice further in", "listen: { port: 1, port: 2 }", /^e\.yaml:1:20: port appears twice$/],
  ["a key that is a section", "log: {}\n? { a: b }\n: 1", /^e\.yaml:2:3: a key must be plain text$/],
  ["a key that is an alias", "log: &a {}\n*a : 1", /^e\.yaml:2:1: a key must be plain text$/],
  ["an unknown alias", "listen: *nowhere", /Unresolved alias/],
  ["an unknown tag", "listen: !secret x", /^e\.yaml:1:9: Unresolved tag/],
  ["two documents", "---\nlog: {}\n---\nlog: {}", /^e\.yaml:3:1: .*multiple documents/],
])("%s is reported with line and column", (_, text, expected) => {
  expect(problemsOf(text)[0]).toMatch(expected);
});

test("a variable in braces without quotes gets a hint, as the parser's own message does not tell", () => {
  const [first] = problemsOf(`admin: { host: 127.0.0.1, key: \${KEY} }`);
  expect(first).toMatch(/^e\.yaml:1:\d+: .*; inside braces or brackets, write "\$\{NAME\}" in quotes$/);
  expect(problemsOf("admin: { host: 127.0.0.1, key: ]")[0]).not.toContain("in quotes");
});

test("JSON is a part of YAML", () => {
  expect(load('{\n\t"listen": { "port": 1 },\n\t"engines": ["http://a"]\n}').listen.port).toBe(1);
});

test("anchors and aliases work", () => {
  const { health, scrape } = load("health: &probe { path: /p, interval: 4s }\nscrape: *probe");
  expect(health).toMatchObject({ path: "/p", intervalMs: 4_000 });
  expect(scrape).toMatchObject({ path: "/p", intervalMs: 4_000 });
});

test("aliases that multiply beyond measure are refused", () => {
  const level = (name: string, below: string) => `${name}: &${name} [${`*${below}, `.repeat(20)}]`;
  const text = ["a: &a [1, 1]", level("b", "a"), level("c", "b"), level("d", "c"), level("e", "d")].join("\n");
  expect(problemsOf(text)[0]).toMatch(/^e\.yaml: Excessive alias count/);
});

test("an alias of itself is refused", () => {
  expect(problemsOf("engines: &a [*a]").join("\n")).toMatch(/nests deeper/);
});

test.each([
  ["brackets", (n: number) => `${"[".repeat(n)}${"]".repeat(n)}`, 32],
  ["braces", (n: number) => `${"{a: ".repeat(n)}1${"}".repeat(n)}`, 32],
  ["dashes on a line", (n: number) => `${"- ".repeat(n)}a`, 32],
  ["question marks on a line", (n: number) => `${"? ".repeat(n)}a`, 32],
  ["columns of indentation", (n: number) => `a:\n${" ".repeat(n)}b: 1`, 256],
])("one more than the most %s is refused before the parser can run out of stack", (_, write, most) => {
  const isTooDeep = (text: string) => problemsOf(text)[0] === "e.yaml: nests too deeply to be read";
  expect(isTooDeep(write(most))).toBe(false);
  expect(isTooDeep(write(most + 1))).toBe(true);
  expect(isTooDeep(write(100_000))).toBe(true);
});

test("brackets and dashes within texts do not count as nesting", () => {
  const brackets = "[".repeat(100);
  expect(problemsOf(`log: { level: "${brackets}" }`)[0]).toMatch(/^log\.level: /);
  expect(problemsOf(`log:\n  level: |\n    ${brackets}\n    ${"- ".repeat(100)}\n`)[0]).toMatch(/^log\.level: /);
  expect(problemsOf(`# ${brackets}\nlog: {}`)).toEqual([]);
  expect(problemsOf(Array.from({ length: 40 }, (_, at) => `# ${at}\nkey-${at}: [[]]`).join("\n"))).toHaveLength(40);
});

/** A list of engines as JSON, in one line, was refused for the number of its keys. */
test("keys of JSON in one line do not count as nesting", () => {
  const engines = Array.from({ length: 100 }, (_, at) => ({ url: `http://engine-${at}:8000`, models: ["m"] }));
  expect(problemsOf(JSON.stringify({ engines }))).toEqual([]);
});

test("a file of more than 4 Mi characters is refused unread", () => {
  const filled = (length: number) => `log: {}\n#${"x".repeat(length - 9)}`;
  expect(problemsOf(filled(4 * 1024 * 1024))).toEqual([]);
  expect(problemsOf(filled(4 * 1024 * 1024 + 1))).toEqual(["e.yaml: 4194305 characters are more than 4194304"]);
});

/** Reads text as both kinds of file; anything but a configuration or a `config_invalid` is a defect. */
function read(text: string): void {
  for (const action of [() => load(text, { env: { A: "b" } }), () => parseEnginesFile(text, "f")]) {
    try {
      action();
    } catch (error) {
      if (!(error instanceof EspalierError) || error.code !== "config_invalid") throw error;
      expect(error.message.length).toBeLessThan(100_000);
    }
  }
}

test("any text gives a configuration or a clear error", () => {
  const fragments = [
    "listen",
    "engines",
    "port",
    "models",
    "splits",
    "aliases",
    ": ",
    "\n  ",
    "- ",
    "{",
    "}",
    "[",
    "]",
    `\${A}`,
    "1",
    "~",
    '"',
    "'",
    "&a ",
    "*a",
    "|\n",
    "!x ",
    "#",
    ",",
  ];
  const text = fc.array(fc.oneof(fc.constantFrom(...fragments), fc.string({ maxLength: 4 })), { maxLength: 40 });
  fc.assert(
    fc.property(text, (parts) => read(parts.join(""))),
    { numRuns: randomRuns(1_500), seed: 11 },
  );
});

test("any JSON gives a configuration or a clear error", () => {
  const keys = [
    "listen",
    "port",
    "engines",
    "url",
    "models",
    "splits",
    "policy",
    "name",
    "pools",
    "api-keys",
    "key",
    "__proto__",
    "log",
  ];
  const { tree } = fc.letrec((tie) => ({
    tree: fc.oneof(
      { maxDepth: 5 },
      fc.jsonValue({ maxDepth: 1 }),
      tie("section"),
      fc.array(tie("tree"), { maxLength: 3 }),
    ),
    section: fc.dictionary(fc.constantFrom(...keys), tie("tree"), { maxKeys: 4 }),
  }));
  fc.assert(
    fc.property(tree, (value) => read(JSON.stringify(value))),
    { numRuns: randomRuns(1_500), seed: 12 },
  );
});

test("a good file with one character changed gives a configuration or a clear error", () => {
  const good = `listen: { host: "::1", port: 8080 }
engines:
  - http://a:1
  - { url: "http://b:2", labels: { a: "b" } }
models: { splits: { m: [{ model: a, weight: 1 }] } }
policy: random
`;
  const change = fc.tuple(fc.nat({ max: good.length - 1 }), fc.string({ minLength: 0, maxLength: 2 }));
  const property = fc.property(change, ([at, inserted]) => read(good.slice(0, at) + inserted + good.slice(at + 1)));
  fc.assert(property, { numRuns: randomRuns(1_000), seed: 13 });
});

test("without a file, problems of flags name the flag", () => {
  expect(problemsIn(() => loadConfig({ flags: { "--listen-port": "x" } }))).toEqual([
    'listen.port: "x" is not an integer from 0 to 65535 (--listen-port)',
  ]);
});
