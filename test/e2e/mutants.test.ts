import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished, test } from "vitest";
import { childrenOf, type Outcome, type Program, start, untilGone } from "./program.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));

const sources = `
export const maxItems = 3;

export function isFull(items: number): boolean {
  return items >= maxItems;
}

export function greet(name: string, log: (text: string) => void): string {
  if (name === "nobody") return "";
  log(name);
  return "hello " + name;
}

export function sum(to: number, size: number): number {
  const step = Math.max(1, size);
  let total = 0;
  for (let at = 0; at < to; at += step) total += at;
  return total;
}

export async function settled(): Promise<void> {
  await new Promise<void>((resolve) => {
    resolve();
    void maxItems;
  });
}

export function unused(flag: boolean): boolean {
  return !flag;
}
`;

const tests = `
import { expect, test } from "vitest";
import { greet, isFull, settled, sum } from "../src/code.ts";

test("is full", () => expect([2, 3].map(isFull)).toEqual([false, true]));
test("greets", () => expect([greet("you", () => {}), greet("nobody", () => {})]).toEqual(["hello you", ""]));
test("sums", () => expect(sum(4, 0)).toBe(6));
test("settles", () => settled());
`;

/** A package outside the tree, seen from its root. */
function fixture(testText = tests): string {
  const folder = mkdtempSync(join(tmpdir(), "espalier-mutants-fixture-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  for (const part of ["src", "test"]) mkdirSync(join(folder, part));
  writeFileSync(join(folder, "package.json"), JSON.stringify({ name: "fixture", type: "module" }));
  writeFileSync(join(folder, "src", "code.ts"), sources);
  writeFileSync(join(folder, "test", "code.test.ts"), testText);
  symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
  return relative(root, folder);
}

const begin = (...args: readonly string[]): Program => start(args, { script: "scripts/test-mutants.mjs" });
const mutants = (...args: readonly string[]): Promise<Outcome> => begin(...args).ended;

interface Survivor {
  readonly mutant: string;
  readonly line: number;
  readonly before: string;
  readonly after: string;
  readonly verdict: string;
}

test("a mutant that a test notices dies, one that hangs is timed out and ends no other, those that live are listed", async () => {
  const folder = fixture();
  const { code, stdout, stderr } = await mutants(
    "--package",
    folder,
    "--sample",
    "all",
    "--threshold",
    "100",
    "--json",
  );
  const { survivors, ...counts } = JSON.parse(stdout) as { readonly survivors: readonly Survivor[] };

  expect(survivors.map(({ line, before, after, verdict }) => [line, before, after, verdict])).toEqual([
    [10, "log(name);", ";", "survived"],
    [29, "!flag", "flag", "uncovered"],
  ]);
  expect(counts).toMatchObject({ mutants: 21, killed: 15, timedOut: 4, survived: 1, uncovered: 1, score: 90.5 });
  expect(code, stderr).toBe(1);
  const { stdout: shown } = await mutants("--package", folder, "--mutant", survivors[0]!.mutant);
  expect(shown).toContain("code.ts:10 removed call\n- log(name);\n+ ;\nsurvived");
});

test("the same seed draws the same mutants", async () => {
  const folder = fixture(`import { test } from "vitest";\ntest("nothing", () => {});\n`);
  const drawn = async (seed: string): Promise<readonly string[]> => {
    const { stdout } = await mutants("--package", folder, "--sample", "6", "--seed", seed, "--json");
    return (JSON.parse(stdout) as { readonly survivors: readonly Survivor[] }).survivors.map(({ mutant }) => mutant);
  };
  const [first, again, other] = await Promise.all([drawn("4"), drawn("4"), drawn("5")]);
  expect(first).toHaveLength(6);
  expect(again).toEqual(first);
  expect(other).not.toEqual(first);
});

test("a test that fails without any mutant judges none", async () => {
  const failing = `import { expect, test } from "vitest";\ntest("fails", () => expect(1).toBe(2));\n`;
  const { code, stderr } = await mutants("--package", fixture(failing));
  expect([code, stderr]).toEqual([3, expect.stringContaining("test/code.test.ts: fails")]);
});

test.each(["SIGINT", "SIGTERM"] as const)("on %s it tells what it found and leaves nothing running", async (signal) => {
  const waiting = `import { test } from "vitest";\ntest("waits", () => new Promise(() => {}), 60_000);\n`;
  const program = begin("--package", fixture(waiting));
  await program.until(/without mutants/);
  const [vitest = 0] = childrenOf(program.pid);
  const group = [vitest, ...childrenOf(vitest)];
  program.kill(signal);
  const { code, stdout } = await program.ended;
  expect([code, stdout]).toEqual([130, expect.stringContaining("interrupted after 0 of")]);
  await untilGone(group);
});

test.each([
  [["--package", "nowhere"], "packages/nowhere has no src and test"],
  [[], "--package is missing"],
  [["--package", "engines", "--sample", "0"], "--sample must be a whole number"],
  [["--package", "engines", "--mutant", "src/proxy/attempt.ts#99999"], "is no mutant"],
  [["--nonsense"], "Unknown option '--nonsense'"],
])("called with %j it tells what is wrong", async (args, message) => {
  const { code, stderr } = await mutants(...args);
  expect([code, stderr]).toEqual([2, expect.stringContaining(message)]);
});
