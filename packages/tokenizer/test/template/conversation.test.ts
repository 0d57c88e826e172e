import { describe, expect, test } from "vitest";
import type { ContentFormat } from "../../src/chat/chat-dialect.ts";
import { toTools } from "../../src/chat/chat-input.ts";
import { toConversation } from "../../src/chat/conversation.ts";
import { PyFloat } from "../../src/template/values.ts";

const one = (message: unknown, format: ContentFormat = "string") => toConversation([message], format).messages[0];

describe("content for a template of strings", () => {
  test.each([
    ["text", "hello", "hello"],
    ["nothing", null, ""],
    ["an absent field", undefined, ""],
    [
      "parts of text, which lines join",
      [
        { type: "text", text: "a" },
        { type: "text", text: "b" },
      ],
      "a\nb",
    ],
    ["bare strings among parts", ["a", { type: "text", text: "b" }], "a\nb"],
    ["empty parts, which are left out", [{ type: "text", text: "a" }, { type: "text", text: "" }, "c"], "a\nc"],
    ["a part of text without any", [{ type: "text", text: null }, "c"], "c"],
    [
      "other types that are text",
      [
        { type: "input_text", text: "a" },
        { type: "refusal", refusal: "b" },
        { type: "thinking", thinking: "c" },
        { type: "output_text", text: "d" },
      ],
      "a\nb\nc\nd",
    ],
    [
      "an image, for which the engine has a placeholder",
      [
        { type: "text", text: "a" },
        { type: "image_url", image_url: { url: "x" } },
      ],
      "a",
    ],
    ["no parts", [], ""],
  ])("%s", (_, content, expected) => {
    expect(one({ role: "user", content })).toEqual({ role: "user", content: expected });
  });

  test.each([[5], [{ text: "a" }], [true]])("%j is refused", (content) => {
    expect(() => one({ role: "user", content })).toThrow("neither text nor parts");
    expect(() => one({ role: "user", content }, "openai")).toThrow("neither text nor parts");
  });
});

describe("content for a template of parts", () => {
  test.each([
    ["text", "hello", [{ type: "text", text: "hello" }]],
    ["nothing", null, []],
    ["bare strings", ["a"], [{ type: "text", text: "a" }]],
    ["an empty text", "", [{ type: "text", text: "" }]],
    ["a part of text without any", [{ type: "text" }, "b"], [{ type: "text", text: "b" }]],
    ["an image", [{ type: "image_url", image_url: { url: "x" } }], [{ type: "image" }]],
    ["a reference to a tool", [{ type: "tool_reference", name: "f" }], [{ type: "tool_reference", name: "f" }]],
  ])("%s", (_, content, expected) => {
    expect(one({ role: "user", content }, "openai")).toEqual({ role: "user", content: expected });
  });

  test("a part of no known type is refused", () => {
    expect(() => one({ role: "user", content: [{ type: "hologram" }] }, "openai")).toThrow("unknown type");
    expect(() => one({ role: "user", content: [7] }, "openai")).toThrow("unknown type");
  });

  test("a tool's answer is one string as long as it is text", () => {
    const content = [
      { type: "text", text: "a" },
      { type: "text", text: "b" },
    ];
    expect(one({ role: "tool", tool_call_id: "1", content }, "openai")).toEqual({
      role: "tool",
      content: "a\nb",
      tool_call_id: "1",
    });
    const mixed = [
      { type: "text", text: "a" },
      { type: "image_url", image_url: { url: "x" } },
    ];
    expect(one({ role: "tool", content: mixed }, "openai")).toEqual({
      role: "tool",
      content: [{ type: "text", text: "a" }, { type: "image" }],
    });
  });
});

