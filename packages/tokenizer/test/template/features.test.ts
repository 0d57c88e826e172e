import { describe, expect, test } from "vitest";
import { type FeatureCase, readGolden, renderCompiled, renderInterpreted } from "./golden.ts";

const cases = readGolden("features.json") as FeatureCase[];

describe.each([...new Set(cases.map(({ about }) => about))])("%s", (about) => {
  test.each(cases.filter((one) => one.about === about))(
    "$source",
    ({ source, variables, expected, error, message }) => {
      const result = renderCompiled(source, variables);
      if (error === "value") expect(result.error).toBe("value");
      else expect(result).toEqual(error ? { error, message } : { expected });
    },
  );
});

test("the interpreter of the library agrees with Python in fewer cases, which is why templates are compiled", () => {
  const rendered = cases.filter(({ expected }) => expected !== undefined);
  const agreeing = rendered.filter((one) => renderInterpreted(one.source, one.variables) === one.expected);
  expect(agreeing.length).toBeGreaterThan(20);
  expect(agreeing.length).toBeLessThan(rendered.length);
});
