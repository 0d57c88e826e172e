import { expect, test } from "vitest";
import { engines } from "./files.ts";
import { childrenOf, type Program, start, untilGone } from "./program.ts";

const freePorts = ["--port", "0", "--admin-port", "0"];
/** On a machine that may be busy; what is waited for otherwise lasts for minutes. */
const atOnceMs = 5_000;

/** Starts a demo as `npm start` does, and waits until it greets. */
async function demo(...args: string[]): Promise<Program> {
  const program = start([...freePorts, ...args], { script: "scripts/start.mjs" });
  await program.until(/Ctrl-C stops everything/);
  return program;
}

/** Sends what the printed curl line would send. */
async function sendPrintedRequest(greeting: string): Promise<string> {
  const [, url = "", header = "", body = ""] = /curl -N (\S+) -H '([^']+)' \\\n +-d '([^']+)'/.exec(greeting) ?? [];
  const [name = "", value = ""] = header.split(": ");
  const response = await fetch(url, { method: "POST", headers: { [name]: value }, body });
  expect([response.status, response.headers.get("content-type")]).toEqual([200, expect.stringMatching(/event-stream/)]);
  return response.text();
}

test("what it prints can be pasted, and Ctrl-C ends every process at once", async () => {
  const program = await demo("--engines", "2", "--routers", "2", "--policy", "round_robin");
  const greeting = program.stdout();
  expect(greeting).toMatch(/2 simulated engines \(h100-32b-tp2\), policy round_robin/);
  const answer = await sendPrintedRequest(greeting);
  expect(answer.match(/"content":"[^"]/g)).toHaveLength(40);
  expect(answer).toMatch(/data: \[DONE\]\n\n$/);

  const routers = [...greeting.matchAll(/^router +(\S+) +metrics (\S+)$/gm)];
  expect(routers).toHaveLength(2);
  for (const [, url, metrics] of routers) {
    expect((await fetch(`${url}/readyz`)).status).toBe(200);
    expect(await (await fetch(metrics!)).text()).toContain("espalier_requests_total");
  }
  const [, admin = ""] = /npx espalier engines --admin (\S+)/.exec(greeting) ?? [];
  const listed = await start(["engines", "--admin", admin]).ended;
  expect(listed.stdout.trimEnd().split("\n")).toHaveLength(3);

  const children = childrenOf(program.pid);
  expect(children).toHaveLength(3);
  const startMs = performance.now();
  program.killGroup("SIGINT");
  expect(await program.ended).toMatchObject({ code: 0, signal: null });
  await untilGone(children, atOnceMs);
  expect(performance.now() - startMs).toBeLessThan(atOnceMs);
});

