import { expect, test } from "vitest";
import { registerEngines } from "../src/commands/engines.ts";
import { registerStatus } from "../src/commands/status.ts";
import { isUsageRefusal, runCommand } from "./run-command.ts";
import { type SeenRequest, temporaryAdmin, temporaryServer } from "./temporary.ts";

const status = {
  ready: true,
  reasons: [],
  version: "0.1.0",
  settings: "0a1b2c3d",
  draining: false,
  inFlight: 7,
  totals: { requests: 1_011, answered: 1_000, refused: 7, failed: 2, cut: 1, cancelled: 1 },
  goodput: [
    { model: "tiny", class: "chat", met: 990, missed: 10, ttftMs: 500, tpotMs: 30 },
    { model: "big", class: "", met: 1, missed: 1, ttftMs: null, tpotMs: null },
    { model: "", class: "", met: 0, missed: 2, ttftMs: null, tpotMs: null },
  ],
  engines: 3,
  usableEngines: 2,
  troubledEngines: [{ engine: "gpu-3", trouble: "down: 3 failed probes, last: unreachable" }],
  models: ["tiny", "large"],
  mesh: null,
  lastReload: null,
};

test("a router that is ready: its state in a few lines, exit code 0", async () => {
  const { admin } = await temporaryAdmin(status);
  const { stdout, exitCode } = await runCommand(registerStatus, "status", "--admin", admin);
  expect(stdout).toBe(
    "ready\nversion   0.1.0, settings 0a1b2c3d\nengines   2 of 3 usable\n" +
      "trouble   gpu-3 down: 3 failed probes, last: unreachable\nmodels    tiny, large\nin flight 7\n" +
      "requests  1000 answered, 7 refused, 2 failed, 1 cut, 1 cancelled by their clients\n" +
      "goodput   99.0 % of 1000 requests (tiny, class chat; 500ms to the first token, 30ms per token after it)\n" +
      "goodput   50.0 % of 2 requests (big; no objectives)\n" +
      "goodput   2 more requests were refused before their model was known\n",
  );
  expect(exitCode).toBeUndefined();
});

test("one that is not: every reason, and exit code 1, also as JSON", async () => {
  const given = { ...status, ready: false, reasons: ["no engine is usable", "draining"], models: [] };
  const { admin } = await temporaryAdmin(given);
  const people = await runCommand(registerStatus, "status", "--admin", admin);
  expect(people.stdout).toMatch(/^not ready: no engine is usable; draining\n[\s\S]*models {4}none\n/);
  expect(people.exitCode).toBe(1);
  const programs = await runCommand(registerStatus, "status", "--admin", admin, "--json");
  expect([JSON.parse(programs.stdout), programs.exitCode]).toEqual([given, 1]);
});

test("what became of the last reload, where it matters", async () => {
  const shown = async (lastReload: object) => {
    const { admin } = await temporaryAdmin({ ...status, lastReload });
    return (await runCommand(registerStatus, "status", "--admin", admin)).stdout.split("\n");
  };
  const lines = await shown({ applied: ["policy.name"], needsRestart: [] });
  expect(lines.filter((line) => line.startsWith("config"))).toEqual([]);
  expect((await shown({ applied: [], needsRestart: ["listen.port", "mesh.port"] })).at(-2)).toBe(
    "config    needs a restart: listen.port, mesh.port",
  );
  // Once only the last of 20 lines said it, which `status | head` cut off: a router that is ready looked well.
  const failed = { trigger: "file", atMs: Date.UTC(2026, 10, 29, 19, 41, 7), applied: [], needsRestart: [] };
  expect((await shown({ ...failed, error: { code: "config_invalid", message: "no" } })).slice(0, 2)).toEqual([
    "ready",
    "config    last reload (changed file, 2026-11-29T19:41:07Z) failed, previous configuration in use: no",
  ]);
});

const target = (inFlight: number, signals: object = {}) => ({
  load: { in_flight: inFlight },
  signals: { running: null, waiting: null, kv_use: null, ...signals },
});

