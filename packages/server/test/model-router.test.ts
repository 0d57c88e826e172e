import { createSeededRandom } from "@espalier/core";
import { createInferenceTables } from "@espalier/engines";
import { expect, test } from "vitest";
import { createModelRouter } from "../src/lifecycle/live-config.ts";

const options = {
  rewrites: createInferenceTables(),
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
  const router = createModelRouter({ ...options, aliases: { a: "b", b: "a" }, splits: {} }, createSeededRandom(1));
  expect(() => router.resolve("a", undefined)).toThrowError(expect.objectContaining({ code: "model_not_found" }));
});

type Targets = Readonly<Record<string, number>>;

/** A router with model rewrites of an inference pool, each a rule for one model; `*` is a rule for all. */
function withRewrites(rules: Readonly<Record<string, Targets>>) {
  const rewrites = createInferenceTables();
  const put = (next: typeof rules): void =>
    rewrites.replace([
      {
        ...{ kind: "rewrite", id: "rewrite ai/a", name: "a", createdAt: "" },
        rules: Object.entries(next).map(([model, targets]) => ({
          models: model === "*" ? [] : [model],
          targets: Object.entries(targets).map(([target, weight]) => ({ model: target, weight })),
        })),
      },
    ]);
  put(rules);
  return { put, router: createModelRouter({ ...options, rewrites }, createSeededRandom(5)) };
}

test("a rewrite of an inference pool is a split that changes by itself", () => {
  const { put, router } = withRewrites({ chat: { "llama-70b": 90, "llama-8b": 10 } });
  const sides = Array.from({ length: 2_000 }, () => router.resolve("chat", undefined));
  expect(sides.filter((side) => side === "llama-8b").length / 2_000).toBeCloseTo(0.1, 1.5);
  expect(router.resolve("chat", "s")).toBe(router.resolve("chat", "s"));
  expect(router.names).toContain("chat");
  expect(router.targetsOf("chat")).toEqual(["llama-70b", "llama-8b"]);
  put({});
  expect([router.resolve("chat", undefined), router.targetsOf("chat")]).toEqual(["chat", []]);
  expect(router.names).not.toContain("chat");
});

test("a rewrite is the first step only, then aliases and splits lead on", () => {
  const { router } = withRewrites({ a: { b: 1 }, b: { a: 1 }, chat: { nested: 1 }, "llama-70b": { "llama-70b": 1 } });
  expect([router.resolve("a", undefined), router.resolve("b", undefined)]).toEqual(["b", "a"]);
  expect(router.resolve("chat", undefined)).toBe("llama-70b");
  expect(router.targetsOf("chat")).toEqual(["nested", "llama-70b"]);
  expect(router.resolve("llama-70b", undefined)).toBe("llama-70b");
});

test("names of the configuration are not rewritten, not even by a rule for all models", () => {
  const { router } = withRewrites({ "gpt-4": { other: 1 }, mixed: { other: 1 }, "*": { other: 1 } });
  expect(router.resolve("gpt-4", undefined)).toBe("llama-70b");
  expect(["llama-70b", "llama-8b"]).toContain(router.resolve("mixed", undefined));
  expect(router.resolve("anything", undefined)).toBe("other");
  expect(router.names.filter((name) => name === "gpt-4")).toHaveLength(1);
});
