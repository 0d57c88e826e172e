import { describe, expect, test } from "vitest";
import { readRequestView } from "../src/index.ts";
import { chat, completions, errorOf, generate, responses, smallChat, viewOf } from "./helpers.ts";

/** A body whose nesting is `depth` levels, the body's own object included. */
function nested(depth: number, open = "[", close = "]"): Buffer {
  const inner = open.repeat(depth - 1) + (open === "[" ? "" : "1") + close.repeat(depth - 1);
  return Buffer.from(`{"model":"m","messages":[{}],"x":${inner}}`);
}

describe("nesting", () => {
  test.each([
    ["arrays", "[", "]"],
    ["objects", '{"a":', "}"],
  ])("%s: the limit is accepted, one level past it is not", (_, open, close) => {
    expect(readRequestView(chat, nested(10, open, close), { maxDepth: 10 }).model).toBe("m");
    const error = errorOf(() => readRequestView(chat, nested(11, open, close), { maxDepth: 10 }));
    expect(error.code).toBe("nesting_too_deep");
    expect(error.message).toContain("10");
  });

  test("the smallest possible limit admits a flat object only", () => {
    expect(readRequestView(completions, Buffer.from('{"model":"m","prompt":"x"}'), { maxDepth: 1 }).model).toBe("m");
    const one = Buffer.from('{"model":"m","prompt":["x"]}');
    expect(errorOf(() => readRequestView(completions, one, { maxDepth: 1 })).code).toBe("nesting_too_deep");
  });

  test("brackets in texts do not count", () => {
    const content = '[[[[{{{{"[\\'.repeat(1_000);
    const body = { model: "m", messages: [{ content }] };
    expect(readRequestView(chat, Buffer.from(JSON.stringify(body)), { maxDepth: 3 }).promptBytes).toBe(content.length);
  });

  test("brackets one after the other do not add up", () => {
    const body = `{"model":"m","messages":[{}],"x":[${"[],{},".repeat(5_000)}[]]}`;
    expect(viewOf(chat, body).model).toBe("m");
  });

  test.each([
    ["arrays", "["],
    ["objects", '{"a":'],
    ["both", '[{"a":'],
  ])("a million levels of %s are refused before anything is parsed", (_, open) => {
    const error = errorOf(() => viewOf(chat, `{"x":${open.repeat(1_000_000)}`));
    expect(error.code).toBe("nesting_too_deep");
  });

  test("a million levels at the root, closed or not, are refused too", () => {
    expect(errorOf(() => viewOf(chat, "[".repeat(1_000_000))).code).toBe("nesting_too_deep");
    const closed = "[".repeat(1_000_000) + "]".repeat(1_000_000);
    expect(errorOf(() => viewOf(chat, closed)).code).toBe("nesting_too_deep");
  });

  test("levels behind the end of the object are malformed, however many", () => {
    expect(errorOf(() => viewOf(chat, `{}${"[".repeat(1_000_000)}`)).code).toBe("invalid_json");
  });
});

describe("one past each bound", () => {
  const withKeys = (count: number) => {
    const fillers = Array.from({ length: count - 2 }, (_, index) => [`k${index}`, index]);
    return { ...smallChat, ...Object.fromEntries(fillers) };
  };

  test("1,024 top-level keys", () => {
    expect(viewOf(chat, withKeys(1_024)).spans.size).toBe(1_024);
    const error = errorOf(() => viewOf(chat, withKeys(1_025)));
    expect(error.code).toBe("invalid_value");
    expect(error.message).toContain("1024");
  });

  test("any number of nested keys", () => {
    expect(viewOf(chat, { ...smallChat, metadata: withKeys(2_000) }).model).toBe("m");
  });

  test("model of 256 characters", () => {
    expect(viewOf(chat, { ...smallChat, model: "x".repeat(256) }).model).toBe("x".repeat(256));
    const error = errorOf(() => viewOf(chat, { ...smallChat, model: "x".repeat(257) }));
    expect([error.code, error.param]).toEqual(["invalid_value", "model"]);
    expect(error.message).not.toContain("xxx");
  });

  test("previous_response_id of 256 characters; a longer one is left to the engine", () => {
    const read = (id: string) =>
      viewOf(responses, { model: "m", input: "x", previous_response_id: id }).previousResponseId;
    expect(read("x".repeat(256))).toBe("x".repeat(256));
    expect(read("x".repeat(257))).toBeUndefined();
  });

  test("16,384 choices", () => {
    expect(viewOf(chat, { ...smallChat, n: 16_384 }).choices).toBe(16_384);
    expect(errorOf(() => viewOf(chat, { ...smallChat, n: 16_385 })).param).toBe("n");
    const batch = { text: "x", sampling_params: { n: 16_385 } };
    expect(errorOf(() => viewOf(generate, batch)).param).toBe("sampling_params.n");
  });

  test("output tokens and priority within what a double counts exactly", () => {
    const most = Number.MAX_SAFE_INTEGER;
    expect(viewOf(chat, { ...smallChat, max_tokens: most, priority: -most })).toMatchObject({
      maxOutputTokens: most,
      priority: -most,
    });
    expect(viewOf(chat, { ...smallChat, max_tokens: most + 1, priority: -most - 1 })).toMatchObject({
      maxOutputTokens: most,
      priority: Number.NaN,
    });
    expect(viewOf(chat, '{"model":"m","messages":[{}],"max_tokens":1e999}').maxOutputTokens).toBe(most);
  });
});
