import { expect, expectTypeOf, test } from "vitest";
import { closed, type Described, nullable, record, Type } from "../src/schema.ts";

const plain = closed({ name: Type.String(), count: nullable(Type.Integer(), { description: "Null where unknown." }) });

test("a closed object has its properties and no others", () => {
  expect(plain).toMatchObject({ type: "object", required: ["name", "count"], additionalProperties: false });
  expect(plain.properties.count).toMatchObject({ description: "Null where unknown." });
});

test("a record has any names, and says so in the way that generators of clients read", () => {
  const schema = JSON.parse(JSON.stringify(record(Type.Number(), { description: "By tier." })));
  expect(schema).toEqual({ type: "object", additionalProperties: { type: "number" }, description: "By tier." });
});

test("types of values follow from their schemas, and cannot be changed", () => {
  expectTypeOf<Described<typeof plain>>().toEqualTypeOf<{ readonly name: string; readonly count: number | null }>();
  const lists = Type.Array(record(Type.Enum(["a", "b"])));
  expectTypeOf<Described<typeof lists>>().toEqualTypeOf<readonly { readonly [name: string]: "a" | "b" }[]>();
});
