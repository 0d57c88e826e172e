import { expect, test } from "vitest";
import { createOpenLoop } from "../../src/clients/loops.ts";
import { promptScripts } from "../../src/clients/scripts.ts";
import { recordTrace } from "../../src/clients/traces.ts";
import type { BailianRow } from "../../src/workload/index.ts";
import { recordRun } from "./recorded-run.ts";

const exactly = (tokens: number) => ({ median: tokens, sigma: 0, least: tokens, most: tokens });

const rowsOf = (...given: Parameters<typeof recordTrace>[0][]): readonly BailianRow[] => {
  const rows: BailianRow[] = [];
  for (const workload of given) recordTrace(workload, (row) => rows.push(row));
  return rows;
};

const prompts = (seed = 1) =>
  createOpenLoop({
    ...{ seed, startsPerS: 30, meanTurns: 1, limits: { requests: 200 } },
    scriptOf: promptScripts({ prompts: 1, sharedTokens: 160, ownTokens: exactly(40), outputTokens: exactly(7) }, seed),
  });

test("each request at its time, with the blocks that all share and its own", () => {
  const rows = rowsOf(prompts());
  const { sent } = recordRun(prompts());
  expect(rows.map(({ arrivalMs }) => arrivalMs)).toEqual(sent.map(({ sentMs }) => sentMs));
  expect(rows.map(({ chat }) => chat)).toEqual([...rows.keys()]);
  expect(
    rows.every(({ inputTokens, outputTokens, parent }) => inputTokens === 200 && outputTokens === 7 && !parent),
  ).toBe(true);
  const [first, second] = rows;
  expect(first!.blockIds).toHaveLength(12);
  expect(second!.blockIds.slice(0, 10)).toEqual(first!.blockIds.slice(0, 10));
  const ids = new Set(rows.flatMap(({ blockIds }) => blockIds));
  expect(ids.size).toBe(10 + 2 * 200);
  expect([...ids].every((id) => Number.isSafeInteger(id) && id >= 0 && id < 2 ** 52)).toBe(true);
});

test("the same seed writes the same, another one something else", () => {
  expect(rowsOf(prompts())).toEqual(rowsOf(prompts()));
  expect(rowsOf(prompts(2))).not.toEqual(rowsOf(prompts()));
});

test("a session's next turn names the one before, and comes after its answer", () => {
  const chats = createOpenLoop({
    ...{ seed: 1, startsPerS: 5, meanTurns: 3, limits: { durationS: 60 } },
    scriptOf: () => ({
      turns: 3,
      expectedTokens: 500,
      pauseMs: (turn) => (turn === 0 ? 0 : 1_000),
      write(_, conversation) {
        conversation.own(48);
        return 50;
      },
    }),
  });
  const rows = rowsOf(chats);
  const followups = rows.filter(({ parent }) => parent !== undefined);
  expect(followups.length).toBeGreaterThan(300);
  for (const { parent, arrivalMs, blockIds } of followups) {
    const before = rows[parent!]!;
    expect(arrivalMs - before.arrivalMs).toBeCloseTo(2_000, 6);
    expect(blockIds.slice(0, before.blockIds.length)).toEqual(before.blockIds);
  }
});
