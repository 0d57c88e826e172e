import { expect, test } from "vitest";
import { registerPrograms } from "../src/commands/programs.ts";
import { runCommand } from "./run-command.ts";
import { temporaryAdmin } from "./temporary.ts";

const program = {
  ...{
    name: "0a1b2c3d",
    parent: null,
    answerEnd: "tool_calls",
    model: "m",
    source: "header:x-claude-code-session-id",
    tenant: "team",
    state: "running",
  },
  ...{ engine: "engine-a", queued: 0, running: 1, steps: 12, failed: 1, contextTokens: 48_000, cachedShare: 0.9512 },
  ...{ computedTokens: 21_000, outputTokens: 900, queuedMs: 1_250, longestQueuedMs: 900, ageMs: 90_000, idleMs: 400 },
};
const fresh = {
  ...program,
  name: "11111111",
  state: "queued",
  engine: null,
  cachedShare: null,
  tenant: null,
  parent: "0a1b2c3d",
  answerEnd: null,
  source: "",
};

const pauses = [
  { source: "header:x-claude-code-session-id", answerEnd: "tool_calls", count: 80, p50Ms: 400, p95Ms: 9_500 },
];

const routerWith = (programs: readonly object[], counts = { queued: 1, running: 1, idle: 0, ended: 0 }) =>
  temporaryAdmin({ programs, counts, pauses });

test("a line for each program, with a dash for what is not known", async () => {
  const { admin, seen } = await routerWith([program, fresh]);
  const { stdout, stderr, exitCode, error } = await runCommand(registerPrograms, "programs", "--admin", admin);
  expect([error, exitCode, stderr]).toEqual([undefined, undefined, ""]);
  expect(seen.map(({ method, path }) => `${method} ${path}`)).toEqual(["GET /admin/programs"]);
  const [summary, , header, first, second] = stdout.split("\n");
  const cells = (line = "") => line.split(/ {2,}/).map((cell) => cell.trim());
  expect(summary).toBe("2 programs: 1 queued, 1 running, 0 idle, 0 ended");
  expect(cells(header)).toEqual([
    ...[
      "program",
      "parent",
      "state",
      "model",
      "engine",
      "steps",
      "failed",
      "last end",
      "context",
      "cached (%)",
      "computed",
    ],
    ...["queued (s)", "longest (s)", "idle (s)", "known by", "tenant"],
  ]);
  expect(cells(first)).toEqual([
    ...[
      "0a1b2c3d",
      "-",
      "running",
      "m",
      "engine-a",
      "12",
      "1",
      "tool_calls",
      "48000",
      "95.1",
      "21000",
      "1.3",
      "0.9",
      "0.4",
    ],
    ...["header:x-claude-code-session-id", "team"],
  ]);
  expect(cells(second).slice(1, 10)).toEqual(["0a1b2c3d", "queued", "m", "-", "12", "1", "-", "48000", "-"]);
  expect(stdout.split("\n").slice(5).map(cells)).toEqual([
    [""],
    ["pauses after", "p50 (s)", "p95 (s)", "count", "known by"],
    ["tool_calls", "0.4", "9.5", "80", "header:x-claude-code-session-id"],
    [""],
  ]);
});

test("the latest twenty; all with --all", async () => {
  const many = Array.from({ length: 25 }, (_, at) => ({ ...program, name: `${10_000_000 + at}` }));
  const { admin } = await routerWith(many, { queued: 0, running: 25, idle: 5, ended: 0 });
  const few = await runCommand(registerPrograms, "programs", "--admin", admin);
  expect(few.stdout).toMatch(/^30 programs: .*, the latest 20 shown\n/);
  expect(few.stdout.trimEnd().split("\n")).toHaveLength(26);
  const all = await runCommand(registerPrograms, "programs", "--all", "--admin", admin);
  expect(all.stdout.trimEnd().split("\n")).toHaveLength(31);
});

test("none, and why; the answer itself with --json", async () => {
  const { admin } = await routerWith([], { queued: 0, running: 0, idle: 0, ended: 0 });
  const { stdout } = await runCommand(registerPrograms, "programs", "--admin", admin);
  expect(stdout).toMatch(/^no program: .* session key/);
  const json = await runCommand(registerPrograms, "programs", "--json", "--admin", admin);
  expect(JSON.parse(json.stdout)).toMatchObject({ programs: [], counts: { idle: 0 } });
});
