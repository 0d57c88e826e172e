/**
 * A clone where nothing was built.
 *
 * Symptom: an edit had no effect until the next build, or only in the threads and child processes. Mechanism: they were
 * started from `dist` while the process itself ran something newer.
 */
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { waitFor } from "@espalier/testing";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Program, start } from "../e2e/program.ts";
import { copyRepository } from "./copy-repository.ts";

const folder = mkdtempSync(join(tmpdir(), "espalier-sources-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const script = join(folder, "apps/router/bin/espalier.mjs");
const run = (...args: readonly string[]): Program => start(args, { script });

beforeAll(() => {
  copyRepository(folder);
  const packages = ["packages", "apps"].flatMap((group) =>
    readdirSync(join(folder, group)).map((name) => join(folder, group, name)),
  );
  expect(packages.filter((path) => existsSync(join(path, "dist")))).toEqual([]);
});

const post = async (url: string, body: object): Promise<Response> =>
  fetch(url, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

/** What a router logs when the program of a thread cannot be run. */
const threadFailure = /thread .*ended/;

test("the demo answers a chat, and a body that a thread reads, and has its dashboard", async () => {
  const demo = run("demo", "--port", "0", "--admin-port", "0", "--engines", "1", "--routers", "1");
  await demo.until(/Ctrl-C stops everything/);
  const [, url = ""] = /curl -N (\S+)/.exec(demo.stdout()) ?? [];
  const [, page = ""] = /^dashboard +(\S+)$/m.exec(demo.stdout()) ?? [];
  const chat = { model: "sim-model", max_tokens: 3, messages: [{ role: "user", content: "hello" }] };
  for (const body of [chat, { ...chat, metadata: { attachment: "x".repeat(2_000_000) } }]) {
    const answer = await post(url, body);
    expect([answer.status, await answer.text()]).toEqual([200, expect.stringContaining('"choices"')]);
  }
  for (const file of ["app.js", "style.css"]) {
    expect((await (await fetch(page + file)).text()).length, file).toBeGreaterThan(5_000);
  }
  demo.killGroup("SIGINT");
  expect((await demo.ended).stderr).not.toMatch(threadFailure);
});

test("a router tokenizes a long text in a thread", async () => {
  const tokenizer = join(folder, "packages/tokenizer/models/espalier-tiny");
  const engineSim = join(folder, "apps/engine-sim/bin/engine-sim.mjs");
  const engine = start(["--port", "0", "--tokenizer", tokenizer], { script: engineSim });
  const [url = ""] = await engine.until(/http:\S+/);
  const flags = ["--listen-port", "0", "--admin-port", "0", "--tokenizer", tokenizer, "--tokenize-budget", "10s"];
  const router = run("serve", "--engine", url, ...flags);
  const [, listening = ""] = await router.until(/"url":"(http[^"]+)","adminUrl"/);
  await waitFor(async () => (await fetch(`${listening}/readyz`)).ok, { what: "an engine" });
  const request = { model: "sim-model", max_tokens: 1, prompt: "one more word ".repeat(2_000) };
  expect((await post(`${listening}/v1/completions`, request)).status).toBe(200);
  const again = await post(`${listening}/v1/completions`, request);
  // Bytes would be cut into other blocks than the engine's tokens.
  expect(Number(again.headers.get("x-espalier-cache-hit-tokens"))).toBeGreaterThan(2_000);
  expect(router.stdout() + router.stderr()).not.toMatch(threadFailure);
});

test("simulations run in child processes", async () => {
  const { code, stdout, stderr } = await run("simulate", "one-prompt", "--duration", "2s", "--jobs", "2", "--json")
    .ended;
  expect([code, stderr]).toEqual([0, expect.not.stringMatching(/error/i)]);
  expect(JSON.parse(stdout)).toMatchObject({ params: { scenario: "one-prompt" } });
});
