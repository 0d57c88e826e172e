import { readFileSync } from "node:fs";
import { sharedPath } from "@espalier/testing";
import { expect, test } from "vitest";
import { temporaryFile } from "./files.ts";
import { childrenOf, run, start, untilGone } from "./program.ts";

test("a fleet in virtual time: one JSON object, the same under the same seed, and a plot", async () => {
  const plot = temporaryFile("plot.svg", "");
  const args = ["sglang-prefix-groups", "--requests", "200", "--routers", "1,2", "--policy", "round_robin,least_work"];
  const once = () => run(["simulate", ...args, "--seeds", "2", "--jobs", "2", "--plot", plot, "--json"]);
  const [first, second] = [await once(), await once()];
  expect([first.code, second.code]).toEqual([0, 0]);
  expect(first.stderr).toMatch(/sglang-prefix-groups █{24} 100\/100 {2}\d+ s {2}12 of 12 runs\n/);
  const { name, params, rows } = JSON.parse(first.stdout);
  expect([name, params.scenario]).toEqual(["simulate", "sglang-prefix-groups"]);
  const combinations = rows.map(({ policy, routers, sharing, seed }: Record<string, unknown>) =>
    [policy, routers, sharing, seed].join(" "),
  );
  expect(combinations).toEqual(
    ["random 1 none", "round_robin 1 none", "round_robin 2 none", "least_work 1 oracle"]
      .concat(["least_work 1 mesh", "least_work 2 mesh"])
      .flatMap((combination) => [`${combination} 1`, `${combination} 2`]),
  );
  for (const row of rows) expect(row).toMatchObject({ requests: 200, errors: 0, engines: 8 });
  const untimed = (text: string) =>
    JSON.parse(text).rows.map(({ wall_s: _, realtime_factor: __, ...row }: Record<string, unknown>) => row);
  expect(untimed(second.stdout)).toEqual(untimed(first.stdout));
  const [, , rotation, , , , oracle, , , , mesh] = rows;
  expect(mesh.oracle_gap_ttft).toBeCloseTo(mesh.ttft_mean_s / oracle.ttft_mean_s, 9);
  expect(mesh.cached_share).toBeGreaterThan(rotation.cached_share);
  expect(oracle.bounds.infinite_cache).toBeGreaterThan(oracle.cached_share - 0.001);
  expect(readFileSync(plot, "utf8")).toMatch(/^<svg .*<\/svg>\n$/s);
});

test("people get a table whose lines come as their runs end", async () => {
  const args = ["rag", "--requests", "60", "--policy", "round_robin", "--links", "delays"];
  const { code, stdout } = await run(["simulate", ...args]);
  expect(code).toBe(0);
  expect(stdout).toMatch(/^policy +engines +routers +sharing +requests +errors .*\nrandom +8 .*\nround_robin +8 /);
  expect(stdout).toMatch(/\n8 engines: an infinite shared cache would hold \d+\.\d %/);
});

test("called wrongly: exit code 2 and one line; a wrong fleet: exit code 1 and what to do", async () => {
  const [unknown, policy] = await Promise.all([
    run(["simulate", "smg-24"]),
    run(["simulate", "rag", "--policy", "robin"]),
  ]);
  expect([unknown.code, policy.code]).toEqual([2, 2]);
  expect(unknown.stderr).toContain("did you mean smg-240?");
  expect(policy.stderr).toContain('--policy: "robin" is not one of');
  const fleet = temporaryFile("fleet.json", '{"engines":4,"preset":"abacus"}');
  const wrong = await run(["simulate", "rag", "--fleet", fleet]);
  expect([wrong.code, wrong.stdout]).toEqual([1, ""]);
  expect(wrong.stderr).toContain("preset: must be one of");
});

const long = [
  "simulate",
  "rag",
  "--policy",
  "random,least_work",
  "--links",
  "delays",
  "--duration",
  "2h",
  "--jobs",
  "2",
];

test("Ctrl-C ends a simulation with what was measured, and every process", async () => {
  const program = start([...long, "--json"]);
  await program.until(/rag █*░* [1-9]\d*\/100/, 60_000);
  const children = childrenOf(program.pid);
  expect(children).toHaveLength(2);
  program.killGroup("SIGINT");
  const { code, stdout } = await program.ended;
  expect(code).toBe(1);
  expect(JSON.parse(stdout)).toMatchObject({ name: "simulate", rows: expect.any(Array) });
  await untilGone(children);
});

test("no process survives a simulation that is killed", async () => {
  const program = start(long);
  await program.until(/rag █*░* [1-9]\d*\/100/, 60_000);
  const children = childrenOf(program.pid);
  expect(children).toHaveLength(2);
  program.kill("SIGKILL");
  // A child notices when it tells of its progress.
  await untilGone(children, 20_000);
});

const conversations = sharedPath("traces", "conversation_trace.jsonl.gz");

test.skipIf(!conversations)("the beginning of the Mooncake conversation trace", async () => {
  const args = ["--trace", conversations!, "--requests", "300", "--policy", "least_work", "--json"];
  const { code, stdout } = await run(["simulate", "mooncake-conversation", ...args]);
  expect(code).toBe(0);
  const { rows } = JSON.parse(stdout);
  for (const row of rows) {
    expect(row).toMatchObject({ requests: 300, errors: 0 });
    expect(row.bounds.infinite_cache).toBeGreaterThan(0.05);
    expect(row.bounds.infinite_cache).toBeLessThan(0.12);
  }
});
