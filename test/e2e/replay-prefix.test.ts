import { expect, test } from "vitest";
import { temporaryFile } from "./files.ts";
import { run } from "./program.ts";

/** Not a multiple of the engines, or taking turns would keep conversations together. */
const conversations = 11;
const turns = 5;

/**
 * A trace in Mooncake's format: conversations of two blocks of their own and one more with each turn, all behind one
 * shared block, their turns 2 s apart.
 */
function trace(): string {
  const rows = Array.from({ length: conversations * turns }, (_, at) => {
    const turn = Math.floor(at / conversations);
    const conversation = at % conversations;
    const own = Array.from({ length: 2 + turn }, (_block, index) => 1 + conversation * 1_000 + index);
    const hash_ids = [0, ...own];
    return { timestamp: at * 100 + turn * 2_000, input_length: hash_ids.length * 512, output_length: 4, hash_ids };
  });
  return rows.map((row) => `${JSON.stringify(row)}\n`).join("");
}

interface Row {
  readonly policy: string;
  readonly kv_events?: boolean;
  readonly requests: number;
  readonly errors: number;
  readonly cached_share: number;
  readonly followup_cached_share: number;
}

const quick = ["--speed", "10", "--engines", "4"];

test("policies are compared with events and without: one row each, cached shares in the order they must have", async () => {
  const path = temporaryFile("trace.jsonl", trace());
  const args = ["--policy", "round_robin,cache_aware", "--kv-events", "on,off", ...quick, "--json"];
  const { code, stdout, stderr } = await run(["replay", "--trace", path, ...args]);
  expect(code).toBe(0);
  const { rows, bounds, params } = JSON.parse(stdout) as {
    readonly rows: readonly Row[];
    readonly bounds: { readonly infinite_cache: number };
    readonly params: Readonly<Record<string, unknown>>;
  };
  expect(params).toMatchObject({ kvEvents: "on,off" });
  expect(rows.map(({ policy, kv_events }) => [policy, kv_events])).toEqual([
    ["round_robin", undefined],
    ["cache_aware", true],
    ["cache_aware", false],
  ]);
  for (const row of rows) expect(row).toMatchObject({ requests: conversations * turns, errors: 0 });
  const [scattered, reported, guessed] = rows as readonly [Row, Row, Row];
  expect(reported.cached_share).toBeGreaterThan(1.2 * scattered.cached_share);
  expect(guessed.cached_share).toBeGreaterThan(1.2 * scattered.cached_share);
  expect(reported.followup_cached_share).toBeGreaterThan(0.75);
  expect(guessed.followup_cached_share).toBeGreaterThan(0.75);
  for (const { cached_share } of rows) expect(cached_share).toBeLessThanOrEqual(bounds.infinite_cache);
  for (const label of ["round_robin", "cache_aware \\+ events", "cache_aware \\+ guess"]) {
    expect(stderr).toMatch(new RegExp(`^${label} █{24} 55/55 `, "m"));
  }
});

test("people see how the knowledge came about, and policies that use none run once", async () => {
  const path = temporaryFile("trace.jsonl", trace());
  const args = ["--policy", "least_connections,prefix_hash", "--kv-events", "off", "--requests", "24", ...quick];
  const { code, stdout } = await run(["replay", "--trace", path, ...args]);
  expect(code).toBe(0);
  const rows = stdout.split("\n").filter((line) => / +1 +none +4 +24 +0 /.test(line));
  expect(rows.map((row) => row.split(/ {2,}/)[0])).toEqual(["least_connections", "prefix_hash + guess"]);
});

test("few blocks of the engines take what was cached away", async () => {
  const path = temporaryFile("trace.jsonl", trace());
  const args = ["--policy", "cache_aware", "--kv-events", "on", ...quick, "--engines", "2", "--json"];
  const [ample, scarce] = await Promise.all(
    [[], ["--blocks", "300"]].map(async (blocks) => {
      const { code, stdout } = await run(["replay", "--trace", path, ...args, ...blocks]);
      expect(code).toBe(0);
      return (JSON.parse(stdout) as { readonly rows: readonly Row[] }).rows[0]!;
    }),
  );
  expect(scarce).toMatchObject({ errors: 0, requests: 55 });
  expect(scarce!.cached_share).toBeLessThan(0.8 * ample!.cached_share);
});

test.each([
  [["--kv-events", "maybe"], '--kv-events: "maybe" is neither on nor off'],
  [["--kv-events", ""], '--kv-events: "" is neither on nor off'],
  [["--kv-events", "on,,off"], '--kv-events: "" is neither on nor off'],
  [["--policy", "cache-aware"], '--policy: "cache-aware" is not one of'],
])("%j is refused before anything is started", async (args, message) => {
  const path = temporaryFile("trace.jsonl", trace());
  const { code, stdout, stderr } = await run(["replay", "--trace", path, ...args]);
  expect([code, stdout]).toEqual([2, ""]);
  expect(stderr).toContain(message);
});
