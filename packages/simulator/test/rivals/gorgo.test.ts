import { expect, test } from "vitest";
import { createRivalRig } from "./rival-rig.ts";

const threeRegions = { perRegion: [1, 1, 1] } as const;

test("gorgo goes where a prompt was before, however far, and the nearest takes what nobody has", () => {
  const { ask, send } = createRivalRig({ name: "gorgo", ...threeRegions });
  // 200 ms of round trip elsewhere count 55, and 96 tokens in flight at the nearest engine 48.
  send({ session: 1, promptTokens: 96, outputTokens: 20_000 });
  expect(ask({ session: 2, promptTokens: 160 })).toBe(0);
  send({ session: 3, promptTokens: 32, outputTokens: 20_000 });
  const away = ask({ session: 4, promptTokens: 1_600 });
  expect(away).not.toBe(0);
  expect(ask({ session: 4, promptTokens: 1_600 })).toBe(away);
});

test("gorgo leaves an engine for one without the prompt when half of what is in flight there is more than the prompt", () => {
  const away = createRivalRig({ name: "gorgo", ...threeRegions });
  away.ask({ session: 1, promptTokens: 800 });
  away.send({ session: 1, promptTokens: 800, outputTokens: 500 });
  away.send({ session: 1, promptTokens: 800, outputTokens: 500 });
  // 1,600 tokens in flight count 800, as much as the prompt; the round trip decides for the nearest.
  expect(away.ask({ session: 1, promptTokens: 800 })).toBe(0);
  away.send({ session: 1, promptTokens: 800, outputTokens: 500 });
  expect(away.ask({ session: 1, promptTokens: 800 })).not.toBe(0);
});

test("session affinity keeps what begins with the same 256 tokens at one engine", () => {
  const { ask } = createRivalRig({ name: "gorgo_session_affinity", ...threeRegions });
  const shared = Array.from({ length: 6 }, (_, session) => ask({ session, promptTokens: 320, sharedTokens: 256 }));
  expect(new Set(shared).size).toBe(1);
  const own = Array.from({ length: 12 }, (_, at) => ask({ session: 10 + at, promptTokens: 320, sharedTokens: 240 }));
  expect(new Set(own).size).toBeGreaterThan(1);
});

test("least request counts requests, least load their tokens", () => {
  const engineOfThird = (name: string): number => {
    const { send, outcomes, time } = createRivalRig({ name, perRegion: [1, 1] });
    send({ session: 1, promptTokens: 1_600, outputTokens: 400 });
    send({ session: 2, promptTokens: 32, outputTokens: 400 });
    send({ session: 3, promptTokens: 32, outputTokens: 400 });
    send({ session: 4, promptTokens: 32, outputTokens: 400 });
    time.advance(60_000);
    const long = outcomes.reduce((one, other) => (other.firstTokenMs > one.firstTokenMs ? other : one));
    return outcomes.filter(({ engine }) => engine === long.engine).length;
  };
  expect(engineOfThird("gorgo_least_request")).toBe(2);
  expect(engineOfThird("gorgo_least_load")).not.toBe(2);
});

test("prefix cache follows the prompt until running requests differ by more than eight, as read half a minute ago", () => {
  const { ask, occupy, time } = createRivalRig({ name: "gorgo_prefix_cache", perRegion: [1, 1] });
  const home = ask({ session: 1, promptTokens: 320 });
  for (let at = 0; at < 10; at++) occupy(home, { session: 20 + at, promptTokens: 32, outputTokens: 20_000 });
  expect(ask({ session: 1, promptTokens: 320 })).toBe(home);
  time.advance(31_000);
  expect(ask({ session: 1, promptTokens: 320 })).not.toBe(home);
});
