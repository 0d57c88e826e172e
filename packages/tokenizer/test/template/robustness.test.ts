import { describe, expect, test } from "vitest";
import { compileChatTemplate } from "../../src/chat/chat-template.ts";
import {
  maxCallDepth,
  maxRangeLength,
  maxSourceChars,
  maxSteps,
  maxTextChars,
  maxValueDepth,
  TemplateError,
} from "../../src/template/template-error.ts";
import { goldenClock } from "./golden.ts";

const compile = (source: string) => compileChatTemplate(source, { clock: goldenClock });

function errorOf(source: string, variables: Readonly<Record<string, unknown>> = {}): TemplateError {
  try {
    compile(source).render({ messages: [], variables });
  } catch (error) {
    if (error instanceof TemplateError) return error;
    throw error;
  }
  throw new Error(`no error from ${source.slice(0, 100)}`);
}

const render = (source: string, variables: Readonly<Record<string, unknown>> = {}): string =>
  compile(source).render({ messages: [], variables });

describe("what a template refuses", () => {
  test("its own words come through", () => {
    const error = errorOf("{{ raise_exception('Only two roles.') }}");
    expect(error).toMatchObject({ name: "TemplateError", reason: "raised", message: "Only two roles." });
  });

  test.each([
    ["{{ 'a' + 1 }}", "value"],
    ["{{ nothing.at.all }}", "value"],
    ["{% if %}", "syntax"],
    ["{{ 1 +", "syntax"],
    ["{% for a in b %}", "syntax"],
    ["{% include 'x' %}", "syntax"],
    ["{{ '\\q' }}", "syntax"],
    ["{% set a[0] = 1 %}", "syntax"],
    ["{% set a() = 1 %}", "syntax"],
  ])("%s is an error of kind %s", (source, reason) => {
    expect(errorOf(source).reason).toBe(reason);
  });

  test("a name that does not exist does no harm in a branch that is not taken", () => {
    expect(render("{% if false %}{{ 1 | nonsense }}{{ 2 is nonsense }}{% endif %}fine")).toBe("fine");
  });
});

describe("bounds", () => {
  const nested = (turns: number): string =>
    `{% for a in range(1000) %}{% for b in range(${turns}) %}{% endfor %}{% endfor %}`;

  test("steps of all loops together", () => {
    expect(render(nested(maxSteps / 1000 - 1))).toBe("");
    expect(errorOf(nested(maxSteps / 1000))).toMatchObject({ reason: "limit" });
  });

  test("steps of a loop's test count too", () => {
    const source = "{% for a in range(1000) %}{% for b in range(1000) if false %}{% endfor %}{% endfor %}";
    expect(errorOf(source)).toMatchObject({ reason: "limit" });
  });

  test("length of the text", () => {
    const source = "{% for a in range(64) %}{{ piece }}{% endfor %}{{ more }}";
    const piece = "x".repeat(maxTextChars / 64);
    expect(render(source, { piece }).length).toBe(maxTextChars);
    expect(errorOf(source, { piece, more: "y" })).toMatchObject({ reason: "limit" });
  });

  test.each([
    ["doubling", "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}"],
    ["adding", "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}"],
    ["repetition", `{{ 'a' * ${maxTextChars + 1} }}`],
    ["a format's width", `{{ '%${maxTextChars + 1}d' % 5 }}`],
    ["lists", "{% set ns = namespace(l=[0]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}"],
    ["repeated lists", "{{ [0] * 1000001 }}"],
    ["products", "{% set ns = namespace(n=3) %}{% for i in range(60) %}{% set ns.n = ns.n * ns.n %}{% endfor %}"],
    ["indents", "{{ 'a\nb' | indent(1001) }}"],
  ])("growth by %s", (_, source) => {
    expect(errorOf(source)).toMatchObject({ reason: "limit" });
  });

  test("elements of a range", () => {
    expect(render(`{{ range(${maxRangeLength}) | length }}`)).toBe(String(maxRangeLength));
    expect(errorOf(`{{ range(${maxRangeLength + 1}) | length }}`)).toMatchObject({ reason: "limit" });
  });

  test("macros that call themselves", () => {
    const source = "{% macro down(n) %}{% if n > 0 %}{{ down(n - 1) }}{% endif %}{{ n }}{% endmacro %}";
    expect(render(`${source}{{ down(${maxCallDepth - 1}) | length }}`)).not.toBe("");
    expect(errorOf(`${source}{{ down(${maxCallDepth}) }}`)).toMatchObject({ reason: "limit" });
    expect(errorOf("{% macro ever() %}{{ ever() }}{% endmacro %}{{ ever() }}")).toMatchObject({ reason: "limit" });
  });

  test("depth of values that are written or compared", () => {
    const deep = (depth: number): unknown => (depth === 0 ? [] : [deep(depth - 1)]);
    for (const source of ["{{ x | tojson | length }}", "{{ x | string | length }}", "{{ x == y }}"]) {
      expect(render(source, { x: deep(maxValueDepth), y: deep(maxValueDepth) })).not.toBe("");
      const tooDeep = { x: deep(maxValueDepth + 1), y: deep(maxValueDepth + 1) };
      expect(errorOf(source, tooDeep)).toMatchObject({ reason: "limit" });
    }
  });

  test("length of the source", () => {
    expect(compile("x".repeat(maxSourceChars)).render({ messages: [] }).length).toBe(maxSourceChars);
    expect(() => compile("x".repeat(maxSourceChars + 1))).toThrow(TemplateError);
  });

  test("an expression nested beyond the stack is an error like any other", () => {
    const source = `{{ ${"(".repeat(20_000)}1${")".repeat(20_000)} }}`;
    expect(() => compile(source)).toThrow(TemplateError);
  });
});

