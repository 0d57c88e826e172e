import { expect, expectTypeOf, test } from "vitest";
import { type Described, json, namedSchemas, type Schema } from "../src/index.ts";

const plain = json.object({ name: json.text(), count: json.nullable(json.integer(), "Null where unknown.") });
const loose = json.looseObject({ required: { name: json.text() }, optional: { age: json.number() }, isOpen: true });

test("an object has all its properties and no others, unless it says so", () => {
  expect(plain).toMatchObject({ type: "object", required: ["name", "count"], additionalProperties: false });
  expect(Object.keys(loose.properties as object)).toEqual(["name", "age"]);
  expect(loose).toMatchObject({ required: ["name"], additionalProperties: true });
});

test("null is another type of a plain value, and another schema beside one with more to say", () => {
  expect(plain.properties.count).toEqual({ type: ["integer", "null"], description: "Null where unknown." });
  expect(json.nullable(json.list(json.text()))).toEqual({ type: ["array", "null"], items: { type: "string" } });
  const others: readonly Schema<unknown>[] = [plain, json.oneOf(["a", "b"]), json.named("Plain", plain)];
  for (const schema of others) {
    expect(json.nullable(schema, "Sometimes.")).toEqual({
      anyOf: [schema, { type: "null" }],
      description: "Sometimes.",
    });
  }
});

test("types of values follow from their schemas", () => {
  const kind = json.oneOf(["a", "b"]);
  expectTypeOf<Described<typeof plain>>().toEqualTypeOf<{ readonly name: string; readonly count: number | null }>();
  expectTypeOf<Described<typeof loose>>().toExtend<{ readonly name: string; readonly age?: number | undefined }>();
  expectTypeOf<Described<typeof kind>>().toEqualTypeOf<"a" | "b">();
  const lists = json.list(json.record(plain));
  expectTypeOf<Described<typeof lists>>().toEqualTypeOf<readonly Readonly<Record<string, Described<typeof plain>>>[]>();
});

test("named schemas are found where they are used, also within each other, and JSON shows only references", () => {
  const inner = json.named("Inner", plain);
  const outer = json.named("Outer", json.object({ inner, again: json.list(inner) }));
  expect(JSON.stringify(outer)).toBe('{"$ref":"#/components/schemas/Outer"}');
  const found = namedSchemas({ answers: [outer, json.nullable(inner)] });
  expect(Object.keys(found)).toEqual(["Outer", "Inner"]);
  expect(found.Inner).toBe(plain);
});

test("two schemas of one name are refused", () => {
  const twice = [json.named("Same", plain), json.named("Same", loose)];
  expect(() => namedSchemas(twice)).toThrow(new TypeError("two schemas are named Same"));
});