test("Ctrl-C ends it while answers are open, and while it starts", async () => {
  const busy = await demo("--load", "20");
  const [, url] = /^router +(\S+)/m.exec(busy.stdout()) ?? [];
  const body = JSON.stringify({ model: "sim-model", prompt: "x", max_tokens: 5_000, stream: true });
  const open = await fetch(`${url}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body,
  });
  expect(open.status).toBe(200);
  const children = childrenOf(busy.pid);
  const startMs = performance.now();
  busy.killGroup("SIGINT");
  expect((await busy.ended).code).toBe(0);
  await untilGone(children, atOnceMs);
  expect(performance.now() - startMs).toBeLessThan(atOnceMs);
  await open.body?.cancel().catch(() => {});

  const starting = start([...freePorts], { script: "scripts/start.mjs" });
  while (childrenOf(starting.pid).length === 0) await new Promise((resolve) => setImmediate(resolve));
  const early = childrenOf(starting.pid);
  starting.killGroup("SIGINT");
  expect(await starting.ended).toMatchObject({ code: 0, stdout: "", stderr: "" });
  await untilGone(early, atOnceMs);
});

// A router whose standard error was a pipe to a dead process used to wait for its log to be written, for ever.
test("no process survives a demo that is killed", async () => {
  const program = await demo("--load", "20");
  await program.until(/load .* errors/);
  const children = childrenOf(program.pid);
  expect(children).toHaveLength(4);
  program.kill("SIGKILL");
  await program.ended;
  await untilGone(children);
});

test("a load for some time ends with a table, without errors", async () => {
  const program = start(["demo", ...freePorts, "--load", "20", "--duration", "6s"]);
  const { code, stdout } = await program.ended;
  expect(code).toBe(0);
  const [header = "", row = ""] = stdout.trimEnd().split("\n").slice(-2);
  expect(header).toMatch(/^policy +routers +sharing +engines +requests +errors +ttft mean \(s\) /);
  const cells = Object.fromEntries(row.split(/ {2,}/).map((cell, at) => [header.split(/ {2,}/)[at], cell]));
  expect(cells).toMatchObject({ policy: "predicted_latency", errors: "0" });
  expect(Number(cells.requests)).toBeGreaterThan(5);
  expect(Number(cells["ttft mean (s)"])).toBeGreaterThan(0);
});

// The printed request used to name the model of the simulated engines, whatever the given ones serve.
test("with engines of one's own the printed request names a model that they serve", async () => {
  const urls = await engines({ engines: 2, models: ["my-model"], speed: 50 });
  const program = await demo(...urls.flatMap((url) => ["--engine", url]));
  expect(program.stdout()).toContain('"model": "my-model"');
  expect(await sendPrintedRequest(program.stdout())).toMatch(/data: \[DONE\]\n\n$/);
  expect(childrenOf(program.pid)).toHaveLength(3);
  program.killGroup("SIGINT");
  expect((await program.ended).code).toBe(0);
});

test("a process that dies takes the demo with it, with exit code 1", async () => {
  const program = await demo();
  const [first = 0, second = 0] = childrenOf(program.pid);
  process.kill(first, "SIGKILL");
  const { code, stderr } = await program.ended;
  expect(code).toBe(1);
  expect(stderr).toContain("a demo process exited; stopping the others");
  await untilGone([second]);
});

test("a router that is killed leaves the others to serve; the last one takes the demo with it", async () => {
  const program = await demo("--engines", "1", "--routers", "2");
  const [, first = 0, second = 0] = childrenOf(program.pid);
  process.kill(first, "SIGKILL");
  const [, url = ""] = await program.until(/the router at (\S+) is gone; 1 go on/);
  const urls = [...program.stdout().matchAll(/^router +(\S+)/gm)].map(([, found = ""]) => found);
  expect(urls[0]).toBe(url);
  expect((await fetch(`${urls[1]}/readyz`)).status).toBe(200);
  process.kill(second, "SIGKILL");
  expect((await program.ended).code).toBe(1);
});

test("engines that fetch KV blocks from each other: questions on one document move to the engine that is free", async () => {
  const program = await demo("--kv-pull", "--engines", "2", "--routers", "2", "--load", "0");
  await program.until(/another engine fetched the blocks/);
  const rows = program
    .stdout()
    .split("\n")
    .filter((line) => /^(the document|question \d)/.test(line));
  expect(rows).toHaveLength(9);
  const engineOf = (row: string): string | undefined => /127\.0\.0\.1:\d+/.exec(row)?.[0];
  const holder = engineOf(rows[0]!);
  const moved = rows.filter((row) => row.includes("fetched"));
  expect(moved.length).toBeGreaterThan(0);
  for (const row of moved) {
    expect(engineOf(row)).not.toBe(holder);
    expect(row).toMatch(new RegExp(`fetched 13,\\d{3} tokens from ${holder}: \\d+ ms beside \\d+ to compute$`));
  }
  const children = childrenOf(program.pid);
  program.killGroup("SIGINT");
  expect((await program.ended).code).toBe(0);
  await untilGone(children, atOnceMs);
});
