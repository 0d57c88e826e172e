import { describe, expect, test } from "vitest";
import { parseTemplate, testOfFilterName, walkNodes } from "../../src/template/parse.ts";
import { renderCompiled } from "./golden.ts";

const namesOf = (source: string): string[] => {
  const names: string[] = [];
  walkNodes(parseTemplate(source), (node) => {
    if (node.type === "Identifier") names.push(node.value);
  });
  return names;
};

describe("tests with arguments", () => {
  test.each([
    ["{{ x is divisibleby(3) }}", "divisibleby", false],
    ["{{ x is divisibleby 3 }}", "divisibleby", false],
    ["{{ x is not in [1, 2] }}", "in", true],
    ["{{ x is eq y.z[0](1) }}", "eq", false],
  ])("%s", (source, name, negate) => {
    const found = namesOf(source).map(testOfFilterName).filter(Boolean);
    expect(found).toEqual([{ name, negate }]);
  });

  test.each([
    ["{{ x is defined and y }}"],
    ["{{ x is none or y }}"],
    ["{{ x is string if y else z }}"],
    ["{{ x is defined is true }}"],
    ["{{ x.is }}"],
  ])("%s has none", (source) => {
    expect(namesOf(source).some((name) => testOfFilterName(name))).toBe(false);
  });

  test("a name that no template can write marks them", () => {
    expect(() => parseTemplate("{{ x | is odd }}")).toThrow("cannot be read");
    expect(testOfFilterName("is")).toBeUndefined();
    expect(testOfFilterName("isodd")).toBeUndefined();
  });

  test("they bind as tightly as other tests", () => {
    const variables = { x: 9, l: [1, 9] };
    expect(renderCompiled("{{ x is gt 3 and x is in l and not x is eq 8 }}", variables)).toEqual({
      expected: "True",
    });
    expect(renderCompiled("{{ 1 if x is lt(2) else 2 }}{{ x is eq x is true }}", variables)).toEqual({
      expected: "2True",
    });
    expect(renderCompiled("{{ [x is gt 8, x is lt(8)] }}", variables)).toEqual({ expected: "[True, False]" });
  });
});

describe("line ends", () => {
  test("all are read as \\n", () => {
    expect(renderCompiled("a\r\nb\rc\n")).toEqual({ expected: "a\nb\nc" });
  });

  test("one at the very end is dropped", () => {
    expect(renderCompiled("a\n\n")).toEqual({ expected: "a\n" });
    expect(renderCompiled("a\r\n")).toEqual({ expected: "a" });
  });
});
