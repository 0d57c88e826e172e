import { expect, test } from "vitest";
import { createRivalRig } from "./rival-rig.ts";

const prompt = { session: 1, promptTokens: 320 } as const;

test("a node learns from a snapshot, one way later, what another one has", () => {
  const { ask, time } = createRivalRig({ name: "p2p_anti_entropy", perRegion: [1, 1], awayMs: 300 });
  expect(ask(prompt, 0)).toBe(0);
  // The snapshot of the first second is on its way.
  time.runUntil(1_250);
  expect(ask({ ...prompt, session: 2, sharedTokens: 0 }, 1)).toBe(1);
  time.runUntil(1_400);
  expect(ask(prompt, 1)).toBe(0);
});

test("nobody looks at load, and a node keeps what no other has more of", () => {
  const { ask, send, time } = createRivalRig({ name: "p2p_anti_entropy", perRegion: [1, 1], awayMs: 1 });
  ask(prompt, 0);
  time.advance(2_000);
  for (let at = 0; at < 40; at++) send({ ...prompt, outputTokens: 2_000 }, 1);
  expect(ask(prompt, 1)).toBe(0);
  expect(ask({ session: 7 }, 1)).toBe(1);
});

test("a node knows at once what its own engine has evicted", () => {
  const { ask, outcomes, time } = createRivalRig({ name: "p2p_anti_entropy", perRegion: [1, 1], awayMs: 1 });
  ask(prompt, 0);
  ask(prompt, 0);
  expect(outcomes.at(-1)!.predictedTokens).toBe(320);
  // The engine has room for 32,000 tokens.
  for (let at = 0; at < 11; at++) ask({ session: 10 + at, promptTokens: 3_200 }, 0);
  time.advance(2_000);
  ask(prompt, 0);
  expect(outcomes.at(-1)!.predictedTokens).toBe(0);
});

test("without routing everything stays where it comes", () => {
  const { ask, time } = createRivalRig({ name: "p2p_local", perRegion: [1, 1], awayMs: 1 });
  ask(prompt, 0);
  time.advance(2_000);
  expect(ask(prompt, 1)).toBe(1);
});
