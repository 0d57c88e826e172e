import { describe, expect, test } from "vitest";
import { type ChatDialect, chatDialectOf, chatDialects } from "../../src/chat/chat-dialect.ts";
import { chatInputOf } from "../../src/chat/chat-input.ts";
import { compileChatTemplate } from "../../src/chat/chat-template.ts";
import { goldenClock } from "./golden.ts";

const messages = [{ role: "user", content: "Hi" }];
const vllm = ["vllm-0.23", "vllm-0.32"] as const;

function render(source: string, body: Readonly<Record<string, unknown>>, dialect: ChatDialect): string {
  return compileChatTemplate(source, { clock: goldenClock }).render(chatInputOf({ messages, ...body }, dialect)!);
}

test.each([
  ["vllm", "0.32.0", "vllm-0.32"],
  ["vllm", "0.26.1", "vllm-0.32"],
  ["vllm", "0.25.1", "vllm-0.23"],
  ["vllm", "v0.9.2+cpu", "vllm-0.23"],
  ["vllm", "1.0.0", "vllm-0.32"],
  ["vllm", "dev", "vllm-0.32"],
  ["vllm", undefined, "vllm-0.32"],
  ["sglang", "0.5.23", "sglang-0.5.23"],
  [undefined, undefined, "vllm-0.32"],
])("%s %s goes by the rules of %s", (kind, version, dialect) => {
  expect(chatDialectOf(kind, version)).toBe(dialect);
});

/**
 * Conversations with `developer` messages never matched what the engine caches, 46 tokens against 30: a template that does
 * not name the role was given it all the same, where vLLM makes messages of the system of them, and one of all of those.
 */
describe("messages of the developer", () => {
  const chatml = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}";
  const turns = (...roles: readonly string[]) => ({ messages: roles.map((role, at) => ({ role, content: `${at}` })) });

  test.each(vllm)("%s: are the system's where the template does not name the role, and all of these are one", (of) => {
    expect(render(chatml, turns("developer", "user"), of)).toBe("<system>0<user>1");
    expect(render(chatml, turns("user", "developer", "assistant"), of)).toBe("<system>1<user>0<assistant>2");
    expect(render(chatml, turns("system", "developer", "user", "system"), of)).toBe("<system>0\n\n1\n\n3<user>2");
    expect(render(chatml, turns("user", "developer", "user"), of)).toBe("<system>1<user>0<user>2");
  });

  test.each(vllm)(
    "%s: stay where the template names the role, and without any the system's stay where they are",
    (of) => {
      for (const name of ["'developer'", '"developer"']) {
        const source = `{% if false %}{{ ${name} }}{% endif %}${chatml}`;
        expect(render(source, turns("user", "developer"), of)).toBe("<user>0<developer>1");
      }
      expect(render(chatml, turns("user", "system", "user"), of)).toBe("<user>0<system>1<user>2");
    },
  );

  test("parts of text are lines of the merged message, and empty messages leave nothing", () => {
    const content = [
      { type: "text", text: "a" },
      { type: "text", text: "b" },
    ];
    const source = `{% for m in messages %}{% for c in m.content %}{% endfor %}{% endfor %}${chatml}`;
    const body = { messages: [...messages, { role: "developer", content }, { role: "system", content: "" }] };
    expect(render(source, body, "vllm-0.32")).toBe("<system>a\nb<user>[{'type': 'text', 'text': 'Hi'}]");
  });

  test("the text is the prompt's up to the first image, wherever its message has gone", () => {
    const image = { type: "image_url", image_url: { url: "u" } };
    const template = compileChatTemplate(chatml, { clock: goldenClock });
    const seen = (...given: readonly object[]) => {
      const { text, textUntil } = template.renderChat(chatInputOf({ messages: given }, "vllm-0.32")!);
      return text.slice(0, textUntil);
    };
    const developer = { role: "developer", content: "D" };
    const user = { role: "user", content: [{ type: "text", text: "a" }, image] };
    expect(seen(messages[0]!, user, developer)).toBe("<system>D<user>Hi<user>");
    expect(seen(messages[0]!, { role: "developer", content: [image] })).toBe("<system>");
  });

  test("sglang: stay what they are", () => {
    expect(render(chatml, turns("user", "developer"), "sglang-0.5.23")).toBe("<user>0<developer>1");
  });
});