const engine = {
  id: "engine-a",
  url: "http://10.0.0.1:8000",
  role: "both",
  assigned_role: null,
  region: null,
  network_ms: 0.31,
  state: "up",
  reason: "answers",
  draining: false,
  models: ["tiny"],
  breaker: { state: "closed" },
  oldest_wait_ms: null,
  unresponsive_ms: null,
  last_minute: { first_tokens: 0, ttft_ms: null, tpot_ms: null },
  trouble: null,
  targets: [target(3, { running: 2, waiting: 0, kv_use: 0.256 })],
};

const cellsOf = (stdout: string): string[][] =>
  stdout
    .trimEnd()
    .split("\n")
    .slice(1)
    .map((line) => line.split(/ {2,}/).map((cell) => cell.trim()));

test.each([
  {
    what: "up",
    given: {},
    cells: ["engine-a", "up", "closed", "3", "-", "-", "-", "2", "0", "25.6", "both", "0.3", "tiny", "-"],
  },
  {
    what: "draining",
    given: { draining: true },
    cells: ["engine-a", "up, draining", "closed", "3", "-", "-", "-", "2", "0", "25.6", "both", "0.3", "tiny", "-"],
  },
  {
    what: "down, with its reason",
    given: { state: "down", reason: "connect ECONNREFUSED", breaker: { state: "open" } },
    cells: [
      "engine-a",
      "down",
      "open",
      "3",
      "-",
      "-",
      "-",
      "2",
      "0",
      "25.6",
      "both",
      "0.3",
      "tiny",
      "connect ECONNREFUSED",
    ],
  },
  {
    what: "of several ranks: what is in flight is added up",
    given: { targets: [target(3), target(4), target(5)] },
    cells: ["engine-a", "up", "closed", "12", "-", "-", "-", "-", "-", "-", "both", "0.3", "tiny", "-"],
  },
  {
    what: "of which nothing is known yet",
    given: { state: "unknown", reason: "not asked yet", models: null, targets: [], network_ms: null },
    cells: ["engine-a", "unknown", "closed", "0", "-", "-", "-", "-", "-", "-", "both", "-", "-", "not asked yet"],
  },
  {
    what: "that hangs: for how long, and what it did before",
    given: {
      ...{ oldest_wait_ms: 94_500, unresponsive_ms: 94_000, trouble: "unresponsive for 94 s: no sign of work" },
      last_minute: { first_tokens: 7, ttft_ms: 812, tpot_ms: 21.4 },
    },
    cells: [
      ...["engine-a", "up", "closed", "3", "94.5", "812", "21.4", "2", "0", "25.6", "both", "0.3", "tiny"],
      "unresponsive for 94 s: no sign of work",
    ],
  },
  {
    what: "of a region far away",
    given: { region: "us", network_ms: 74.26 },
    cells: ["engine-a", "up", "us", "closed", "3", "-", "-", "-", "2", "0", "25.6", "both", "74.3", "tiny", "-"],
  },
  {
    what: "that serves several models, its cache empty",
    given: { models: ["a", "b"], targets: [target(0, { kv_use: 0 })] },
    cells: ["engine-a", "up", "closed", "0", "-", "-", "-", "-", "-", "0.0", "both", "0.3", "a, b", "-"],
  },
])("an engine $what", async ({ given, cells }) => {
  const { admin } = await temporaryAdmin({ engines: [{ ...engine, ...given }] });
  const { stdout } = await runCommand(registerEngines, "engines", "list", "--admin", admin);
  expect(cellsOf(stdout)).toEqual([cells]);
});

test("`list` need not be written, and as JSON the engines are a list", async () => {
  const { admin, seen } = await temporaryAdmin({ engines: [engine] });
  const { stdout } = await runCommand(registerEngines, "engines", "--admin", admin, "--json");
  expect(JSON.parse(stdout)).toEqual([engine]);
  expect(seen.map(({ method, path }) => `${method} ${path}`)).toEqual(["GET /admin/engines"]);
});

