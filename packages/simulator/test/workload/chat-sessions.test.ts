import { expect, test } from "vitest";
import { type ChatSessionsOptions, chatSessions, maxTextOwners, maxTextParts } from "../../src/workload/index.ts";

const options: ChatSessionsOptions = {
  users: 40,
  turns: 8,
  firstMessageTokens: 400,
  newTokensPerTurn: 150,
  outputTokens: 250,
  thinkTimeMeanMs: 5_000,
  sharedPrefixTokens: 0,
  seed: 3,
};

test("every user has the turns and lengths that were asked for", () => {
  const sessions = chatSessions(options);
  expect(sessions).toHaveLength(40);
  expect(new Set(sessions.map((session) => session.id)).size).toBe(40);
  for (const { turns, userText, systemText } of sessions) {
    expect(systemText).toBeUndefined();
    expect(turns.map((turn) => turn.userTokens)).toEqual([400, 150, 150, 150, 150, 150, 150, 150]);
    expect(turns.every((turn) => turn.outputTokens === 250)).toBe(true);
    for (const [turn, { userTokens }] of turns.entries()) expect(userText(turn)).toHaveLength(userTokens * 4);
  }
});

test("think times are exponential with the mean that was asked for", () => {
  const times = chatSessions({ ...options, users: 1_000 }).flatMap((session) =>
    session.turns.map((turn) => turn.thinkMs),
  );
  const mean = times.reduce((sum, time) => sum + time, 0) / times.length;
  expect(Math.abs(mean / 5_000 - 1)).toBeLessThan(0.05);
  expect(Math.abs(times.filter((time) => time > 5_000).length / times.length - Math.exp(-1))).toBeLessThan(0.02);
});

test("no two messages begin alike, over users, turns and seeds", () => {
  const openings = [3, 4].flatMap((seed) =>
    chatSessions({ ...options, seed }).flatMap(({ turns, userText }) =>
      turns.map((_, turn) => userText(turn).slice(0, 28)),
    ),
  );
  expect(new Set(openings).size).toBe(2 * 40 * 8);
});

test("a shared prefix is one system message for all, of its length", () => {
  const sessions = chatSessions({ ...options, sharedPrefixTokens: 1_000 });
  expect(new Set(sessions.map((session) => session.systemText)).size).toBe(1);
  expect(sessions[0]!.systemText).toHaveLength(4_000);
  expect(sessions[0]!.userText(0).slice(0, 28)).not.toBe(sessions[0]!.systemText!.slice(0, 28));
});

test("the same options give the same sessions, another seed others", () => {
  const flat = (seed: number) => chatSessions({ ...options, seed }).map((one) => [one.id, one.turns, one.userText(1)]);
  expect(flat(3)).toEqual(flat(3));
  expect(flat(3)).not.toEqual(flat(5));
});

test.each([
  ["users", maxTextOwners],
  ["turns", maxTextParts],
  ["users", -1],
  ["turns", 1.5],
])("%s of %i are refused", (param, value) => {
  expect(() => chatSessions({ ...options, [param]: value })).toThrow(
    expect.objectContaining({ code: "config_invalid", param }),
  );
});

test("one below the most turns is possible, and the last turn is its own", () => {
  const [session] = chatSessions({ ...options, users: 1, turns: maxTextParts - 1 });
  expect(session!.turns).toHaveLength(maxTextParts - 1);
  expect(session!.userText(maxTextParts - 2)).not.toBe(session!.userText(maxTextParts - 3));
});
