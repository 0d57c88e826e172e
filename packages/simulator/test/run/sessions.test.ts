import { expect, test, vi } from "vitest";
import type { RunOptions } from "../../src/run.ts";
import { simulate } from "../../src/simulate.ts";
import { smallRun, smallScenario } from "./small-scenario.ts";

// Takes a second of a core, which busy machines make ten of.
vi.setConfig({ testTimeout: 60_000 });

const scenario = smallScenario({
  chats: { groups: 0, sharedTokens: 0, sharedShare: 0, followups: { mean: 3 }, thinkMeanMs: 800 },
  startsPerS: 6,
  durationS: 6,
});

/** How many turns after a session's first one went, and how many of them to another engine than the one before. */
async function movesOf(options: Partial<RunOptions>): Promise<{ readonly turns: number; readonly moves: number }> {
  const { results } = await simulate(smallRun({ scenario, policy: "sticky", routers: 3, ...options }), () => 0);
  const engines = new Map<number, number>();
  let turns = 0;
  let moves = 0;
  for (const { request, engine, error } of [...results].sort((one, other) => one.sentMs - other.sentMs)) {
    expect(error).toBeUndefined();
    const before = engines.get(request.session);
    engines.set(request.session, engine);
    if (before === undefined) continue;
    turns += 1;
    if (before !== engine) moves += 1;
  }
  return { turns, moves };
}

test.each(["delays", "real"] as const)("sessions that go round three routers stay on one engine, %s", async (links) => {
  const { turns, moves } = await movesOf({ links });
  expect(turns).toBeGreaterThan(30);
  expect(moves).toBe(0);
});

test("where routers share nothing each has its own engine for a session", async () => {
  const { turns, moves } = await movesOf({ sharing: "none" });
  expect(moves).toBeGreaterThan(turns / 10);
});
