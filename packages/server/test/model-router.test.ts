import { createSeededRandom } from "@espalier/common";
import { expect, test } from "vitest";
import { createModelRouter } from "../src/lifecycle/live-config.ts";

const options = {
  aliases: { "gpt-4": "llama-70b", canary: "mixed", nested: "gpt-4" },
  splits: {
    mixed: [
      { model: "llama-70b", weight: 90 },
      { model: "llama-8b", weight: 10 },
    ],
  },
};

test("a name that is neither alias nor split stands for itself", () => {
  const router = createModelRouter(options, createSeededRandom(1));
  expect(router.resolve("llama-70b", undefined)).toBe("llama-70b");
  expect(router.resolve("constructor", undefined)).toBe("constructor");
});

test("aliases lead on, also to splits", () => {
  const router = createModelRouter(options, createSeededRandom(1));
  expect(router.resolve("nested", undefined)).toBe("llama-70b");
  expect(["llama-70b", "llama-8b"]).toContain(router.resolve("canary", undefined));
  expect(router.names).toEqual(["gpt-4", "canary", "nested", "mixed"]);
  expect(router.targetsOf("canary")).toEqual(["llama-70b", "llama-8b"]);
  expect(router.targetsOf("unknown")).toEqual([]);
});

test("a split follows its weights, and keeps a session on one side", () => {
  const router = createModelRouter(options, createSeededRandom(2));
  const draws = 20_000;
  let small = 0;
  for (let i = 0; i < draws; i++) if (router.resolve("mixed", undefined) === "llama-8b") small++;
  expect(small / draws).toBeCloseTo(0.1, 1.5);

  let smallSessions = 0;
  for (let i = 0; i < draws; i++) {
    const side = router.resolve("mixed", `session-${i}`);
    if (side === "llama-8b") smallSessions++;
    if (i < 50) expect(router.resolve("mixed", `session-${i}`)).toBe(side);
  }
  expect(smallSessions / draws).toBeCloseTo(0.1, 1.5);
});

test("two routers put a session on the same side", () => {
  const a = createModelRouter(options, createSeededRandom(3));
  const b = createModelRouter(options, createSeededRandom(4));
  for (let i = 0; i < 200; i++) expect(a.resolve("mixed", `s${i}`)).toBe(b.resolve("mixed", `s${i}`));
});

test("aliases that lead round in a circle end in an error, not in a loop", () => {
  const router = createModelRouter({ aliases: { a: "b", b: "a" }, splits: {} }, createSeededRandom(1));
  expect(() => router.resolve("a", undefined)).toThrowError(expect.objectContaining({ code: "model_not_found" }));
});
