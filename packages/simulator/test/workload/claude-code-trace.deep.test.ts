import { sharedPath } from "@espalier/testing";
import { beforeAll, describe, expect, test } from "vitest";
import { infiniteCacheBound, readTrace, readTraceLines, type TraceRequest } from "../../src/workload/index.ts";

/** The longest prompt, and the names of blocks that are kept, as docs/reference/bounds.md lists them. */
const promptTokens = 2 ** 22;
const traceBlocks = 2 ** 26;

/** A session of prompts of one block per token; `isOne` makes each continue the one before. */
const session = (id: string, prompts: number, isOne: boolean): string =>
  JSON.stringify({
    ...{ id, block_size: 1, hash_id_scope: "local", tool_tokens: 0, system_tokens: 0 },
    requests: Array.from({ length: prompts }, (_, t) => ({
      ...{ t, type: "n", in: promptTokens, out: 1 },
      hash_ids: [[isOne ? 0 : t, promptTokens]],
    })),
  });

test("a trace of more blocks than memory is for is refused, and one that repeats them is read", () => {
  const most = Math.floor(traceBlocks / (promptTokens * 1.25));
  expect(readTraceLines("file", [session("a", most, false)])).toHaveLength(most);
  expect(() => readTraceLines("file", [session("a", most + 1, false)])).toThrow(
    `file:1: requests[${most}].hash_ids: the trace has more than ${traceBlocks} blocks: set a limit`,
  );
  expect(readTraceLines("file", [session("a", 30, true)])).toHaveLength(30);
});

const path = sharedPath("traces", "claude_code_355.jsonl.gz");

describe.skipIf(path === undefined)("355 sessions of Claude Code", () => {
  let requests: readonly TraceRequest[] = [];
  beforeAll(async () => {
    requests = await readTrace(path!);
  });

  test("are read whole, from their first line on known for what they are", () => {
    expect(requests).toHaveLength(24_015);
    expect(new Set(requests.map((one) => one.session)).size).toBe(355);
    expect(requests.reduce((sum, one) => sum + one.inputTokens, 0)).toBe(3_012_680_174);
    expect(Math.max(...requests.map((one) => one.blockIds!.length))).toBe(Math.floor(880_502 / 64));
  });

  test("an infinite cache hits 96.4 % of them: 0.1 points more than sessions have by themselves", () => {
    expect(infiniteCacheBound(requests)).toBeCloseTo(0.9643, 4);
  });

  test("every request but first ones waits for earlier ones; 44 of 48 sub-agents hold up the next request", () => {
    expect(requests.filter(({ wait }) => wait!.after.length === 0)).toHaveLength(355);
    for (const { turn, wait } of requests) for (const earlier of wait!.after) expect(earlier).toBeLessThan(turn);
    const joined = requests.reduce((sum, { wait }) => sum + Math.max(0, wait!.after.length - 1), 0);
    expect(joined).toBe(44);
  });
});
