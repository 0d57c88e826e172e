import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { quietSims } from "../integration/cache-rig.ts";
import { ask, tokensOf, wordsOf } from "../integration/cached-turns.ts";
import { meshRouters } from "../integration/mesh-rig.ts";
import { createRig, type RunningRouter } from "../integration/rig.ts";
import { temporaryFile } from "./files.ts";
import { run, start } from "./program.ts";

const rig = createRig();
afterEach(() => rig.close());

/** A line of the trace. */
interface Row {
  readonly parent_chat_id: number;
  readonly input_length: number;
  readonly output_length: number;
  readonly hash_ids: readonly number[];
  readonly model: string;
}

const rowsOf = (file: string): readonly Row[] =>
  existsSync(file)
    ? readFileSync(file, "utf8")
        .split("\n")
        .slice(0, -1)
        .map((line) => JSON.parse(line) as Row)
    : [];

/** Records what `send` sends, after the recording has begun. @returns the file and its rows of those requests */
async function recorded(routers: readonly RunningRouter[], send: () => Promise<number>, ...flags: readonly string[]) {
  const file = join(dirname(temporaryFile("none", "")), "trace.jsonl");
  const admins = routers.flatMap(({ adminUrl }) => ["--admin", adminUrl]);
  const program = start(["record", ...admins, "--out", file, ...flags]);
  // Each router is heard when a request that it got is in the file.
  for (const [at, router] of routers.entries()) {
    const length = 1_000 + at;
    const isHeard = async (): Promise<boolean> => {
      await ask(router, "/v1/completions", { prompt: tokensOf(7, length), max_tokens: 1 });
      return rowsOf(file).some(({ input_length: tokens }) => tokens === length);
    };
    await waitFor(isHeard, { what: `a recording of router ${at}`, deadlineMs: 30_000 });
  }
  const sent = await send();
  const mine = () => rowsOf(file).filter(({ input_length: tokens }) => tokens < 1_000);
  await waitFor(() => mine().length === sent, { what: `${sent} requests in the trace`, deadlineMs: 10_000 });
  program.kill("SIGINT");
  const outcome = await program.ended;
  return { file, rows: mine(), outcome };
}

test("what two routers serve becomes a trace that simulate and replay take as it is", async () => {
  const sims = await quietSims(rig, 2);
  const routers = await meshRouters(rig, 2, sims);
  const prompt = tokensOf(1, 160);
  const send = async (): Promise<number> => {
    const headers = { "x-session-id": "alice" };
    await ask(routers[0]!, "/v1/completions", { prompt, max_tokens: 3 }, headers);
    await ask(routers[1]!, "/v1/completions", { prompt: [...prompt, ...tokensOf(2, 40)], max_tokens: 4 }, headers);
    const messages = [{ role: "user", content: `a secret ${wordsOf(3, 60)}` }];
    await ask(routers[1]!, "/v1/chat/completions", { messages, max_tokens: 5 });
    return 3;
  };
  const { file, rows, outcome } = await recorded(routers, send);
  expect([outcome.code, outcome.signal]).toEqual([0, null]);
  expect(outcome.stdout).toMatch(
    /^\d+ requests in .*trace\.jsonl \(\d+\.\d MB\)\nespalier simulate --trace .* --engines 2 --routers 2 --what-if engines\+1\n$/,
  );
  const [first, second, third] = rows.toSorted((one, other) => one.output_length - other.output_length);
  expect([first, second, third].map((row) => [row?.input_length, row?.output_length])).toEqual([
    [160, 3],
    [200, 4],
    [third?.input_length, 5],
  ]);
  expect(second?.hash_ids.slice(0, 10)).toEqual(first?.hash_ids);
  expect([first?.hash_ids.length, second?.hash_ids.length]).toEqual([10, 12]);
  expect(third?.hash_ids[0]).not.toBe(first?.hash_ids[0]);
  expect(second?.parent_chat_id).toBe(first?.parent_chat_id);
  expect([first?.parent_chat_id === -1, third?.parent_chat_id]).toEqual([false, -1]);
  const text = readFileSync(file, "utf8");
  expect(text).not.toMatch(/alice|secret|tide|harbour/);

  const fleet = ["--trace", file, "--engines", "2", "--json"];
  const [simulated, replayed] = await Promise.all([
    run(["simulate", ...fleet, "--routers", "2", "--what-if", "engines+2,sharing=none"]),
    run(["replay", ...fleet, "--policy", "least_work", "--kv-events", "off", "--speed", "20"]),
  ]);
  for (const { code, stdout, stderr } of [simulated, replayed]) {
    expect([code, stderr]).toEqual([0, stderr]);
    const made = (JSON.parse(stdout) as { rows: readonly { requests: number; errors: number }[] }).rows;
    for (const row of made) expect(row).toMatchObject({ requests: rowsOf(file).length, errors: 0 });
  }
  const { rows: runs, what_if: compared } = JSON.parse(simulated.stdout);
  expect(runs).toHaveLength(3);
  expect(compared).toMatchObject([{ change: "2 more engines" }, { change: "sharing none" }]);
  for (const { ttft_p99_s: p99 } of compared) expect([p99.from > 0, p99.to > 0]).toEqual([true, true]);
});

test("a policy that does not look at prompts has its prompts recorded too, of the named model alone", async () => {
  const sims = await quietSims(rig, 1);
  const router = await rig.router({ engines: sims.map(({ url }) => url), config: { policy: "round_robin" } });
  const messages = [{ role: "user", content: wordsOf(1, 200) }];
  const send = async (): Promise<number> => {
    for (let turn = 0; turn < 2; turn++) await ask(router, "/v1/chat/completions", { messages, max_tokens: 2 });
    return 2;
  };
  const { rows } = await recorded([router], send, "--model", "tiny");
  expect(rows[0]?.hash_ids.length).toBeGreaterThan(5);
  expect(rows[1]?.hash_ids).toEqual(rows[0]?.hash_ids);
  expect(rows[0]).toMatchObject({ model: "tiny" });
});

test("without the key nothing is recorded; without a router, neither", async () => {
  const router = await rig.router({ config: { admin: { key: "the-admin-key" } } });
  const file = join(dirname(temporaryFile("none", "")), "trace.jsonl.gz");
  const common = ["record", "--minutes", "0.01", "--out", file, "--admin"];
  const [refused, absent, silent] = await Promise.all([
    run([...common, router.adminUrl]),
    run([...common, "http://127.0.0.1:1"]),
    run([...common, router.adminUrl, "--key", "the-admin-key"]),
  ]);
  expect([refused.code, absent.code, silent.code, existsSync(file)]).toEqual([1, 1, 1, false]);
  expect(refused.stderr).toContain("missing_api_key");
  expect(absent.stderr).toContain("No router answers at");
  expect(silent.stderr).toContain("no requests recorded");
});
