import { expect, test } from "vitest";
import { changedPaths } from "../../src/config/index.ts";
import { load, problemsOf } from "./loading.ts";

const env = { NAME: "value", EMPTY: "", PORT: "8081", NESTED: `\${NAME}`, _u1: "under" };

/** What a text of the file comes to, seen through a label of an engine. */
function filled(text: string): string | undefined {
  return load(`engines: [{ url: http://e, labels: { a: ${JSON.stringify(text)} } }]`, { env }).engines[0]?.labels.a;
}

test.each([
  [`\${NAME}`, "value"],
  [`<\${NAME}>`, "<value>"],
  [`\${NAME}\${NAME}`, "valuevalue"],
  [`\${_u1}`, "under"],
  [`\${EMPTY}`, ""],
  [`\${NAME:-other}`, "value"],
  [`\${EMPTY:-other}`, "other"],
  [`\${UNSET:-other}`, "other"],
  [`\${UNSET:-}`, ""],
  [`\${UNSET:-a:-b}`, "a:-b"],
  [`\${UNSET:-a b/c}`, "a b/c"],
  [`$\${NAME}`, `\${NAME}`],
  [`$$\${NAME}`, `$\${NAME}`],
  ["$NAME", "$NAME"],
  ["100$", "100$"],
  ["{NAME}", "{NAME}"],
  [`\${NESTED}`, `\${NAME}`],
])("%s becomes %s", (text, expected) => {
  expect(filled(text)).toBe(expected);
});

test("a variable is read as what its place asks for", () => {
  const config = load(
    `listen: { port: "\${PORT}" }\ndrain: { delay: "\${UNSET:-3s}" }\ninject-usage: \${UNSET:-false}\n`,
    { env },
  );
  expect(config).toMatchObject({ listen: { port: 8081 }, drain: { delayMs: 3_000 }, injectUsage: false });
});

test("variables are filled in under every kind of place", () => {
  const text = `
engines: ["http://\${NAME}:1"]
models: { aliases: { a: "\${NAME}" } }
pools: [{ models: ["\${NAME}-*"] }]
policy: \${POLICY:-random}
`;
  const { engines, models, pools, policy } = load(text, { env });
  expect(engines[0]?.url).toBe("http://value:1");
  expect(models.aliases).toEqual({ a: "value" });
  expect(pools[0]?.models).toEqual(["value-*"]);
  expect(policy.name).toBe("random");
});

test("a variable that is not set is an error with its path, and no second error about the empty text", () => {
  const text = `admin:\n  key: "\${MISSING}"\nengines: ["http://\${GONE}"]`;
  expect(problemsOf(text, { env })).toEqual([
    "admin.key: the environment variable MISSING is not set (e.yaml:2:3)",
    "engines[0]: the environment variable GONE is not set (e.yaml:3:11)",
  ]);
});

test.each([`\${}`, `\${1A}`, `\${A-B}`, `\${A:=b}`, `\${A`, `\${ A }`, `\${A:b}`])(
  "%s is refused as no name",
  (text) => {
    expect(problemsOf(`listen:\n  host: ${JSON.stringify(text)}`, { env })).toEqual([
      `listen.host: ${text} is not \${NAME}, \${NAME:-default} or \${file:PATH}; write $\${ for a literal \${ (e.yaml:2:3)`,
    ]);
  },
);

test("keys are left as they are", () => {
  expect(load(`models: { aliases: { "\${NAME}": b } }`, { env }).models.aliases).toEqual({ "${NAME}": "b" });
});

test("values of flags and variables are left as they are", () => {
  const { enginesFile } = load("", { env: { ...env, ESPALIER_ENGINES_FILE: `/\${NAME}` } });
  expect(enginesFile).toBe(`/\${NAME}`);
  expect(load("", { env, flags: { "--engines-file": `/\${NAME}` } }).enginesFile).toBe(`/\${NAME}`);
});

test("the message shows the variable's name in place of its value", () => {
  expect(problemsOf(`listen: { port: "\${NAME}" }`, { env })).toEqual([
    `listen.port: \${NAME} is not an integer from 0 to 65535 (e.yaml:1:11)`,
  ]);
});

test("a file that nests deeper than 16 levels is refused", () => {
  const nested = (depth: number) => `zzzzzzzzzzzzzzzz: ${"[".repeat(depth)}${"]".repeat(depth)}`;
  expect(problemsOf(nested(15))).toHaveLength(1);
  expect(problemsOf(nested(16))[0]).toMatch(/nests deeper than 16 levels/);
});

const files: Readonly<Record<string, string>> = {
  "/run/secrets/key": "the-key-of-admins\n",
  "/two lines": "one\ntwo\r\n\n",
  "/names a variable": `\${NAME}`,
};
const readText = (path: string): string => {
  const text = files[path];
  if (text === undefined) throw new Error("no such file");
  return text;
};

test.each([
  [`\${file:/run/secrets/key}`, "the-key-of-admins"],
  [`<\${file:/run/secrets/key}:\${NAME}>`, "<the-key-of-admins:value>"],
  [`\${file:/two lines}`, "one\ntwo"],
  [`\${file:/names a variable}`, `\${NAME}`],
  [`$\${file:/run/secrets/key}`, `\${file:/run/secrets/key}`],
])("%s is the text of a file", (text, expected) => {
  const { engines } = load(`engines: [{ url: http://e, labels: { a: ${JSON.stringify(text)} } }]`, { env, readText });
  expect(engines[0]?.labels.a).toBe(expected);
});

test("a secret in a file is masked where its place is, and a change of the file is a change", () => {
  const text = `admin: { key: "\${file:/run/secrets/key}" }`;
  const { effective, admin } = load(text, { readText });
  expect(admin.keySha256).toBeDefined();
  expect(JSON.stringify(effective)).not.toContain("the-key-of-admins");
  const other = load(text, { readText: () => "another-key-of-admins" });
  expect(changedPaths(load(text, { readText }), other)).toEqual(["admin.key"]);
});

test.each([
  [`\${file:/absent}`, "the file /absent cannot be read: no such file"],
  [`\${file:}`, `\${file:} is not \${NAME}, \${NAME:-default} or \${file:PATH}; write $\${ for a literal \${`],
])("%s is told with its reason", (text, reason) => {
  expect(problemsOf(`listen: { host: "${text}" }`, { readText })).toEqual([`listen.host: ${reason} (e.yaml:1:11)`]);
});

test("without a reader no file is read", () => {
  expect(problemsOf(`listen: { host: "\${file:/etc/hostname}" }`)[0]).toContain("no files are read here");
});
