import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { shippedModelFolder } from "@espalier/tokenizer";
import { expect, onTestFinished, test } from "vitest";
import { engines } from "./files.ts";
import { run } from "./program.ts";

const verify = (model: string, url: string, ...args: string[]) =>
  run(["verify-tokenizer", "--model", model, "--engine", url, ...args]);

interface Report {
  readonly name: string;
  readonly cases: number;
  readonly different: number;
  readonly rows: readonly {
    readonly case: string;
    readonly ok: boolean;
    readonly tokens: number;
    readonly firstDifference?: { readonly at: number; readonly ours?: number; readonly engine?: number };
    readonly error?: string;
  }[];
}

/** A copy of the shipped model with another configuration or vocabulary. */
function changedModel(file: string, change: (content: Record<string, unknown>) => void): string {
  const folder = mkdtempSync(join(tmpdir(), "espalier-e2e-model-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  cpSync(shippedModelFolder(), folder, { recursive: true });
  const path = join(folder, file);
  const content = JSON.parse(readFileSync(path, "utf8")) as Record<string, unknown>;
  change(content);
  writeFileSync(path, JSON.stringify(content));
  return folder;
}

test("the shipped model is that of an engine that has it, in every prompt", async () => {
  const [url = ""] = await engines({ tokenizer: "espalier-tiny" });
  const [table, json, named] = await Promise.all([
    verify(shippedModelFolder(), url),
    verify(shippedModelFolder(), url, "--json"),
    verify(shippedModelFolder(), url, "--name", "tiny"),
  ]);
  expect([table.code, json.code, named.code]).toEqual([0, 0, 0]);
  const report = JSON.parse(json.stdout) as Report;
  expect(report).toMatchObject({ name: "verify-tokenizer", different: 0 });
  expect(report.rows).toHaveLength(report.cases);
  expect(report.rows.filter(({ ok, tokens }) => ok && tokens > 0)).toHaveLength(report.cases);
  expect(report.rows.filter((row) => row.case.startsWith("chat:")).length).toBeGreaterThan(20);
  expect(table.stdout).toBe(`${report.cases} of ${report.cases} prompts match\n`);
  expect(table.stderr).toContain(`comparing ${report.cases} prompts with ${url} (tiny)`);
  expect(named.stdout).toBe(table.stdout);
});

test("another tokenizer is found out, with the place and the tokens of the first difference", async () => {
  const [url = ""] = await engines({ tokenizer: "espalier-tiny" });
  const other = changedModel("tokenizer.json", (content) => {
    // With few merges it cuts most words into more pieces.
    const model = content.model as { merges: unknown[] };
    model.merges = model.merges.slice(0, 100);
  });
  const [table, json] = await Promise.all([verify(other, url), verify(other, url, "--json")]);
  expect([table.code, json.code]).toEqual([1, 1]);
  const { cases, different, rows } = JSON.parse(json.stdout) as Report;
  expect(different).toBeGreaterThan(20);
  expect(different).toBeLessThan(cases);
  const wrong = rows.filter(({ ok }) => !ok);
  expect(wrong).toHaveLength(different);
  for (const { firstDifference } of wrong) {
    expect(firstDifference!.at).toBeGreaterThanOrEqual(0);
    expect(firstDifference!.ours).not.toBe(firstDifference!.engine);
  }
  const lines = table.stdout.split("\n").filter((line) => line !== "");
  expect(lines[0]).toBe(`${cases - different} of ${cases} prompts match`);
  expect(lines[1]).toMatch(/^prompt +first difference at +ours +engine's +why/);
  expect(lines).toHaveLength(2 + 20 + 1);
  expect(lines.at(-1)).toBe(`and ${different - 20} more`);
});

test("another template differs in the chats alone", async () => {
  const [url = ""] = await engines({ tokenizer: "espalier-tiny" });
  const other = changedModel("tokenizer_config.json", (content) => {
    content.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
  });
  const { code, stdout } = await verify(other, url, "--json");
  expect(code).toBe(1);
  const { rows } = JSON.parse(stdout) as Report;
  for (const row of rows) expect([row.case, row.ok]).toEqual([row.case, !row.case.startsWith("chat:")]);
});

test("a model without a chat template is compared by its texts, and that is said", async () => {
  const [url = ""] = await engines({ tokenizer: "espalier-tiny" });
  const other = changedModel("tokenizer_config.json", (content) => {
    delete content.chat_template;
  });
  const { code, stdout } = await verify(other, url);
  expect(code).toBe(0);
  expect(stdout).toMatch(/^(\d+) of \1 prompts match\nno chat template found: chats were not compared\n$/);
});

test("an engine whose tokens are of another kind differs nearly everywhere", async () => {
  const [url = ""] = await engines({});
  const { code, stdout } = await verify(shippedModelFolder(), url, "--json");
  expect(code).toBe(1);
  const { cases, different } = JSON.parse(stdout) as Report;
  expect(different).toBeGreaterThan(0.9 * cases);
});

test("what cannot be compared says why", async () => {
  const server = createServer((_, response) => response.end("<html>"));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  const stranger = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const [url = ""] = await engines({ tokenizer: "espalier-tiny" });
  const [nobody, noEngine, noFolder, wrongName, wrongUrl, noModel] = await Promise.all([
    verify(shippedModelFolder(), "http://127.0.0.1:1"),
    verify(shippedModelFolder(), stranger),
    verify("/nowhere/at/all", url),
    verify(shippedModelFolder(), url, "--name", "nobody's", "--json"),
    verify(shippedModelFolder(), `${url}/v1`),
    run(["verify-tokenizer", "--engine", url]),
  ]);
  expect([nobody.code, nobody.stdout]).toEqual([1, ""]);
  expect(nobody.stderr).toContain("The engine could not be reached.");
  expect([noEngine.code, noEngine.stdout]).toEqual([1, ""]);
  expect(noEngine.stderr).toContain(`${stranger}/v1/models names no model; give --name`);
  expect([noFolder.code, noFolder.stdout]).toEqual([1, ""]);
  expect(noFolder.stderr).toContain("/nowhere/at/all");
  expect(wrongName.code).toBe(1);
  for (const { ok, error } of (JSON.parse(wrongName.stdout) as Report).rows) {
    expect([ok, error]).toEqual([false, expect.stringContaining("/tokenize answered 404")]);
  }
  expect([wrongUrl.code, wrongUrl.stderr]).toEqual([2, expect.stringContaining("--engine must be a URL such as")]);
  expect([noModel.code, noModel.stderr]).toEqual([2, expect.stringContaining("--model")]);
});
