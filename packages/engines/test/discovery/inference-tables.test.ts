import { expect, test } from "vitest";
import { createInferenceTables, type InferenceObject } from "../../src/discovery/index.ts";

const objective = (name: string, priority: number): InferenceObject => ({
  ...{ kind: "objective", id: `objective ${name}`, name, priority },
});

type Rules = readonly (readonly [models: string, target: string])[];

/** @param rules pairs of models, separated by spaces, and the target of all of their requests */
const rewrite = (name: string, createdAt: string, rules: Rules): InferenceObject => ({
  ...{ kind: "rewrite", id: `rewrite ai/${name}`, name, createdAt },
  rules: rules.map(([models, model]) => ({
    models: models.split(" ").filter(Boolean),
    targets: [{ model, weight: 1 }],
  })),
});

/** Where a model's requests go by rewrites. */
function leadsTo(model: string, ...rewrites: readonly InferenceObject[]): string | undefined {
  const tables = createInferenceTables();
  tables.replace(rewrites);
  return tables.rewriteOf(model)?.targets[0]?.model;
}

test("objectives are known by their names, and their priorities in order", () => {
  const tables = createInferenceTables();
  tables.replace([objective("low", -3), objective("high", 10), objective("also-high", 10), objective("none", 0)]);
  expect(["low", "high", "none", "other", "constructor"].map(tables.priorityOf)).toEqual([
    ...[-3, 10, 0],
    ...[undefined, undefined],
  ]);
  expect(tables.priorities).toEqual([10, 0, -3]);
  tables.replace([]);
  expect([tables.priorityOf("low"), tables.priorities, tables.objectives]).toEqual([undefined, [], []]);
});

test("a rule that names the model takes precedence over one for all, which takes the others", () => {
  const rules: Rules = [
    ["", "general"],
    ["a b", "named"],
  ];
  expect(leadsTo("a", rewrite("x", "2026-01-01T00:00:00Z", rules))).toBe("named");
  expect(leadsTo("b", rewrite("x", "2026-01-01T00:00:00Z", rules))).toBe("named");
  expect(leadsTo("c", rewrite("x", "2026-01-01T00:00:00Z", rules))).toBe("general");
  // Also where the general one is older.
  const older = rewrite("o", "2025-01-01T00:00:00Z", [["", "general"]]);
  expect(leadsTo("a", rewrite("x", "2026-01-01T00:00:00Z", [["a", "named"]]), older)).toBe("named");
});

test("of several rules for a model the oldest rewrite's counts, by name where they are as old, then the first", () => {
  const at = (name: string, createdAt: string) => rewrite(name, createdAt, [["a", name]]);
  expect(leadsTo("a", at("x", "2026-01-02T00:00:00Z"), at("y", "2026-01-01T00:00:00Z"))).toBe("y");
  expect(leadsTo("a", at("y", "2026-01-01T00:00:00Z"), at("x", "2026-01-01T00:00:00Z"))).toBe("x");
  const rules: Rules = [
    ["a", "first"],
    ["a", "second"],
    ["", "general"],
    ["", "later"],
  ];
  expect(leadsTo("a", rewrite("x", "", rules))).toBe("first");
  expect(leadsTo("b", rewrite("x", "", rules))).toBe("general");
});

test("models beyond ten thousand are left out and counted, and count again when there are fewer", () => {
  const tables = createInferenceTables();
  const names = Array.from({ length: 10_001 }, (_, at) => `m${at}`);
  const many = (count: number) => rewrite("x", "", [[names.slice(0, count).join(" "), "target"]]);
  tables.replace([many(10_001)]);
  expect([tables.rewrittenModels.length, tables.ignored]).toEqual([10_000, 1]);
  expect([tables.rewriteOf("m9999") === undefined, tables.rewriteOf("m10000")]).toEqual([false, undefined]);
  tables.replace([many(10_000), objective("o", 1)]);
  expect([tables.rewrittenModels.length, tables.ignored, tables.priorityOf("o")]).toEqual([10_000, 0, 1]);
});

test("who listens is told of each change, until it no longer listens", () => {
  const tables = createInferenceTables();
  const heard: number[] = [];
  const end = tables.onChange(() => heard.push(tables.objectives.length));
  tables.replace([objective("a", 1)]);
  tables.replace([]);
  end();
  tables.replace([objective("a", 1)]);
  expect(heard).toEqual([1, 0]);
});
