import { endpoints } from "@espalier/openai";
import { expect, test } from "vitest";
import { endpointOf } from "../../src/explain/endpoint-of.ts";

const guess = (body: unknown, headers = {}) =>
  endpointOf({ named: undefined, headers, body: Buffer.from(JSON.stringify(body)) }).id;
const named = (name: string) => endpointOf({ named: name, headers: {}, body: Buffer.from("no JSON") });

test.each([
  [{ messages: [] }, "chat"],
  [{ messages: [], system: "be kind" }, "messages"],
  [{ messages: [], prompt: "both" }, "chat"],
  [{ prompt: "hello" }, "completions"],
  [{ prompt_embeds: "AAAA" }, "completions"],
  [{ input: "hello" }, "responses"],
  [{ text: "hello" }, "generate"],
  [{ input_ids: [1] }, "generate"],
])("%j is for %s", (body, id) => {
  expect(guess(body)).toBe(id);
});

test("a client that names a version of Anthropic's API means its messages", () => {
  expect(guess({ messages: [] }, { "anthropic-version": "2023-06-01" })).toBe("messages");
});

test.each(["{}", "[]", '"messages"', "null", '{"model":"tiny"}', '{"__proto__":{"messages":[]}}'])(
  "%s does not tell",
  (body) => {
    expect(() => endpointOf({ named: undefined, headers: {}, body: Buffer.from(body) })).toThrow(
      expect.objectContaining({ code: "invalid_value", param: "endpoint" }),
    );
  },
);

test("what is no JSON is refused as such", () => {
  expect(() => endpointOf({ named: undefined, headers: {}, body: Buffer.from("{") })).toThrow(
    expect.objectContaining({ code: "invalid_json" }),
  );
});

test("an endpoint that is named, by id or path, is taken whatever the body; names of none are refused", () => {
  for (const { id, path } of endpoints) {
    expect(named(id).id).toBe(id);
    expect(named(path).path).toBe(path);
  }
  expect(() => named("chta")).toThrow(
    expect.objectContaining({
      code: "invalid_value",
      message: expect.stringContaining("there are chat, completions,"),
    }),
  );
  expect(() => named("")).toThrow(expect.objectContaining({ code: "invalid_value" }));
});
