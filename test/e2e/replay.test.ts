import { writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { sharedPath } from "@espalier/testing";
import { expect, test } from "vitest";
import { engines, temporaryFile } from "./files.ts";
import { childrenOf, run, start, untilGone } from "./program.ts";

const requestsPerStep = 10;

/** A trace in Mooncake's format: steps of 3 s, in each of them conversations that go on behind one shared block. */
function trace(steps: number): string {
  const rows = Array.from({ length: steps * requestsPerStep }, (_, at) => {
    const step = Math.floor(at / requestsPerStep);
    const conversation = at % requestsPerStep;
    const blocks = [0, ...Array.from({ length: step + 1 }, (_block, turn) => 1 + conversation * 1_000 + turn)];
    return { timestamp: step * 3_000, input_length: blocks.length * 512, output_length: 8, hash_ids: blocks };
  });
  return rows.map((row) => `${JSON.stringify(row)}\n`).join("");
}

/** The keys of a row, whatever the run; those that have a meaning in this one. */
const rowKeys = [
  ...["policy", "routers", "engines", "sharing", "seed", "requests", "errors", "duration_s"],
  ...["ttft_mean_s", "ttft_p50_s", "ttft_p90_s", "ttft_p95_s", "ttft_p99_s", "itl_mean_s"],
  ...["tpot_mean_s", "tpot_p50_s", "tpot_p90_s", "tpot_p95_s", "tpot_p99_s", "goodput_share"],
  ...["e2e_mean_s", "e2e_p50_s", "e2e_p90_s", "e2e_p95_s", "e2e_p99_s"],
  ...["output_tokens_per_s", "total_tokens_per_s", "requests_per_s"],
  ...["cached_share", "followup_cached_share", "load_cov"],
];

test("policies are compared on fleets of their own: one JSON object, a row for each, without errors", async () => {
  const path = temporaryFile("trace.jsonl", trace(3));
  const policies = ["round_robin", "least_connections", "consistent_hashing"];
  const args = [
    "--speed",
    "10",
    "--policy",
    policies.join(","),
    "--engines",
    "2",
    "--api-key",
    "secret-of-mine",
    "--json",
  ];
  const { code, stdout, stderr } = await run(["replay", "--trace", path, ...args]);
  expect(code).toBe(0);
  expect(stdout).not.toContain("secret-of-mine");
  for (const policy of policies) expect(stderr).toMatch(new RegExp(`^${policy} █{24} 30/30  \\d+ s  0 errors$`, "m"));
  const result = JSON.parse(stdout);
  expect(Object.keys(result)).toEqual(["name", "params", "rows", "bounds"]);
  expect(result.name).toBe("replay");
  expect(result.params).toMatchObject({ trace: path, speed: "10", engines: "2" });
  expect(result.rows.map((row: { policy: string }) => row.policy)).toEqual(policies);
  for (const row of result.rows) {
    expect(Object.keys(row).sort()).toEqual([...rowKeys].sort());
    expect(row).toMatchObject({ requests: 30, errors: 0, engines: 2, routers: 1, sharing: "none", seed: 1 });
    expect(row.ttft_p50_s).toBeLessThanOrEqual(row.ttft_p99_s);
    expect(row.ttft_mean_s).toBeLessThan(row.e2e_mean_s);
    expect(row.output_tokens_per_s * row.duration_s).toBeCloseTo(30 * 8, 3);
  }
  const [scattered, , together] = result.rows;
  expect(together.followup_cached_share).toBeGreaterThan(0.6);
  expect(scattered.load_cov).toBe(0);
  // By hand: 30 requests of 2 to 4 blocks; the first has none cached, the others of its step one, later ones all but one.
  const inputBlocks = requestsPerStep * (2 + 3 + 4);
  const cachedBlocks = 9 * 1 + requestsPerStep * (2 + 3);
  expect(result.bounds).toEqual({ infinite_cache: expect.closeTo(cachedBlocks / inputBlocks, 6) });
});

test("endpoints that run already get the requests in turn, in a closed loop too; people get a table", async () => {
  const urls = await engines({ engines: 2, speed: 50 });
  const path = temporaryFile("trace.jsonl", trace(2));
  const where = [...urls.flatMap((url) => ["--url", url]), "--model", "tiny"];
  const [open, closed] = await Promise.all([
    run(["replay", "--trace", path, "--speed", "20", ...where]),
    run(["replay", "--trace", path, "--closed", "4", "--requests", "12", "--json", ...where]),
  ]);
  expect([open.code, closed.code]).toEqual([0, 0]);
  expect(open.stdout).toMatch(/^policy +routers +sharing +engines +requests +errors .*\n- +- +- +- +20 +0 /);
  expect(open.stdout).toMatch(/\nan infinite shared cache would hold \d+\.\d %\n$/);
  const { rows } = JSON.parse(closed.stdout);
  expect(rows).toMatchObject([{ requests: 12, errors: 0 }]);
  for (const url of urls) {
    const { totals } = (await (await fetch(`${url}/sim/state`)).json()) as { totals: Record<string, number> };
    expect(totals.finished).toBe(16);
  }
});

test("endpoints that fail are counted, named, and the exit code is 1", async () => {
  const path = temporaryFile("trace.jsonl", trace(1));
  const args = ["--speed", "100", "--url", "http://127.0.0.1:1", "--json"];
  const { code, stdout, stderr } = await run(["replay", "--trace", path, ...args]);
  expect(code).toBe(1);
  expect(JSON.parse(stdout).rows).toMatchObject([{ requests: 10, errors: 10 }]);
  expect(stderr).toContain("10 of 10 requests failed:\n  10 x ECONNREFUSED: connect ECONNREFUSED 127.0.0.1:1");
});

test("what is wrong in a trace is named by file, line and field, and the exit code is 1", async () => {
  const good = trace(1);
  const bad: readonly (readonly [string, RegExp])[] = [
    [
      good + good.replace('"timestamp":0', '"timestamp":"x"'),
      /:11: timestamp: must be a number, is "x" \(trace_invalid\)/,
    ],
    [
      good.replace('"input_length":1024', '"input_length":5000'),
      /:1: hash_ids: must name 9 or 10 blocks for 5000 tokens/,
    ],
    ["a,b,c\n", /:1: line: is the start of none of mooncake, bailian, azure, prompts/],
  ];
  const paths = bad.map(([content]) => temporaryFile("trace.jsonl", content));
  const outcomes = await Promise.all(paths.map((path) => run(["replay", "--trace", path, "--json"])));
  for (const [at, { code, stdout, stderr }] of outcomes.entries()) {
    expect([code, stdout]).toEqual([1, ""]);
    expect(stderr).toContain(paths[at]);
    expect(stderr).toMatch(bad[at]![1]);
  }
});

test("a gzipped trace is read too; Ctrl-C ends the run with what was measured, and every process", async () => {
  const path = temporaryFile("trace.jsonl.gz", "");
  writeFileSync(path, gzipSync(trace(100)));
  const program = start(["replay", "--trace", path, "--policy", "random,round_robin", "--json"]);
  await program.until(/random █*░* \d+\/1000/);
  const children = childrenOf(program.pid);
  expect(children).toHaveLength(2);
  program.killGroup("SIGINT");
  const { code, stdout } = await program.ended;
  expect(code).toBe(1);
  expect(JSON.parse(stdout).rows).toMatchObject([{ policy: "random", errors: 0 }]);
  await untilGone(children);
});

test("no process survives a replay that is killed", async () => {
  const path = temporaryFile("trace.jsonl", trace(100));
  const program = start(["replay", "--trace", path]);
  await program.until(/round_robin █*░* \d+\/1000/);
  const children = childrenOf(program.pid);
  expect(children).toHaveLength(2);
  program.kill("SIGKILL");
  await untilGone(children);
});

const conversations = sharedPath("traces", "conversation_trace.jsonl.gz");

test.skipIf(!conversations)("the beginning of the Mooncake conversation trace", async () => {
  const args = [
    "--trace",
    conversations!,
    "--requests",
    "100",
    "--speed",
    "20",
    "--policy",
    "least_connections",
    "--json",
  ];
  const { code, stdout } = await run(["replay", ...args]);
  expect(code).toBe(0);
  const { rows, bounds } = JSON.parse(stdout);
  expect(rows).toMatchObject([{ policy: "least_connections", requests: 100, errors: 0 }]);
  expect(bounds.infinite_cache).toBeGreaterThan(0.02);
  expect(bounds.infinite_cache).toBeLessThan(0.06);
});

/** Sessions of a coding agent: two requests, a sub-agent, and one that waits for it. */
function agentTrace(sessions: number): string {
  const lines = Array.from({ length: sessions }, (_, number) => ({
    ...{ id: `agent-${number}`, block_size: 64, hash_id_scope: "local", tool_tokens: 1_024, system_tokens: 512 },
    requests: [
      { t: 0, type: "s", in: 2_048, out: 8, hash_ids: [[1, 32]], api_time: 1 },
      { t: 3, type: "s", in: 2_560, out: 8, hash_ids: [[1, 40]], api_time: 1, think_time: 2 },
      {
        ...{ t: 7, type: "subagent", duration_ms: 3_000, tool_tokens: 512, system_tokens: 64 },
        requests: [{ t: 0, type: "n", in: 1_024, out: 8, hash_ids: [[100, 16]], api_time: 2 }],
      },
      {
        t: 9,
        type: "s",
        in: 3_072,
        out: 8,
        hash_ids: [
          [1, 40],
          [200, 8],
        ],
        api_time: 1,
        think_time: 5,
      },
    ],
  }));
  return lines.map((line) => `${JSON.stringify(line)}\n`).join("");
}

test("sessions of coding agents go through routers of a mesh: at a rate, and by users who think", async () => {
  const path = temporaryFile("agents.jsonl", agentTrace(6));
  const fleet = ["--routers", "2", "--engines", "2", "--policy", "cache_aware", "--kv-events", "on", "--speed", "20"];
  for (const loop of [
    ["--starts", "1"],
    ["--closed", "3"],
  ]) {
    const replayed = ["replay", "--trace", path, "--format", "claude-code", ...loop, ...fleet, "--json"];
    const { code, stdout } = await run(replayed);
    expect(code).toBe(0);
    const { rows, bounds } = JSON.parse(stdout);
    expect(rows).toHaveLength(1);
    expect(rows[0]).toMatchObject({ requests: 24, errors: 0, routers: 2, sharing: "mesh" });
    expect(rows[0].followup_cached_share).toBeGreaterThan(0.6);
    expect(rows[0].cached_share).toBeLessThanOrEqual(bounds.infinite_cache + 0.01);
    // A session is 2 s and 3 s of pauses and its four answers, one after the other. Node ends a pause up to a millisecond
    // early, which is 20 here. Users share the sessions; at a rate, each session has its own.
    const sessions = 6 * (5 - 2 * 0.02) + 24 * rows[0].e2e_mean_s;
    expect(rows[0].duration_s).toBeGreaterThan(sessions / (loop[0] === "--closed" ? 3 : 6));
  }
});

test("a rate of sessions is refused for a trace that does not say what requests wait for", async () => {
  const path = temporaryFile("trace.jsonl", trace(1));
  const { code, stderr } = await run(["replay", "--trace", path, "--starts", "1"]);
  expect(code).toBe(2);
  expect(stderr).toContain("does not say what its requests wait for, as claude-code traces and recordings do");
});
