import { describe, expect, test } from "vitest";
import { type ChatInput, chatInputOf } from "../../src/chat/chat-input.ts";
import { type ChatTemplateOptions, compileChatTemplate } from "../../src/chat/chat-template.ts";
import { goldenClock, goldenTokens, readTemplate } from "./golden.ts";

const compile = (source: string, options: Partial<ChatTemplateOptions> = {}) =>
  compileChatTemplate(source, { clock: goldenClock, ...options });

const user = (content: unknown) => ({ role: "user", content });
const assistant = (content: unknown) => ({ role: "assistant", content });

describe("variables", () => {
  test("special tokens come first, then the request's own variables, then messages and tools", () => {
    const template = compile(
      "{{ bos_token }}|{{ mood }}|{{ eos_token }}|{{ messages | length }}|{{ tools }}|{{ documents }}",
      {
        specialTokens: goldenTokens,
      },
    );
    const variables = { mood: "calm", eos_token: "<end>", messages: "not these", tools: "nor these" };
    expect(template.render({ messages: [user("a")], variables })).toBe("<s>|calm|<end>|1|None|None");
  });

  test("the assistant's turn is opened unless the request says no", () => {
    const template = compile("{{ add_generation_prompt }}");
    expect(template.render({ messages: [] })).toBe("True");
    expect(template.render({ messages: [], addGenerationPrompt: false })).toBe("False");
  });

  test("the date is the clock's, in UTC", () => {
    const clock = { nowMs: () => 0, wallMs: () => Date.UTC(2024, 1, 29, 23, 59) };
    expect(compile("{{ strftime_now('%d %b %Y %H:%M') }}", { clock }).render({ messages: [] })).toBe(
      "29 Feb 2024 23:59",
    );
  });

  test("documents are passed as they are", () => {
    const template = compile("{% for d in documents %}{{ d.title }};{% endfor %}");
    expect(template.render({ messages: [], documents: [{ title: "a" }, { title: "b" }] })).toBe("a;b;");
  });

  test("renderings do not see each other", () => {
    const template = compile(
      "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}{{ x }}{% set x = 1 %}",
    );
    expect(template.render({ messages: [user("a"), user("b")] })).toBe("2");
    expect(template.render({ messages: [user("a")] })).toBe("1");
  });
});

describe("an open final message", () => {
  const chatml = compile(readTemplate("chatml"), { specialTokens: goldenTokens });
  const open = (messages: readonly unknown[]): ChatInput => ({
    messages,
    addGenerationPrompt: false,
    continueFinalMessage: true,
  });

  test("ends the prompt where the message's content ends", () => {
    expect(chatml.render(open([user("Count."), assistant("One, two,")]))).toBe(
      "<|im_start|>system\nBe brief and exact.<|im_end|>\n<|im_start|>user\nCount.<|im_end|>\n<|im_start|>assistant\nOne, two,",
    );
  });

  test("keeps the blanks at its end when the template keeps them", () => {
    expect(chatml.render(open([user("Count."), assistant("One, ")])).endsWith("assistant\nOne, ")).toBe(true);
  });

  test("loses them when the template trims the content", () => {
    const llama = compile(readTemplate("llama3"), { specialTokens: goldenTokens });
    expect(llama.render(open([user("Count."), assistant(" One,  ")])).endsWith("<|end_header_id|>\n\nOne,")).toBe(true);
  });

  test("is cut at its last occurrence when an earlier message says the same", () => {
    const text = chatml.render(open([user("Again"), assistant("Again"), user("Again"), assistant("Again")]));
    expect(text.split("Again").length - 1).toBe(4);
    expect(text.endsWith("<|im_start|>assistant\nAgain")).toBe(true);
  });

  test("is the last text among parts", () => {
    const vision = compile(readTemplate("vision"));
    const parts = [
      { type: "text", text: "One" },
      { type: "text", text: " two" },
    ];
    expect(vision.render(open([user("Count."), assistant(parts)])).endsWith("<|im_start|>assistant\nOne two")).toBe(
      true,
    );
    expect(vision.render(open([user("Count."), assistant("One")])).endsWith("<|im_start|>assistant\nOne")).toBe(true);
  });

  test.each([
    ["an opened turn as well", { ...open([user("a"), assistant("b")]), addGenerationPrompt: true }, "not compatible"],
    ["no message", open([]), "no content"],
    ["only an image", open([user([{ type: "image_url", image_url: { url: "x" } }])]), "no content"],
  ])("is refused with %s", (_, input, message) => {
    expect(() => compile(readTemplate("vision")).render(input)).toThrow(message);
  });

  test("is refused when the template drops it", () => {
    const template = compile("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}");
    expect(() => template.render(open([user("a"), assistant("b")]))).toThrow("does not appear");
  });
});

