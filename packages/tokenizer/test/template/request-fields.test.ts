import { describe, expect, test } from "vitest";
import { chatInputOf } from "../../src/chat/chat-input.ts";
import { compileChatTemplate } from "../../src/chat/chat-template.ts";
import { selectTemplate, specialTokensOf } from "../../src/tokenizer-files.ts";
import { goldenClock } from "./golden.ts";

/** Renders a request's body with a template, from the fields that a client sends. */
function renderBody(source: string, body: Readonly<Record<string, unknown>>): string {
  const input = chatInputOf({ messages: [], ...body });
  return compileChatTemplate(source, { clock: goldenClock, contentFormat: "string" }).render(input!);
}

const call = (given: unknown, more: object = {}): unknown => ({
  role: "assistant",
  content: null,
  tool_calls: [{ id: "c1", type: "function", function: { name: "f", arguments: given }, ...more }],
});

describe("the arguments of a call, as templates write them", () => {
  const source = "{{ messages[0].tool_calls[0].function.arguments | tojson }}";

  test.each([
    ['{"a": 1, "b": [true, null]}', '{"a": 1, "b": [true, null]}'],
    ['{"a":1.0}', '{"a": 1.0}'],
    ['{"a":1.50}', '{"a": 1.5}'],
    ['{"a":1e3}', '{"a": 1000.0}'],
    ['{"a":1E-7}', '{"a": 1e-07}'],
    ['{"a":-0.0,"b":-0}', '{"a": -0.0, "b": 0}'],
    ['{"a":12345678901234567890}', '{"a": 12345678901234567890}'],
    ['{"2":"b","1":"a"}', '{"2": "b", "1": "a"}'],
    ['{"b":1,"a":2,"b":3}', '{"b": 3, "a": 2}'],
    ['{"text":"1.5 \\u00e9 \\ud83d\\ude42"}', '{"text": "1.5 é 🙂"}'],
    ['{"a":"</tool_call>"}', '{"a": "</tool_call>"}'],
    ['{"a":NaN}', '{"a": NaN}'],
    ['{"__proto__":1,"constructor":2}', '{"__proto__": 1, "constructor": 2}'],
    [' {"a" : 1 } ', '{"a": 1}'],
    ['{"a":{"b":{"c":[{}]}}}', '{"a": {"b": {"c": [{}]}}}'],
    ["{}", "{}"],
    ["", "{}"],
    ["   ", "{}"],
    ["null", "{}"],
    ["true", "{}"],
    ['"text"', "{}"],
    ["[1]", "{}"],
    ["5", "{}"],
    ["{'a': 1}", "{}"],
    ['{"a": 1', "{}"],
    ['{"a": 1} x', "{}"],
    [undefined, "{}"],
    [null, "{}"],
    [{ a: 1, b: { c: "x" } }, '{"a": 1, "b": {"c": "x"}}'],
    [[1], "{}"],
    [5, "{}"],
    [false, "{}"],
  ])("%j", (given, expected) => {
    expect(renderBody(source, { messages: [call(given)] })).toBe(expected);
  });

  test("other fields of the call and of its function stay", () => {
    const fields = "{{ messages[0].tool_calls[0] | tojson }}";
    expect(renderBody(fields, { messages: [call("{}", { index: 0 })] })).toBe(
      '{"id": "c1", "type": "function", "function": {"name": "f", "arguments": {}}, "index": 0}',
    );
  });

  test("each call of a message and each message has its own", () => {
    const all =
      "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.arguments.n }},{% endfor %};{% endfor %}";
    const two = {
      role: "assistant",
      tool_calls: [{ function: { name: "f", arguments: '{"n":1}' } }, { function: { name: "g", arguments: { n: 2 } } }],
    };
    expect(renderBody(all, { messages: [two, call('{"n":3}')] })).toBe("1,2,;3,;");
  });

  test.each([
    ["user", "False"],
    ["tool", "False"],
    ["system", "False"],
    ["assistant", "True"],
  ])("a message of the role %s has calls: %s", (role, expected) => {
    const message = { role, content: "a", tool_calls: [{ function: { name: "f", arguments: "{}" } }] };
    expect(renderBody("{{ messages[0].tool_calls is defined }}", { messages: [message] })).toBe(expected);
  });
});

