import { chmodSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { createServer } from "node:net";
import { dirname } from "node:path";
import { startEngineSim } from "@espalier/engine-sim";
import { type CompiledConfig, createRouter, loadConfig, type RouterStatus } from "@espalier/server";
import { createRecordingLogger, waitFor } from "@espalier/testing";
import { shippedModelFolder } from "@espalier/tokenizer";
import { describe, expect, onTestFinished, test } from "vitest";
import { withHttpClient } from "../src/cli/admin-client.ts";
import { describeChecks, registerDoctor } from "../src/commands/doctor.ts";
import { type Check, checkClock, runChecks } from "../src/doctor/check.ts";
import { engineChecks } from "../src/doctor/engine-checks.ts";
import type { Examined, RunningRouter } from "../src/doctor/examined.ts";
import { checkMemory, checkSecret, machineChecks } from "../src/doctor/machine-checks.ts";
import { askRunning, runningChecks } from "../src/doctor/router-checks.ts";
import { runCommand } from "./run-command.ts";
import { temporaryAdmin, temporaryFile, temporaryServer } from "./temporary.ts";

/** Ports that are free for sure, unless a test is about ports. */
const anyPorts = ["--listen-port", "0", "--admin-port", "0"];

async function examine(...flags: readonly string[]) {
  const { stdout, error, exitCode } = await runCommand(registerDoctor, "doctor", "--json", ...flags);
  expect(error).toBeUndefined();
  const checks = JSON.parse(stdout) as readonly Check[];
  expect(exitCode).toBe(checks.every(({ status }) => status !== "fail") ? undefined : 1);
  for (const one of checks)
    expect(Object.keys(one)).toEqual(["check", "target", "status", "message", "setting", "fix"]);
  return checks;
}

/** What runs beside the router, as `doctor` finds it. */
const checkRunning = async (router: RunningRouter) =>
  withHttpClient(async (http) =>
    runChecks(runningChecks, { running: await askRunning(router, http), version: "1.0.0" }),
  );

const of = (checks: readonly Check[], check: string) => checks.filter((one) => one.check === check);

async function startSims(options: Parameters<typeof startEngineSim>[0] = {}): Promise<readonly string[]> {
  const sim = await startEngineSim({ speed: 1_000, models: ["tiny"], tokenizer: "espalier-tiny", ...options });
  onTestFinished(() => sim.stop());
  return sim.engines.map(({ url }) => url);
}

/** A router that runs. */
async function startRouter(text: object) {
  const config = loadConfig({ file: { path: "r.yaml", text: JSON.stringify({ listen: { port: 0 }, ...text }) } });
  const router = createRouter({
    ...{ config, logger: createRecordingLogger(), version: "0.1.0" },
    dashboard: { files: async () => [] },
  });
  await router.start();
  onTestFinished(() => router.stop());
  return router;
}

test("an engine whose entry has other ranks than it publishes KV events of: a failure that names both", async () => {
  const behaviours = ["vllm-0.32.0:second-node-ranks"];
  const [url] = await startSims({ kvEvents: { dialect: "vllm-0.32" }, behaviours });
  const examineEntry = (entry: object) => {
    const config = temporaryFile("ranks.json", JSON.stringify({ engines: [{ url, ...entry }] }));
    return examine("--config", config, ...anyPorts);
  };
  expect(of(await examineEntry({ "first-rank": 4 }), "kv-events").every(({ status }) => status === "pass")).toBe(true);
  // The events of rank 4 are read all the same.
  expect(of(await examineEntry({ ranks: 2, "first-rank": 4 }), "kv-events")).toMatchObject([
    {
      ...{ status: "fail", target: url, message: "publishes KV events of ranks 4; configured: 2 from 4" },
      setting: "engines[0].ranks",
    },
    { status: "pass" },
  ]);
  expect(of(await examineEntry({ "first-rank": 0 }), "kv-events")).toMatchObject([
    { status: "fail" },
    { status: "pass" },
  ]);
});

test("a whole fleet in order: ticks only, for engines, clocks, events, versions, tokenizer and this machine", async () => {
  const engines = await startSims({ engines: 2, kvEvents: { dialect: "vllm-0.32" } });
  const flags = engines.flatMap((url) => ["--engine", url]);
  const checks = await examine(...flags, ...anyPorts, "--tokenizer", shippedModelFolder());
  expect(checks.filter(({ status }) => status !== "pass")).toEqual([]);
  expect(of(checks, "engine").map(({ target, message }) => [target, message])).toEqual(
    engines.map((url) => [url, expect.stringMatching(/^serves tiny, version \d/)]),
  );
  expect(of(checks, "clock")).toHaveLength(2);
  // Their sockets accept connections, those of the replay as well.
  expect(of(checks, "kv-events").map(({ message }) => message)).toEqual(Array(2).fill("connected, with replay: idle"));
  expect(of(checks, "versions")).toMatchObject([
    { target: "tiny", message: expect.stringContaining("all 2 engines run") },
  ]);
  expect(of(checks, "tokenizer")).toMatchObject([
    { target: `tiny at ${engines[0]}`, message: expect.stringMatching(/^\d+ prompts match the engine's tokens$/) },
    // Fewer of them.
    { target: `tiny at ${engines[1]}`, message: expect.stringMatching(/^\d+ prompts match the engine's tokens$/) },
  ]);
});

describe("every failed check tells how to fix it", () => {
  test("engines that are gone, are none, ask for a key, or serve another model", async () => {
    const [engine] = await startSims();
    const [locked] = await startSims({ apiKey: "a-key" });
    const other = await temporaryServer(({ response }) => response.writeHead(404).end("no"));
    const text = JSON.stringify({
      ...{ listen: { port: 0 }, admin: { port: 0 } },
      engines: [{ url: "http://127.0.0.1:1" }, { url: other }, { url: locked }, { url: engine, models: ["large"] }],
    });
    const checks = of(await examine("--config", temporaryFile("r.json", text)), "engine");
    expect(checks.map(({ status }) => status)).toEqual(Array(4).fill("fail"));
    expect(checks.map(({ message }) => message)).toEqual([
      expect.stringContaining("ECONNREFUSED"),
      "/health answers 404",
      "requires an API key (401)",
      expect.stringMatching(/^serves tiny, version .*, not large$/),
    ]);
    expect(checks[2]!.fix).toContain("engine-api-key");
  });

  test("a URL that ends in /v1, as clients write it, is named as the fault", async () => {
    const [engine] = await startSims();
    const [check] = of(await examine("--engine", `${engine}/v1`), "engine");
    expect([check?.status, check?.fix]).toEqual(["fail", expect.stringContaining("remove /v1")]);
  });

  test("an engine's key is that of its pool", async () => {
    const [locked] = await startSims({ apiKey: "a-key" });
    const pools = [{ models: ["*"], "engine-api-key": "a-key" }];
    const text = JSON.stringify({ listen: { port: 0 }, admin: { port: 0 }, engines: [locked], pools });
    expect(of(await examine("--config", temporaryFile("r.json", text)), "engine")).toMatchObject([{ status: "pass" }]);
  });

  test("an event socket that takes no connection", async () => {
    const [engine] = await startSims();
    const events = { endpoint: "tcp://127.0.0.1:1" };
    const text = JSON.stringify({
      listen: { port: 0 },
      admin: { port: 0 },
      engines: [{ url: engine, "kv-events": events }],
    });
    const checks = await examine("--config", temporaryFile("r.json", text), "--tokenizer", shippedModelFolder());
    expect(of(checks, "kv-events")).toMatchObject([
      {
        target: new URL(engine!).host,
        status: "fail",
        message: expect.stringMatching(/^tcp:\/\/127\.0\.0\.1:1: .*ECONNREFUSED/),
        setting: "engines[0].kv-events.endpoint",
      },
    ]);
  });

  test("a tokenizer that is another one than the engine's, and engines of two versions", async () => {
    const [bytes] = await startEngineSim({ models: ["tiny"] }).then((sim) => {
      onTestFinished(() => sim.stop());
      return sim.engines.map(({ url }) => url);
    });
    const old = await temporaryServer(({ path, response }) => {
      const answers: Record<string, object> = {
        "/v1/models": { data: [{ id: "tiny" }] },
        "/version": { version: "0.1.2" },
        "/health": {},
      };
      response.writeHead(answers[path] ? 200 : 404).end(JSON.stringify(answers[path] ?? {}));
    });
    const checks = await examine("--engine", bytes!, "--engine", old, ...anyPorts, "--tokenizer", shippedModelFolder());
    expect(of(checks, "tokenizer")).toMatchObject([
      {
        status: "fail",
        message: expect.stringMatching(/^\d+ of \d+ prompts match/),
        fix: expect.stringContaining("verify-tokenizer"),
      },
      { target: `tiny at ${old}`, status: "warn", message: expect.stringContaining("no /tokenize") },
    ]);
    expect(of(checks, "versions")).toMatchObject([{ status: "fail", message: expect.stringContaining("0.1.2") }]);
  });

  test("a port that another program has", async () => {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    onTestFinished(() => void server.close());
    const { port } = server.address() as AddressInfo;
    const taken = await examine("--listen-host", "127.0.0.1", "--listen-port", String(port), "--admin-port", "0");
    expect(of(taken, "listeners")).toMatchObject([
      {
        target: `127.0.0.1:${port}`,
        status: "fail",
        message: expect.stringContaining("EADDRINUSE"),
        setting: "listen.port (--listen-port)",
      },
    ]);
  });

  test("a configuration that is not valid ends it there", async () => {
    const checks = await examine("--policy", "nearest");
    expect(checks.map(({ check }) => check)).toEqual(["node", "open-files", "configuration"]);
    expect(checks[2]).toMatchObject({ status: "fail", message: expect.stringContaining("nearest") });
  });

  test("names that do not resolve, an engines file that is not there, routers that are not there", async () => {
    const seeds = ["--mesh-seed", "no-such-name.invalid:7946", "--mesh-seed", "127.0.0.1:1"];
    const checks = await examine(...anyPorts, "--mesh-port", "0", ...seeds, "--engines-file", "/nowhere/engines.yaml");
    expect(of(checks, "router")).toMatchObject([
      { target: "no-such-name.invalid", status: "fail" },
      { target: "127.0.0.1:1", status: "fail", message: "unreachable (refused)" },
    ]);
    expect(of(checks, "discovery")).toMatchObject([
      { status: "fail", message: expect.stringContaining("ENOENT"), setting: "engines-file (--engines-file)" },
    ]);
  });
});

describe("what a router reads at its start", () => {
  const withFiles = (text: object) =>
    temporaryFile("r.json", JSON.stringify({ listen: { port: 0 }, admin: { port: 0 }, ...text }));

  test("certificates and plugins that are not there: a failure that names their setting", async () => {
    const tls = { "cert-file": "/nowhere/cert.pem", "key-file": "/nowhere/key.pem" };
    const uncertified = await examine("--config", withFiles({ listen: { port: 0, tls } }));
    expect(of(uncertified, "start")).toMatchObject([
      {
        ...{ status: "fail", setting: "listen.tls.cert-file (--listen-tls-cert-file)" },
        message: expect.stringContaining("/nowhere/cert.pem"),
      },
    ]);
    const unplugged = await examine("--config", withFiles({ plugins: ["/nowhere/plugin.mjs"] }));
    expect(of(unplugged, "start")).toMatchObject([{ status: "fail", setting: "plugins (--plugins)" }]);
  });

  test("a file with a secret that every user can read is a warning; one of its own is none", async () => {
    const secret = temporaryFile("secret", "0f8c21d97be4a65310ffd2");
    const config = withFiles({ mesh: { port: 0, secret: `\${file:${secret}}` } });
    chmodSync(secret, 0o600);
    expect(of(await examine("--config", config), "secrets").map(({ target }) => target)).toEqual(["mesh.secret"]);
    chmodSync(secret, 0o644);
    expect(of(await examine("--config", config), "secrets")).toMatchObject([
      { target: "mesh.secret", status: "pass" },
      { target: secret, status: "warn", fix: expect.stringContaining(`chmod 640 ${secret}`) },
    ]);
  });

  test("each problem of a configuration is a failure of its own, with its setting", async () => {
    const checks = await examine("--config", withFiles({ health: { timeout: "soon" }, policy: "nearest" }));
    expect(of(checks, "configuration").map(({ setting }) => setting)).toEqual([
      ...["health.timeout (--health-timeout)", "policy.name (--policy)"],
    ]);
  });

  test("a tokenizer that does not load, with no engine to compare it with", async () => {
    const folder = dirname(temporaryFile("tokenizer.json", "{}"));
    const [check] = of(await examine(...anyPorts, "--tokenizer", folder), "tokenizer");
    expect(check).toMatchObject({ target: folder, status: "fail", setting: "tokenizers[0].path (--tokenizer)" });
  });

  test("Redis that does not answer", async () => {
    const [redis] = of(await examine(...anyPorts, "--mesh-redis-url", "redis://user:hidden@127.0.0.1:1"), "redis");
    expect(redis).toMatchObject({ status: "fail", setting: "mesh.redis-url (--mesh-redis-url)" });
    expect(JSON.stringify(redis)).not.toContain("hidden");
  });
});

/*
 * A rank whose publisher is silent looks like an idle one, and its share of the cache is predicted for ever.
 */
test("a silent rank beside others that publish, and an engine that worked without events, are warnings", async () => {
  const targets = (tokens: number) =>
    [0, 1].map((rank) => ({ key: `e#${rank}`, rank, signals: { promptTokensTotal: tokens } }));
  const feed = (rank: number, lastSequence: number | null) => ({
    ...{ target: `e#${rank}`, endpoint: `tcp://127.0.0.1:${5_557 + rank}`, mode: "connect", messages: 0 },
    ...{ state: lastSequence === null ? "partial" : "live", reason: "complete", lastSequence },
  });
  const found = async (tokens: number, feeds: readonly object[]) => {
    const engine = { id: "e", url: "http://127.0.0.1:1", state: "up", targets: targets(tokens) };
    const fleet = { fleet: { engines: [engine] }, feeds, http: () => Promise.reject(new Error("not asked")) };
    const rows = engineChecks.filter(({ name }) => name === "kv-events");
    const config = loadConfig({ flags: { "--engine": ["http://127.0.0.1:1"] } });
    return (await runChecks(rows, { config, fleet } as unknown as Examined)).map(({ status, message }) => [
      status,
      message,
    ]);
  };
  expect(await found(900, [feed(0, 7), feed(1, null)])).toEqual([
    ["pass", "connected: events come"],
    ["warn", expect.stringContaining("silent, while other ranks")],
  ]);
  expect(await found(900, [feed(0, null)])).toEqual([["warn", expect.stringContaining("has read 900 tokens")]]);
  expect(await found(0, [feed(0, null)])).toEqual([["pass", expect.stringContaining("idle")]]);
});

describe("beside routers that run", () => {
  const secret = "a long secret of 30 letters, ok";
  const mesh = (id: string, seeds: readonly string[] = [], over: object = {}) => ({
    mesh: { backend: "peers", "router-id": id, port: 0, seeds, secret, ...over },
    admin: { port: 0 },
  });

  async function startTwo(over: object = {}) {
    const [engine] = await startSims();
    const first = await startRouter({ ...mesh("r1"), engines: [engine] });
    const second = await startRouter({ ...mesh("r2", [first.meshAddress!]), engines: [engine], ...over });
    const peersOf = async () => (await (await fetch(`${first.adminUrl}/admin/status`)).json()) as { peers: object[] };
    await waitFor(async () => (await peersOf()).peers.length === 1, { what: "the other router's admin address" });
    const { port } = new URL(first.adminUrl);
    const flags = ["--admin-port", port, "--listen-port", "0", "--mesh-port", "0", "--mesh-seed", second.meshAddress!];
    return { first, second, engine: engine!, flags };
  }

  test("a feed whose event socket cannot be bound: a cross with the reason and its target", async () => {
    const [engine] = await startSims();
    const { port } = new URL(await temporaryServer(() => {}));
    const listen = `tcp://127.0.0.1:${port}`;
    const router = await startRouter({ admin: { port: 0 }, engines: [engine], "kv-events": { listen } });
    const { port: adminPort } = new URL(router.adminUrl);
    const flags = ["--admin-port", adminPort, "--listen-port", "0", "--engine", engine!];
    const crosses = async () => of(await examine(...flags), "feeds").filter(({ status }) => status !== "pass");
    await waitFor(async () => (await crosses()).length > 0, { what: "the cross" });
    expect(await crosses()).toMatchObject([
      { target: new URL(engine!).host, message: "KV events unusable: Address already in use" },
    ]);
  });

  test("the same secret and configuration: ticks, and engines that only the router knows are checked", async () => {
    const { first, second, engine, flags } = await startTwo();
    const checks = await examine(...flags, "--mesh-secret", secret);
    expect(checks.filter(({ status }) => status === "fail")).toEqual([]);
    expect(of(checks, "listeners")).toMatchObject([{ message: `in use by the running router at ${first.url}` }]);
    expect(of(checks, "engine")).toMatchObject([{ target: engine }]);
    expect(of(checks, "router")).toMatchObject([
      { target: second.meshAddress, message: expect.stringContaining("r2: cluster") },
    ]);
    expect(of(checks, "settings")).toMatchObject([{ target: expect.stringContaining("r2 at "), status: "pass" }]);
    expect(of(checks, "clock").map(({ target }) => target)).toEqual([
      ...[engine, first.adminUrl, expect.stringContaining("r2 at ")],
    ]);
    expect(of(checks, "version").map(({ status }) => status)).toEqual(["pass", "pass"]);
    expect(of(checks, "secrets")).toMatchObject([{ status: "pass", message: "set, 31 characters" }]);
  });

  test("--admin names the router, whatever the configuration's admin address", async () => {
    const { first } = await startTwo();
    const checks = await examine(...anyPorts, "--admin", `${first.adminUrl}/`);
    expect(of(checks, "listeners")).toMatchObject([{ message: `in use by the running router at ${first.url}` }]);
    expect(of(checks, "version")).toHaveLength(2);
    const [missing] = of(await examine(...anyPorts, "--admin", "http://127.0.0.1:1"), "running");
    expect(missing).toMatchObject({ target: "http://127.0.0.1:1", status: "fail", message: "no router answers" });
  });

  test("another secret, another policy", async () => {
    const { flags } = await startTwo({ policy: "random" });
    const checks = await examine(...flags, "--mesh-secret", "another one of so many letters");
    expect(of(checks, "router")).toMatchObject([
      { status: "fail", message: expect.stringContaining("link refused"), fix: expect.stringContaining("mesh.secret") },
    ]);
    expect(of(checks, "settings")).toMatchObject([{ status: "fail", message: expect.stringContaining("policy") }]);
    expect(JSON.stringify(checks)).not.toContain(secret);
  });

  test("an admin key that is not given", async () => {
    const [engine] = await startSims();
    const router = await startRouter({ engines: [engine], admin: { port: 0, key: "the-admin-key" } });
    const flags = ["--admin-port", new URL(router.adminUrl).port, "--listen-port", "0", "--engine", engine!];
    expect(of(await examine(...flags), "running")).toMatchObject([
      { status: "fail", message: "requires its admin key" },
    ]);
    expect(of(await examine(...flags, "--key", "the-admin-key"), "version")).toMatchObject([{ status: "pass" }]);
  });
});

test.each([
  { node: "22.22.0", status: "fail" },
  { node: "24.0.0", status: "pass" },
  { node: "26.1.0", status: "pass" },
])("Node $node: $status", async ({ node, status }) => {
  expect(await runChecks(machineChecks, { node, openFiles: 65_536 })).toMatchObject([
    { check: "node", status },
    { check: "open-files", status: "pass" },
  ]);
});

test("a router that shares fewer estimates or entries of the registry than it has: a cross for each kind", async () => {
  const { admin: adminUrl } = await temporaryAdmin({ feeds: [], engines: [] });
  const mesh = { droppedEstimates: [{ kind: "times", count: 3 }], droppedEntries: [{ kind: "drain", count: 2 }] };
  const status = { version: "1.0.0", peers: [], mesh } as unknown as RouterStatus;
  const checks = await checkRunning({ adminUrl, key: undefined, status });
  expect(of(checks, "estimates")).toMatchObject([
    { target: "times", status: "fail", message: expect.stringContaining("3 shared estimates dropped") },
  ]);
  expect(of(checks, "registry")).toMatchObject([
    { target: "drain", status: "fail", message: expect.stringContaining("2 entries dropped") },
  ]);
});

test("a feed that is not read is none of the usable ones", async () => {
  const feed = (target: string, more: object = {}) => ({ target, state: "live", reason: "complete", ...more });
  const dead = { state: "stale", reason: "connecting" };
  const feeds = [
    feed("a"),
    feed("b", dead),
    feed("c", { unusable: "block size 12" }),
    feed("d", { state: "partial", reason: "gap" }),
  ];
  const { admin: adminUrl } = await temporaryAdmin({ feeds, engines: [] });
  const status = { version: "1.0.0", peers: [] } as unknown as RouterStatus;
  expect(of(await checkRunning({ adminUrl, key: undefined, status }), "feeds")).toMatchObject([
    { status: "fail", target: "c", message: "KV events unusable: block size 12" },
    {
      status: "fail",
      target: "b",
      message: "KV events are not read: stale, connecting",
      fix: expect.stringContaining("start the engine"),
    },
    { status: "pass", message: "KV events of 2 targets are usable; some are incomplete: gap" },
  ]);
});

test("an engine that is unresponsive at any router: a cross, once", async () => {
  const engineOf = (id: string, unresponsive_ms: number | null) => ({
    ...{ id, paused: id === "a" },
    unresponsive_ms,
    trouble: unresponsive_ms && "unresponsive for 40 s",
  });
  const { admin: other } = await temporaryAdmin({ feeds: [], version: "1.0.0", engines: [engineOf("b", 40_000)] });
  const { admin: adminUrl } = await temporaryAdmin({ feeds: [], engines: [engineOf("a", null), engineOf("b", null)] });
  const status = { version: "1.0.0", peers: [{ router: "r2", adminUrl: other }] } as unknown as RouterStatus;
  const running = { adminUrl, key: undefined, status };
  expect(of(await checkRunning(running), "paused")).toMatchObject([{ target: "a", status: "warn" }]);
  expect(of(await checkRunning(running), "answers")).toEqual([
    {
      check: "answers",
      target: "b",
      status: "fail",
      message: "unresponsive for 40 s",
      setting: "engines (--engine)",
      fix: expect.stringContaining("restart the engine"),
    },
  ]);
  const alone = { ...running, status: { ...status, peers: [] } };
  expect(of(await checkRunning(alone), "answers")).toMatchObject([{ status: "pass" }]);
});

test("too few open files: how to raise them", async () => {
  const [, files] = await runChecks(machineChecks, { node: "24.0.0", openFiles: 1_024 });
  expect(files).toMatchObject({
    status: "fail",
    fix: expect.stringContaining("ulimit -n 65536"),
  });
});

test.each([
  { secret: "passpasspasspass", status: "fail" },
  { secret: "aaaaaaaaaaaaaaaaaaaaaaaaaaaa", status: "fail" },
  { secret: "at-least-16-characters", status: "warn" },
  { secret: "0f8c21d97be4a65310ffd2", status: "pass" },
])("the secret $secret: $status, and never printed", ({ secret, status }) => {
  const config = loadConfig({ flags: { "--mesh-seed": ["127.0.0.1:1"], "--mesh-secret": secret } }) as CompiledConfig;
  const checks = checkSecret(config);
  expect(checks).toMatchObject([{ status }]);
  expect(JSON.stringify(checks)).not.toContain(secret);
});

test("clocks: whole seconds and the time of the answer are allowed for", () => {
  const nowMs = Date.parse("2026-01-01T00:01:00Z");
  const there = (seconds: number) => new Date(nowMs + seconds * 1_000).toUTCString();
  const check = (kind: "router" | "engine", date: string | undefined) =>
    checkClock("x", kind, { date, askedWallMs: nowMs - 400, endedWallMs: nowMs })[0]?.status;
  expect([-5, 0, 5].map((seconds) => check("router", there(seconds)))).toEqual(Array(3).fill("pass"));
  expect([-7, 7].map((seconds) => check("router", there(seconds)))).toEqual(["fail", "fail"]);
  // Routers correct for engines' clocks.
  expect([-7, 7].map((seconds) => check("engine", there(seconds)))).toEqual(["warn", "warn"]);
  expect(check("router", undefined)).toBeUndefined();
});

test("bodies in flight that fill the memory: a warning that names the setting", () => {
  const { limits, resume } = loadConfig({ flags: {} });
  const bytes = limits.maxBodyBytesInFlight + resume.maxBytesInFlight;
  const statusAt = (limitBytes: number) => checkMemory({ limits, resume } as CompiledConfig, limitBytes)[0];
  expect(statusAt(bytes + 1)).toMatchObject({ status: "pass" });
  expect(statusAt(bytes)).toMatchObject({
    ...{ status: "warn", setting: "limits.max-body-bytes-in-flight (--limits-max-body-bytes-in-flight)" },
  });
});

test("a check that throws is a failure, one that never ends a warning, and the others are not lost", async () => {
  const rows = [
    { name: "broken", run: () => Promise.reject(new Error("no such thing")) },
    { name: "endless", run: () => new Promise<never>(() => {}) },
    { name: "unasked", applies: () => false, run: () => [] },
    { name: "fine", run: () => [{ target: "", status: "pass", message: "well", setting: null, fix: null } as const] },
  ];
  expect(await runChecks(rows, undefined, 50)).toMatchObject([
    { check: "broken", status: "fail", message: "no such thing" },
    { check: "endless", status: "warn", message: "not finished within 0.05 s" },
    { check: "fine", status: "pass" },
  ]);
});

test("people get a line for each check, one for ticks that say the same, and the count", async () => {
  const passed = { status: "pass", setting: null, fix: null } as const;
  const clock = { check: "clock", ...passed, message: "agrees" };
  const text = describeChecks([
    { check: "node", target: "", ...passed, message: "24.1.0" },
    { ...clock, target: "http://a:1" },
    { ...clock, target: "http://b:1" },
    {
      check: "engine",
      target: "http://a:1",
      status: "fail",
      message: "no answer",
      setting: "engines",
      fix: "start it",
    },
    { check: "metrics", target: "http://b:1", status: "warn", message: "none", setting: null, fix: "switch them on" },
  ]);
  expect(text).toBe(
    "✓ node: 24.1.0\n✓ clock (2): agrees\n✗ engine http://a:1: no answer → engines: start it\n" +
      "! metrics http://b:1: none → switch them on\n\n1 of 5 checks failed, 1 with a warning",
  );
  const { stdout, exitCode } = await runCommand(registerDoctor, "doctor", ...anyPorts);
  expect(stdout).toMatch(
    /^✓ node: [\s\S]*\n! configuration: No engines are configured[\s\S]*checks passed, 1 with a warning\n$/,
  );
  expect(exitCode).toBeUndefined();
});