describe("parts that are not text", () => {
  const vision = compile(readTemplate("vision"));
  const image = { type: "image_url", image_url: { url: "data:image/png;base64,AAAA" } };

  test("the text is the prompt up to the first of them", () => {
    const messages = [user("Hello"), assistant("Yes?"), user([{ type: "text", text: "Look: " }, image, image])];
    const { text, textUntil } = vision.renderChat({ messages });
    expect(text.slice(0, textUntil).endsWith("<|im_start|>user\nLook: ")).toBe(true);
    expect(text.slice(textUntil).startsWith("<|vision_start|><|image_pad|><|vision_end|><|vision_start|>")).toBe(true);
    expect(vision.render({ messages })).toBe(text);
  });

  test("a text that numbers pictures is cut before the number", () => {
    const { text, textUntil } = vision.renderChat({ messages: [user([image])], variables: { add_vision_id: true } });
    expect(text.slice(textUntil).startsWith("Picture 1: <|vision_start|>")).toBe(true);
  });

  test("parts of text without any text before it do not move the cut", () => {
    const messages = [
      user([{ type: "text", text: null }, { type: "text", text: "Look" }, image, { type: "text", text: "!" }]),
    ];
    const { text, textUntil } = vision.renderChat({ messages });
    expect(text.slice(0, textUntil).endsWith("user\nLook")).toBe(true);
    expect(text.slice(textUntil).startsWith("<|vision_start|>")).toBe(true);
  });

  test("without any, the whole text is the prompt", () => {
    const rendered = vision.renderChat({ messages: [user([{ type: "text", text: "a" }, "b"])] });
    expect(rendered).toEqual({ text: vision.render({ messages: [user("ab")] }) });
  });

  test("a template that looks ahead for pictures is cut where that first shows", () => {
    const source =
      "{% set ns = namespace(seen=false) %}{% for m in messages %}{% for p in m.content %}{% if p.type == 'image' %}{% set ns.seen = true %}{% endif %}{% endfor %}{% endfor %}" +
      "<s>{{ 'pictures follow' if ns.seen else 'only text' }}{% for m in messages %}{% for p in m.content %}{{ p.text if p.type == 'text' else '<image>' }}{% endfor %}{% endfor %}";
    const { textUntil } = compile(source).renderChat({ messages: [user("a"), user([image])] });
    expect(textUntil).toBe("<s>".length);
  });

  test("a template of strings has their placeholders before the text of their message, so it is cut there", () => {
    const template = compile(readTemplate("chatml"));
    const messages = [user("First"), assistant("Yes"), user([{ type: "text", text: "Look" }, image])];
    const { text, textUntil } = template.renderChat({ messages });
    expect(text).toContain("<|im_start|>user\nLook<|im_end|>");
    expect(text.slice(textUntil)).toBe("Look<|im_end|>\n<|im_start|>assistant\n");
  });

  test("a template that never writes the message is the prompt up to where its absence would show", () => {
    const template = compile(
      "{% for m in messages if m.role == 'system' %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}",
      {
        contentFormat: "openai",
      },
    );
    const { text, textUntil } = template.renderChat({
      messages: [{ role: "system", content: "Be brief" }, user([image])],
    });
    expect(text).toBe("Be brief");
    expect(textUntil).toBe(0);
  });

  test.each([
    ["audio", { type: "input_audio", input_audio: { data: "AA", format: "wav" } }, "audio"],
    ["video", { type: "video_url", video_url: { url: "x" } }, "video"],
    ["an image without a type", { image_url: "x", uuid: "1" }, "image"],
    ["image embeddings", { type: "image_embeds", image_embeds: "AA" }, "image"],
  ])("%s has the type that templates know", (_, part, type) => {
    const template = compile("{% for m in messages %}{% for p in m.content %}{{ p }}{% endfor %}{% endfor %}");
    expect(template.render({ messages: [user([part])] })).toBe(`{'type': '${type}'}`);
  });
});

describe("a request's body", () => {
  test("gives what the prompt depends on, with the engine's defaults", () => {
    const messages = [user("a")];
    expect(chatInputOf({ model: "m", messages, tools: [], temperature: 1 })).toEqual({
      messages,
      tools: null,
      documents: null,
      addGenerationPrompt: true,
      continueFinalMessage: false,
      variables: {},
      dialect: "vllm-0.32",
    });
  });

  test("brings tools whatever tool_choice says, documents, variables and the effort of reasoning", () => {
    const body = {
      messages: [],
      tools: [{ type: "function", function: { name: "f" } }],
      tool_choice: "none",
      documents: [{ text: "d" }],
      add_generation_prompt: false,
      continue_final_message: true,
      chat_template_kwargs: { enable_thinking: false },
      reasoning_effort: "low",
    };
    expect(chatInputOf(body)).toEqual({
      messages: [],
      tools: body.tools,
      documents: body.documents,
      addGenerationPrompt: false,
      continueFinalMessage: true,
      variables: { enable_thinking: false, reasoning_effort: "low" },
      dialect: "vllm-0.32",
    });
  });

  test.each([[{}], [{ messages: "text" }], [{ prompt: "text" }]])("without messages there is no chat: %j", (body) => {
    expect(chatInputOf(body)).toBeUndefined();
  });
});
