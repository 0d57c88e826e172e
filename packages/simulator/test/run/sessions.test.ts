import { expect, test, vi } from "vitest";
import type { RunOptions } from "../../src/run.ts";
import { readScenario } from "../../src/scenarios/read-scenario.ts";
import { simulate } from "../../src/simulate.ts";
import { smallRun, smallScenario } from "./small-scenario.ts";

// Takes a second of a core, which busy machines make ten of.
vi.setConfig({ testTimeout: 60_000 });

const scenario = smallScenario({
  chats: { groups: 0, sharedTokens: 0, sharedShare: 0, followups: { mean: 3 }, thinkMeanMs: 800 },
  startsPerS: 6,
  durationS: 6,
});

const trajectories = {
  steps: { median: 3, sigma: 0.5, least: 1, most: 8 },
  toolTokens: { median: 32, sigma: 0.5, least: 16, most: 64 },
  toolTimeMs: { least: 10, most: 400 },
};

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

test("sessions that clients end make room for others, at every router", async () => {
  const { createWorkload } = readScenario(
    JSON.stringify({
      ...{ name: "rollouts", summary: "Trajectories.", fleet: { preset: "h100-32b-tp2", engines: 2, routers: 2 } },
      clients: {
        ...{ loop: "closed", clients: 4, sessions: 40, endsSessions: true },
        requests: { kind: "agents", systemTokens: 0, taskTokens: 64, outputTokens: 16, ...trajectories },
      },
    }),
    "rollouts.json",
  );
  const rollouts = { ...scenario, createWorkload };
  const options = { scenario: rollouts, policy: "sticky", routers: 2, engines: 2 };
  const { results } = await simulate(
    smallRun({ ...options, links: "delays", policyOptions: { "fewest-sessions": 1 } }),
    () => 0,
  );
  const ends = results.filter(({ request }) => request.endsSession);
  expect(ends).toHaveLength(40);
  // Each session that begins finds three live ones, of which an engine has at most two.
  const live = new Map<number, number>();
  const events = results.flatMap(({ request, sentMs, endMs, engine }) => [
    ...(request.turn === 0 ? [{ atMs: sentMs, engine, change: 1 }] : []),
    ...(request.endsSession ? [{ atMs: endMs, engine, change: -1 }] : []),
  ]);
  for (const { engine, change } of events.sort((one, other) => one.atMs - other.atMs || one.change - other.change)) {
    live.set(engine, (live.get(engine) ?? 0) + change);
    expect(live.get(engine)).toBeLessThanOrEqual(3);
  }
});