describe("the effort of reasoning", () => {
  const source = "{{ enable_thinking }}|{{ reasoning_effort }}";
  test.each([
    [{ reasoning_effort: "low" }, "True|low", "|low"],
    [{ reasoning_effort: "none" }, "False|none", "|none"],
    [{}, "|", "|"],
    [{ reasoning_effort: null }, "|", "|"],
    [{ reasoning_effort: "high", chat_template_kwargs: { enable_thinking: false } }, "False|high", "False|high"],
    [{ reasoning_effort: "high", chat_template_kwargs: { reasoning_effort: "low" } }, "True|high", "|low"],
  ])("%j: %s for vLLM, %s for SGLang", (body, forVllm, forSglang) => {
    for (const dialect of vllm) expect(render(source, body, dialect)).toBe(forVllm);
    expect(render(source, body, "sglang-0.5.23")).toBe(forSglang);
  });
});

/**
 * Prompts with tools matched nothing behind the first unknown field (`cache_control`) on vLLM, or behind the first tool on
 * SGLang: each engine dumps its own model of a tool, whatever the request has.
 */
describe("tools, as a template dumps them", () => {
  const source = "{% if tools %}{% for t in tools %}{{ t | tojson }}{% endfor %}{% endif %}";
  const tool = {
    cache_control: { type: "ephemeral" },
    function: { parameters: { type: "object" }, name: "f", strict: true, extra: 1 },
    type: "function",
  };
  const plain = { type: "function", function: { name: "g", description: "d", parameters: {}, strict: null } };

  test.each([
    [
      "vllm-0.23",
      '{"type": "function", "function": {"name": "f", "description": null, "parameters": {"type": "object"}, "strict": true, ' +
        '"extra": 1}, "cache_control": {"type": "ephemeral"}}' +
        '{"type": "function", "function": {"name": "g", "description": "d", "parameters": {}, "strict": null}}',
    ],
    [
      "vllm-0.32",
      '{"type": "function", "function": {"name": "f", "description": null, "parameters": {"type": "object"}, "strict": true}}' +
        '{"type": "function", "function": {"name": "g", "description": "d", "parameters": {}}}',
    ],
    [
      "sglang-0.5.23",
      '{"type": "function", "function": {"parameters": {"type": "object"}, "name": "f", "strict": true, "description": null}, ' +
        '"defer_loading": null}' +
        '{"type": "function", "function": {"name": "g", "description": "d", "parameters": {}}, "defer_loading": null}',
    ],
  ] as const)("%s", (dialect, expected) => {
    expect(render(source, { tools: [tool, plain] }, dialect)).toBe(expected);
  });

  test.each(chatDialects)("%s: a tool that is loaded later says so in its function too", (dialect) => {
    const later = { type: "function", function: { name: "f" }, defer_loading: true };
    expect(
      render("{{ tools[0].function.defer_loading }}{{ tools[0].defer_loading }}", { tools: [later] }, dialect),
    ).toBe("TrueTrue");
  });

  test.each([
    ["none", 0],
    ["auto", 2],
    ["required", 2],
    [undefined, 2],
    [null, 2],
    [{ type: "function", function: { name: "g" } }, 1],
    [{ type: "function", function: { name: "nobody" } }, 0],
  ])("sglang keeps those that the choice %j leaves: %i; vLLM keeps all", (choice, count) => {
    const body = { tools: [tool, plain], tool_choice: choice };
    expect(render("{{ tools | length if tools else 0 }}", body, "sglang-0.5.23")).toBe(String(count));
    expect(render("{{ tools | length if tools else 0 }}", body, "vllm-0.32")).toBe("2");
  });

  test("sglang gives functions alone to a template that fails with tools, and its failure to one that fails with them", () => {
    const picky = "{% if tools and tools[0].function %}{{ raise_exception('no') }}{% endif %}{{ tools[0].name }}";
    expect(render(picky, { tools: [plain] }, "sglang-0.5.23")).toBe("g");
    expect(() => render("{{ raise_exception('no') }}", { tools: [plain] }, "sglang-0.5.23")).toThrow("no");
    expect(() => render(picky, { tools: [plain] }, "vllm-0.32")).toThrow("no");
  });

  test("sglang does not try functions alone where the router lacks what the engine has", () => {
    const exotic = "{% if tools and tools[0].function %}{{ tools | wordcount }}{% endif %}{{ tools[0].name }}";
    expect(() => render(exotic, { tools: [plain] }, "sglang-0.5.23")).toThrow(
      "the renderer does not support the filter 'wordcount'",
    );
  });
});

