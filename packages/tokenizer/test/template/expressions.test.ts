import { expect, test } from "vitest";
import { type PythonResult, readGolden, renderCompiled } from "./golden.ts";

interface ExpressionCases {
  readonly variables: Readonly<Record<string, unknown>>;
  readonly cases: readonly (PythonResult & { readonly source: string })[];
}

const { variables, cases } = readGolden("expressions.json") as ExpressionCases;

test("there are many random expressions, and Python renders about half of them", () => {
  const rendered = cases.filter(({ expected }) => expected !== undefined).length;
  expect(cases.length).toBeGreaterThan(400);
  expect(rendered / cases.length).toBeGreaterThan(0.3);
});

test.each(cases)("$source", ({ source, expected, error }) => {
  const result = renderCompiled(source, variables);
  if (error) expect(result.error).toBe(error);
  else expect(result).toEqual({ expected });
});

test("no expression changes the request's values", () => {
  const before = JSON.stringify(variables);
  for (const { source } of cases) renderCompiled(source, variables);
  expect(JSON.stringify(variables)).toBe(before);
});