describe("the tools, as templates write them", () => {
  const source = "{% for t in tools %}{{ t | tojson }}{% endfor %}";
  const rendered = (tool: unknown): string => renderBody(source, { tools: [tool] });

  test.each([
    [
      "the least that there can be",
      { function: { name: "f" } },
      '{"type": "function", "function": {"name": "f", "description": null, "parameters": null}}',
    ],
    [
      "fields in another order",
      { function: { parameters: {}, description: "d", name: "f" }, type: "function" },
      '{"type": "function", "function": {"name": "f", "description": "d", "parameters": {}}}',
    ],
    [
      "fields of the client's own, which are dropped",
      { x: 1, type: "function", function: { y: 2, name: "f" } },
      '{"type": "function", "function": {"name": "f", "description": null, "parameters": null}}',
    ],
    [
      "parameters, whose keys keep their order",
      { type: "function", function: { name: "f", parameters: { type: "object", properties: { b: {}, a: {} } } } },
      '{"type": "function", "function": {"name": "f", "description": null, "parameters": {"type": "object", "properties": {"b": {}, "a": {}}}}}',
    ],
    [
      "text that is not ASCII",
      { type: "function", function: { name: "f", description: "é🙂<&>" } },
      '{"type": "function", "function": {"name": "f", "description": "é🙂<&>", "parameters": null}}',
    ],
  ])("%s", (_, tool, expected) => {
    expect(rendered(tool)).toBe(expected);
  });

  test.each([[undefined], [null], [[]], ["text"], [{}], [5]])("%j is no tools", (tools) => {
    expect(renderBody("{{ tools is none }}", { tools })).toBe("True");
  });

  test("they stay whatever tool_choice says", () => {
    const tools = [{ type: "function", function: { name: "f" } }];
    for (const choice of ["none", "auto", "required", { type: "function", function: { name: "f" } }]) {
      expect(renderBody("{{ tools | length }}", { tools, tool_choice: choice })).toBe("1");
    }
  });
});

describe("variables of the request", () => {
  const shown = (body: Readonly<Record<string, unknown>>): string =>
    renderBody("{{ a }}|{{ reasoning_effort }}|{{ add_generation_prompt }}", body);

  test.each([
    ["none", {}, "||True"],
    ["text", { chat_template_kwargs: { a: "x" } }, "x||True"],
    ["none as a value", { chat_template_kwargs: { a: null } }, "None||True"],
    ["false", { chat_template_kwargs: { a: false } }, "False||True"],
    ["a list", { chat_template_kwargs: { a: [1] } }, "[1]||True"],
    ["what is no object", { chat_template_kwargs: [1] }, "||True"],
    ["null", { chat_template_kwargs: null }, "||True"],
    ["the effort of reasoning", { reasoning_effort: "high" }, "|high|True"],
    [
      "the effort before the variable",
      { reasoning_effort: "low", chat_template_kwargs: { reasoning_effort: "x" } },
      "|low|True",
    ],
    [
      "no effort but a variable",
      { reasoning_effort: null, chat_template_kwargs: { reasoning_effort: "x" } },
      "|x|True",
    ],
    ["no opened turn", { add_generation_prompt: false }, "||False"],
    ["an opened turn for what is not false", { add_generation_prompt: null }, "||True"],
    [
      "a variable of the opened turn's name, which the field hides",
      { chat_template_kwargs: { add_generation_prompt: 5 } },
      "||True",
    ],
  ])("%s", (_, body, expected) => {
    expect(shown(body)).toBe(expected);
  });

  test("may hide a function of every template, and filters stay", () => {
    const body = { chat_template_kwargs: { range: "r", upper: "u" } };
    expect(renderBody("{{ range }}{{ upper | upper }}", body)).toBe("rU");
  });
});

describe("a model's files", () => {
  test.each([
    [
      "the last of two of one name",
      [
        { name: "default", template: "a" },
        { name: "default", template: "b" },
      ],
      {},
      "b",
    ],
    ["an empty template", "", {}, ""],
    ["a folder alone", undefined, { default: "folder" }, "folder"],
    ["a file before the folder", "file", { default: "folder" }, "file"],
    ["a list before the folder", [{ name: "default", template: "list" }], { default: "folder" }, "list"],
    ["names of JavaScript's own", [{ name: "constructor", template: "x" }], {}, undefined],
    ["a number", 5, {}, undefined],
    ["an object", { default: "x" }, {}, undefined],
  ])("%s", (_, chatTemplate, additional, expected) => {
    expect(selectTemplate({ chatTemplate, additional, hasTools: false })).toBe(expected);
  });

  test("a chat with tools takes an empty template for tools before the default", () => {
    const chatTemplate = [
      { name: "default", template: "a" },
      { name: "tool_use", template: "" },
    ];
    expect(selectTemplate({ chatTemplate, hasTools: true })).toBe("");
  });

  test.each([
    ["no fields", {}, {}],
    ["an empty token, which is one", { bos_token: "" }, { bos_token: "" }],
    ["a token without content", { eos_token: {} }, {}],
    ["a token of another type", { eos_token: 5, pad_token: ["x"] }, {}],
    [
      "a named token of the model's own in place of a usual one",
      { extra_special_tokens: { bos_token: "<b>" } },
      { bos_token: "<b>" },
    ],
    [
      "both, of which the model's own stays",
      { bos_token: "<a>", extra_special_tokens: { bos_token: "<b>" } },
      { bos_token: "<b>" },
    ],
    ["a list without any text", { additional_special_tokens: [5, null] }, { additional_special_tokens: [] }],
    [
      "all the usual names",
      Object.fromEntries(["bos", "eos", "unk", "sep", "pad", "cls", "mask"].map((n) => [`${n}_token`, n])),
      Object.fromEntries(["bos", "eos", "unk", "sep", "pad", "cls", "mask"].map((n) => [`${n}_token`, n])),
    ],
  ])("special tokens: %s", (_, config, expected) => {
    expect(specialTokensOf(config)).toEqual(expected);
  });
});