describe("messages for SGLang", () => {
  const of = "sglang-0.5.23";
  const all = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ '!' if add_generation_prompt }}";
  const parts = [
    { type: "text", text: "a" },
    { type: "text", text: "b" },
  ];

  test("are strings with blanks between parts, or parts where the template loops over them; strings stay strings", () => {
    expect(render(all, { messages: [{ role: "USER", content: parts }] }, of)).toBe("<user>a b!");
    const looped =
      "{% for message in messages %}{% for c in message.content %}({{ c.text or c }}){% endfor %}{% endfor %}";
    expect(render(looped, { messages: [{ role: "user", content: parts }] }, of)).toBe("(a)(b)");
    expect(render(looped, { messages: [{ role: "user", content: "xy" }] }, of)).toBe("(x)(y)");
    const named = "{# image #}{{ messages[0].content }}";
    expect(render(named, { messages: [{ role: "tool", content: parts }] }, of)).toBe("a b");
  });

  test("of an assistant at the end are the user's, or left open behind the opened turn", () => {
    const given = [...messages, { role: "assistant", content: "One, " }];
    expect(render(all, { messages: given }, of)).toBe("<user>Hi<user>One, !");
    expect(render(all, { messages: given, continue_final_message: true }, of)).toBe("<user>Hi!One, ");
  });

  test("have the fields of its own model, without those that are null, and calls with their arguments as objects", () => {
    const call = { id: "c", type: "function", function: { name: "f", arguments: '{"a": 1}' }, extra: 1 };
    const said = { role: "assistant", content: null, tool_calls: [call], name: null, extra: 1 };
    expect(render("{{ messages[0] | tojson }}", { messages: [said, ...messages] }, of)).toBe(
      '{"role": "assistant", "content": "", "tool_calls": [{"id": "c", "index": null, "type": "function", "function": ' +
        '{"name": "f", "arguments": {"a": 1}}}]}',
    );
    const broken = { ...said, tool_calls: [{ ...call, function: { name: "f", arguments: "[1]" } }] };
    expect(() => render(all, { messages: [broken] }, of)).toThrow("not a JSON object");
  });
});

describe("what an agent writes for billing before its system prompt", () => {
  const line = "x-anthropic-billing-header: cch=1";
  test.each([
    ["a string", `${line}\nBe brief.`, "Be brief."],
    ["a string of it alone", line, ""],
    [
      "parts",
      [
        { type: "text", text: line },
        { type: "text", text: "Be brief." },
      ],
      "Be brief.",
    ],
    ["another one", "Be brief.", "Be brief."],
  ])("vLLM 0.32 drops it from %s", (_what, content, expected) => {
    const body = { messages: [{ role: "system", content }] };
    expect(render("{{ messages[0].content }}", body, "vllm-0.32")).toBe(expected);
    const kept = render("{{ messages[0].content }}", body, "vllm-0.23");
    expect(kept.includes("billing")).toBe(JSON.stringify(content).includes("billing"));
  });
});
