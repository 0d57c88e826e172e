import { expect, test } from "vitest";
import { linesOf, treeOf } from "./fake-tree.ts";
import { checkNoSleeping, checkPorts } from "./ports.ts";

const file = "packages/workers/src/probe.ts";
const portUses = (statement: string): string[] => linesOf(checkPorts(treeOf({ [file]: `\n${statement}` }), []));

test.each([
  ["const a = Date.now();", "Date.now: take a Clock"],
  ["const a = new Date();", "the current Date: take a Clock"],
  ["const a = Date();", "the current Date: take a Clock"],
  ["const a = performance.now();", "performance: take a Clock"],
  ["const a = globalThis.performance.now();", "performance: take a Clock"],
  ["const a = process.hrtime.bigint();", "process.hrtime: take a Clock"],
  ['import { performance as p } from "node:perf_hooks";', "node:perf_hooks: take a Clock"],
  ["setTimeout(run, 5);", "setTimeout: take a Scheduler"],
  ["const later = setInterval;", "setInterval: take a Scheduler"],
  ["const a = { setImmediate };", "setImmediate: take a Scheduler"],
  ["globalThis.setTimeout(run, 5);", "setTimeout: take a Scheduler"],
  ["const signal = AbortSignal.timeout(5);", "AbortSignal.timeout: take a Scheduler"],
  ['import { setTimeout as sleep } from "node:timers/promises";', "node:timers/promises: take a Scheduler"],
  ["const a = Math.random();", "Math.random: take a Random"],
  ["const a = crypto.randomUUID();", "crypto.randomUUID: take a Random"],
  ["const a = globalThis.crypto.getRandomValues(b);", "crypto.getRandomValues: take a Random"],
  ['import { createHash, randomBytes } from "node:crypto";', "randomBytes of node:crypto: take a Random"],
  ['import * as crypto from "node:crypto";', "* of node:crypto: take a Random"],
  ['console.log("a");', "console: take a Logger, or write to the output stream that the command is given"],
  ["const a = process.env.HOME;", "process.env: take the value as configuration"],
  ['const a = process["env"];', "process.env: take the value as configuration"],
  ['import { env } from "node:process";', "env of node:process: take the value as configuration"],
])("%s goes past a port", (statement, what) => {
  expect(portUses(statement)).toEqual([`${file}:2 uses ${what}`]);
});

test.each([
  "const a = new Date(wallMs).toISOString();",
  "const a = Date.parse(text);",
  "clearTimeout(timer);",
  "let a: ReturnType<typeof setTimeout>;",
  "const a: { readonly console: string } = { console: text };",
  "const a = options.performance;",
  "const a = random.float() + clock.nowMs() + Math.max(1, 2);",
  'import { createHash } from "node:crypto";',
  'import type { Performance } from "node:perf_hooks";',
  "// Date.now() and setTimeout() are not for us\nconst a = 'Math.random()';",
  "const a = process.memoryUsage();",
])("%s stays inside the rules", (statement) => {
  expect(portUses(statement)).toEqual([]);
});

test("tests and scripts may use them", () => {
  const text = "console.log(Date.now(), Math.random(), process.env.HOME); setTimeout(run, 5);";
  expect(checkPorts(treeOf({ "packages/a/test/b.test.ts": text, "scripts/c.mjs": text }), [])).toEqual([]);
});

test("an exception covers one file, or a folder, for the ports that it names", () => {
  const reason = "the port itself";
  const tree = treeOf({
    "packages/common/src/clock.ts": "const a = Date.now() + Math.random();",
    "apps/router/src/cli/a.ts": "const a = process.env;",
    "apps/router/src/client.ts": "const a = process.env;",
  });
  const exceptions = [
    { path: "packages/common/src/clock.ts", ports: ["time"] as const, reason },
    { path: "apps/router/src/cli/", ports: ["environment"] as const, reason },
  ];
  expect(linesOf(checkPorts(tree, exceptions))).toEqual([
    "apps/router/src/client.ts:1 uses process.env: take the value as configuration",
    "packages/common/src/clock.ts:1 uses Math.random: take a Random",
  ]);
});

test("an exception that is not needed is told", () => {
  const exceptions = [{ path: file, ports: ["time", "timers"] as const, reason: "once needed" }];
  expect(linesOf(checkPorts(treeOf({ [file]: "const a = Date.now();" }), exceptions))).toEqual([
    `${file}:1 does not need its exception for timers: remove that`,
  ]);
});

test.each([
  "await new Promise((resolve) => setTimeout(resolve, 50));",
  "await new Promise<void>((r) => { setTimeout(r, 50); });",
  "await new Promise((done) => setTimeout(() => done(), 50));",
  "await new Promise(function (resolve) { setTimeout(resolve, 50); });",
  "await sleep(50);",
  "await delay(50);",
  'import { setTimeout } from "node:timers/promises";',
])("a test that says %s sleeps", (statement) => {
  const lines = linesOf(checkNoSleeping(treeOf({ "test/e2e/a.test.ts": statement, [file]: statement })));
  expect(lines).toEqual(["test/e2e/a.test.ts:1 sleeps: use waitFor of @espalier/testing, or virtual time"]);
});

test.each([
  'await waitFor(() => lines.length > 0, { what: "a line" });',
  'await new Promise((resolve, reject) => { setTimeout(() => reject(new Error("late")), 5000); run(resolve); });',
  "const server = createServer((request, response) => setTimeout(() => response.end(), 20));",
  "await new Promise((resolve) => setImmediate(resolve));",
  "time.advance(50);",
])("a test that says %s does not sleep", (statement) => {
  expect(checkNoSleeping(treeOf({ "packages/a/test/b.test.ts": statement }))).toEqual([]);
});