test.each([
  { command: "drain", draining: true },
  { command: "undrain", draining: false },
])("$command changes one engine, whatever its id is, and prints it", async ({ command, draining }) => {
  const { admin, seen } = await temporaryAdmin({ ...engine, draining });
  const { stdout } = await runCommand(registerEngines, "engines", command, "a/b c?d", "--admin", admin);
  expect(seen).toMatchObject([
    { method: "PATCH", path: "/admin/engines/a%2Fb%20c%3Fd", body: JSON.stringify({ draining }) },
  ]);
  expect(cellsOf(stdout)[0]![1]).toBe(draining ? "up, draining" : "up");
});

test("add sends what was written, and prints the engine", async () => {
  const { admin, seen } = await temporaryAdmin({ ...engine, state: "unknown" });
  const flags = [
    "--id",
    "a",
    "--model",
    "m",
    "--model",
    "n",
    "--role",
    "prefill",
    "--weight",
    "2",
    "--label",
    "zone=x=y",
  ];
  const { stdout } = await runCommand(registerEngines, "engines", "add", "http://a:1", ...flags, "--admin", admin);
  expect(seen.map(({ method, path }) => `${method} ${path}`)).toEqual(["POST /admin/engines"]);
  expect(JSON.parse(seen[0]!.body)).toEqual({
    ...{ url: "http://a:1", id: "a", models: ["m", "n"], role: "prefill", weight: 2 },
    labels: { zone: "x=y" },
  });
  expect(cellsOf(stdout)[0]!.slice(0, 2)).toEqual(["engine-a", "unknown"]);
});

test("add sends no more than was written, and refuses a label without a value", async () => {
  const { admin, seen } = await temporaryAdmin(engine);
  await runCommand(registerEngines, "engines", "add", "http://a:1", "--admin", admin);
  expect(seen.map(({ body }) => body)).toEqual(['{"url":"http://a:1"}']);
  const { error } = await runCommand(registerEngines, "engines", "add", "http://a:1", "--label", "x", "--admin", admin);
  expect(String(error)).toContain("NAME=VALUE");
  expect(seen).toHaveLength(1);
});

/** `add URL` worked where `remove URL` was not found: engines have ids of their own. */
test("an engine is removed and drained by its URL as well, which another one's does not stand for", async () => {
  const seen: SeenRequest[] = [];
  const admin = await temporaryServer((request) => {
    seen.push(request);
    const { response, method } = request;
    if (method === "DELETE") response.writeHead(204).end();
    else response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ ...engine, ...listed }));
  });
  const listed = {
    engines: [
      { ...engine, id: "b", url: "http://b:1" },
      { ...engine, id: "mine", url: "http://a:1" },
    ],
  };
  const removed = await runCommand(registerEngines, "engines", "remove", "http://a:1/", "--admin", admin);
  expect(removed.stdout).toBe("mine removed\n");
  await runCommand(registerEngines, "engines", "drain", "http://b:1", "--admin", admin);
  await runCommand(registerEngines, "engines", "remove", "http://c:1", "--admin", admin);
  expect(seen.filter(({ method }) => method !== "GET").map(({ method, path }) => `${method} ${path}`)).toEqual([
    "DELETE /admin/engines/mine",
    "PATCH /admin/engines/b",
    "DELETE /admin/engines/http%3A%2F%2Fc%3A1",
  ]);
});

test("remove takes an engine out, and says so", async () => {
  const seen: SeenRequest[] = [];
  const admin = await temporaryServer((request) => {
    seen.push(request);
    request.response.writeHead(204).end();
  });
  const people = await runCommand(registerEngines, "engines", "remove", "a/b", "--admin", admin);
  expect(people.stdout).toBe("a/b removed\n");
  const programs = await runCommand(registerEngines, "engines", "remove", "a/b", "--admin", admin, "--json");
  expect(JSON.parse(programs.stdout)).toEqual({ removed: "a/b" });
  expect(seen[0]).toMatchObject({ method: "DELETE", path: "/admin/engines/a%2Fb", body: "" });
});

test.each([{ written: ["engines", "drain"] }, { written: ["engines", "drain", "a", "b"] }])(
  "$written names no engine, or two: refused",
  async ({ written }) => {
    expect(isUsageRefusal((await runCommand(registerEngines, ...written)).error)).toBe(true);
  },
);
