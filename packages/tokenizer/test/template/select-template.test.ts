import { describe, expect, test } from "vitest";
import { selectTemplate, specialTokensOf } from "../../src/tokenizer-files.ts";

describe("the template of a request", () => {
  const named = [
    { name: "default", template: "plain" },
    { name: "tool_use", template: "with tools" },
    { name: "rag", template: "with documents" },
  ];

  test.each([
    ["one template", "plain", false, "plain"],
    ["one template, for tools too", "plain", true, "plain"],
    ["a list", named, false, "plain"],
    ["a list with one for tools", named, true, "with tools"],
    ["a list without one for tools", named.slice(0, 1), true, "plain"],
    ["a list without a default", named.slice(1), false, undefined],
    ["no template", undefined, true, undefined],
    ["null", null, false, undefined],
    ["entries that are none", [null, 5, { name: "default" }, { name: 1, template: "x" }], false, undefined],
  ])("from %s", (_, chatTemplate, hasTools, expected) => {
    expect(selectTemplate({ chatTemplate, hasTools })).toBe(expected);
  });

  test("may be in a folder of additional ones", () => {
    const additional = { tool_use: "from the folder" };
    expect(selectTemplate({ chatTemplate: "plain", additional, hasTools: true })).toBe("from the folder");
    expect(selectTemplate({ chatTemplate: "plain", additional, hasTools: false })).toBe("plain");
  });
});

describe("special tokens", () => {
  test("are strings or objects; null leaves them undefined", () => {
    const config = {
      bos_token: null,
      eos_token: { content: "</s>", lstrip: false, special: true },
      pad_token: "<pad>",
      unk_token: { special: true },
      model_max_length: 5,
      chat_template: "x",
    };
    expect(specialTokensOf(config)).toEqual({ eos_token: "</s>", pad_token: "<pad>" });
  });

  test("may have names of the model's own, and a list without names", () => {
    const config = {
      extra_special_tokens: { image_token: "<img>", none: null },
      additional_special_tokens: ["<a>", { content: "<b>" }, 5],
    };
    expect(specialTokensOf(config)).toEqual({ image_token: "<img>", additional_special_tokens: ["<a>", "<b>"] });
    expect(specialTokensOf({ extra_special_tokens: ["<x>"], additional_special_tokens: [] })).toEqual({});
  });
});