describe("keys of JavaScript's own", () => {
  const names = ["__proto__", "constructor", "toString", "hasOwnProperty", "valueOf", "length", "prototype"];

  test.each(names)("%s is a missing key like any other", (name) => {
    const source = `{{ m['${name}'] is defined }} {{ m.get('${name}') }} {{ '${name}' in m }} {{ m.${name} is defined }}`;
    expect(render(source, { m: { role: "user" } })).toBe("False None False False");
    expect(render(source, { m: new Map([["role", "user"]]) })).toBe("False None False False");
  });

  test.each(names)("%s is a key when a message has it", (name) => {
    const m: unknown = JSON.parse(`{"${name}": "own"}`);
    expect(render(`{{ m['${name}'] }} {{ m | tojson }} {{ m | list }}`, { m })).toBe(
      `own {"${name}": "own"} ['${name}']`,
    );
  });

  test.each(names)("%s is no variable, filter, test or method", (name) => {
    expect(render(`{{ ${name} is defined }}`)).toBe("False");
    expect(errorOf(`{{ 1 | ${name} }}`).message).toBe(
      name === "length" ? "object of type 'int' has no len()" : `the renderer does not support the filter '${name}'`,
    );
    expect(errorOf(`{{ 1 is ${name} }}`).message).toBe(`the renderer does not support the test '${name}'`);
    expect(errorOf(`{{ 'a'.${name}() }}`).reason).toBe("value");
    expect(errorOf(`{{ [1].${name}() }}`).reason).toBe("value");
    const ofLoop = `{% for x in [1] %}{{ loop.${name} }}{% endfor %}`;
    if (name === "length") expect(render(ofLoop)).toBe("1");
    else expect(errorOf(ofLoop).message).toBe(`the renderer does not support the attribute loop.${name}`);
  });

  test("a namespace and a macro's arguments can have them", () => {
    expect(render("{% set ns = namespace(constructor=1) %}{{ ns.constructor }}{{ ns.toString is defined }}")).toBe(
      "1False",
    );
    expect(render("{% macro m(constructor) %}{{ constructor }}{% endmacro %}{{ m(constructor=2) }}")).toBe("2");
  });
});