describe("other fields", () => {
  test("only those that the engine passes on are left", () => {
    expect(one({ role: "user", content: "a", name: "Ann", tool_call_id: "x", custom: 1 })).toEqual({
      role: "user",
      content: "a",
      name: "Ann",
    });
    expect(one({ role: "tool", content: "a", tool_call_id: "x", tool_calls: [] })).toEqual({
      role: "tool",
      content: "a",
      tool_call_id: "x",
    });
    expect(one({ role: "developer", content: "a", tools: [1] })).toEqual({
      role: "developer",
      content: "a",
      tools: [1],
    });
    expect(one({ role: "developer", content: "a" })).toEqual({ role: "developer", content: "a", tools: null });
  });

  test("reasoning has both of its names", () => {
    const both = { role: "assistant", content: "a", reasoning: "r", reasoning_content: "r" };
    expect(one({ role: "assistant", content: "a", reasoning: "r" })).toEqual(both);
    expect(one({ role: "assistant", content: "a", reasoning_content: "r" })).toEqual(both);
    expect(one({ role: "assistant", content: "a", reasoning: null })).toEqual({ role: "assistant", content: "a" });
  });

  test("an empty list of calls is as good as none, so that templates take it for a plain answer", () => {
    expect(one({ role: "assistant", content: "a", tool_calls: [] })).toEqual({ role: "assistant", content: "a" });
    expect(one({ role: "assistant", content: "a", tool_calls: null })).toEqual({ role: "assistant", content: "a" });
  });

  const argumentsOf = (value: unknown): unknown => {
    const call = { id: "1", type: "function", function: { name: "f", arguments: value } };
    const message = one({ role: "assistant", content: null, tool_calls: [call] }) as {
      tool_calls: [{ function: { arguments: unknown } }];
    };
    return message.tool_calls[0].function.arguments;
  };

  test.each([
    ["JSON text", '{"a":[1,"x",null,true]}', { a: [1, "x", null, true] }],
    ["an object", { a: 1 }, { a: 1 }],
    ["no text", "", {}],
    ["nothing", null, {}],
    ["broken JSON", '{"a":', {}],
    ["a list", "[1]", {}],
    ["a number", "5", {}],
  ])("arguments of a call given as %s", (_, given, expected) => {
    expect(argumentsOf(given)).toEqual(expected);
  });

  test("arguments keep floats, large integers and the order of their keys", () => {
    const parsed = argumentsOf('{"b":1.0,"2":9007199254740993,"1":-0.5e1}');
    expect(parsed).toEqual(
      new Map<string, unknown>([
        ["b", new PyFloat(1)],
        ["2", 9007199254740993n],
        ["1", new PyFloat(-5)],
      ]),
    );
  });

  test("the request's own messages are left alone", () => {
    const call = Object.freeze({ id: "1", function: Object.freeze({ name: "f", arguments: "{}" }) });
    const message = Object.freeze({ role: "assistant", content: null, tool_calls: Object.freeze([call]) });
    expect(() => one(message)).not.toThrow();
  });

  test.each([[null], ["text"], [[]]])("a message that is %j is refused", (message) => {
    expect(() => one(message)).toThrow("messages[0] is not an object");
  });

  test.each([[[5]], [[{}]], [[{ function: "f" }]]])("calls that are %j are refused", (calls) => {
    expect(() => one({ role: "assistant", content: "a", tool_calls: calls })).toThrow("no function");
  });
});

describe("the first message with a part that is not text", () => {
  const image = { type: "image_url", image_url: { url: "x" } };

  test.each([
    ["none", [{ role: "user", content: "a" }], undefined],
    [
      "in the second message",
      [
        { role: "user", content: "a" },
        { role: "user", content: ["b", image, image] },
      ],
      1,
    ],
    [
      "twice",
      [
        { role: "user", content: [image] },
        { role: "user", content: [image] },
      ],
      0,
    ],
  ])("%s", (_, messages, expected) => {
    expect(toConversation(messages, "openai").firstWithParts).toEqual(expected);
    expect(toConversation(messages, "string").firstWithParts).toEqual(expected);
  });
});

describe("tools", () => {
  test("have the engine's own fields first, present even when the request leaves them out", () => {
    const tools = [
      { function: { strict: true, parameters: { type: "object" }, name: "f" }, extra: 1, type: "function" },
    ];
    expect(JSON.stringify(toTools(tools, "vllm-0.23"))).toBe(
      '[{"type":"function","function":{"name":"f","description":null,"parameters":{"type":"object"},"strict":true},"extra":1}]',
    );
  });

  test("are functions when they do not say", () => {
    expect(toTools([{ function: { name: "f" } }], "vllm-0.23")[0]).toMatchObject({ type: "function" });
  });

  test.each([[[1]], [[{}]], [[{ type: "function" }]]])("%j are refused", (tools) => {
    expect(() => toTools(tools, "vllm-0.23")).toThrow("a tool has no function");
  });
});
