import { createSeededRandom, type Random } from "@espalier/core";
import { describe, expect, test } from "vitest";
import type { ChatInput } from "../../src/chat/chat-input.ts";
import { compileChatTemplate } from "../../src/chat/chat-template.ts";
import { TemplateError } from "../../src/template/template-error.ts";
import { goldenClock, goldenTokens, readTemplate, templateNames } from "./golden.ts";

const compile = (source: string) => compileChatTemplate(source, { clock: goldenClock, specialTokens: goldenTokens });

const chatml =
  "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}{% endfor %}" +
  "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

const words = ["Hi", "a b", " ", "", "line\nbreak", "🙂", "{{ x }}", "<|im_end|>", '"q"', "\u2028", "0", "\\n"];

const wordsOf = (random: Random): string =>
  Array.from({ length: random.integer(5) }, () => words[random.integer(words.length)]).join(" ");

/** Content as clients send it, sane or not. */
function anyContent(random: Random): unknown {
  const kinds: (() => unknown)[] = [
    () => wordsOf(random),
    () => wordsOf(random),
    () => null,
    () => [{ type: "text", text: wordsOf(random) }],
    () => [{ type: "text", text: wordsOf(random) }, "bare", { type: "refusal", refusal: wordsOf(random) }],
    () => [
      { type: "image_url", image_url: { url: "x" } },
      { type: "text", text: "after" },
    ],
    () => [],
    () => 7,
    () => [{ type: "unheard-of" }],
    () => ({ text: "an object" }),
  ];
  return kinds[random.integer(kinds.length)]!();
}

function anyMessage(random: Random): unknown {
  if (random.integer(40) === 0) return [null, "text", 5, []][random.integer(4)];
  const role = ["system", "user", "assistant", "tool", "developer", "unknown", undefined][random.integer(7)];
  const message: Record<string, unknown> = { role, content: anyContent(random) };
  if (random.integer(5) === 0) message.name = wordsOf(random);
  if (role === "tool") message.tool_call_id = `call${random.integer(9)}`;
  if (role === "assistant" && random.integer(2) === 0) {
    const given = ['{"a": 1.0}', "", "{", { b: [1, null] }, null, "[1]"][random.integer(6)];
    message.tool_calls = [{ id: "callaaaaa", type: "function", function: { name: "f", arguments: given } }];
  }
  if (role === "assistant" && random.integer(4) === 0) message.reasoning = wordsOf(random);
  return message;
}

function anyInput(random: Random): ChatInput {
  const tool = {
    type: "function",
    function: { name: "f", description: wordsOf(random), parameters: { type: "object" } },
  };
  return {
    messages: Array.from({ length: random.integer(6) }, () => anyMessage(random)),
    tools: [null, [], [tool], [tool, tool], [{ type: "retrieval" }]][random.integer(5)]!,
    addGenerationPrompt: random.integer(2) === 0,
    continueFinalMessage: random.integer(6) === 0,
    variables: random.integer(2) === 0 ? {} : { enable_thinking: false, x: wordsOf(random) },
  };
}

const outcomeOf = (render: () => unknown): unknown => {
  try {
    return render();
  } catch (error) {
    if (!(error instanceof TemplateError)) throw error;
    return { reason: error.reason, message: error.message };
  }
};

describe.each(templateNames)("any chat with the template %s", (name) => {
  const template = compile(readTemplate(name));
  const again = compile(readTemplate(name));

  test("is rendered, or refused with a TemplateError, the same each time", () => {
    const random = createSeededRandom(name.length * 7919);
    let rendered = 0;
    for (let round = 0; round < 120; round++) {
      const input = anyInput(random);
      const before = JSON.stringify(input);
      const outcome = outcomeOf(() => template.render(input));
      expect(outcomeOf(() => template.render(input))).toEqual(outcome);
      expect(JSON.stringify(input)).toBe(before);
      if (typeof outcome === "string") {
        rendered++;
        expect(again.render(input)).toBe(outcome);
      }
    }
    expect(rendered).toBeGreaterThan(0);
  });

  test("gives the same text with its bound, which is inside the text", () => {
    const random = createSeededRandom(name.length * 104729);
    for (let round = 0; round < 120; round++) {
      const input = anyInput(random);
      const chat = outcomeOf(() => template.renderChat(input)) as { text?: string; textUntil?: number };
      if (chat.text === undefined) continue;
      expect(outcomeOf(() => template.render(input))).toBe(chat.text);
      expect(chat.textUntil ?? 0).toBeGreaterThanOrEqual(0);
      expect(chat.textUntil ?? 0).toBeLessThanOrEqual(chat.text.length);
    }
  });
});

describe("turns of one conversation", () => {
  test("each prompt starts with the one before it and the answer to it", () => {
    const random = createSeededRandom(2);
    const template = compile(chatml);
    for (let round = 0; round < 40; round++) {
      const messages: { role: string; content: string }[] = [{ role: "system", content: wordsOf(random) }];
      let previous = "";
      for (let turn = 0; turn < 8; turn++) {
        messages.push({ role: "user", content: wordsOf(random) });
        const prompt = template.render({ messages });
        expect(prompt.startsWith(previous)).toBe(true);
        const answer = wordsOf(random);
        messages.push({ role: "assistant", content: answer });
        previous = `${prompt}${answer}<|im_end|>\n`;
        expect(template.render({ messages, addGenerationPrompt: false })).toBe(previous);
      }
    }
  });

  test("a rendering is the sum of its messages' renderings", () => {
    const random = createSeededRandom(3);
    const template = compile(chatml);
    const closed = (messages: readonly unknown[]): string => template.render({ messages, addGenerationPrompt: false });
    for (let round = 0; round < 200; round++) {
      const messages = Array.from({ length: random.integer(6) }, () => ({ role: "user", content: wordsOf(random) }));
      expect(closed(messages)).toBe(messages.map((message) => closed([message])).join(""));
    }
  });

  test("two conversations share the text of the messages that they share", () => {
    const random = createSeededRandom(4);
    const template = compile(chatml);
    for (let round = 0; round < 100; round++) {
      const shared = Array.from({ length: 1 + random.integer(4) }, () => ({ role: "user", content: wordsOf(random) }));
      const left = template.render({ messages: [...shared, { role: "user", content: "left" }] });
      const right = template.render({ messages: [...shared, { role: "user", content: "right" }] });
      const head = template.render({ messages: shared, addGenerationPrompt: false });
      expect(left.startsWith(head) && right.startsWith(head)).toBe(true);
      expect(left).not.toBe(right);
    }
  });

  test("a role of the request's own is written as it is, and its text is not read as a template", () => {
    const messages = [{ role: "{{ 1 }}", content: "{% raw %}{{ bos_token }}" }];
    expect(compile(chatml).render({ messages, addGenerationPrompt: false })).toBe(
      "<|im_start|>{{ 1 }}\n{% raw %}{{ bos_token }}<|im_end|>\n",
    );
  });
});

describe("renderings that run between one another", () => {
  test("do not share macros' variables or namespaces", () => {
    const template = compile(
      "{% set ns = namespace(n=0) %}" +
        "{% macro show(m) %}{% set ns.n = ns.n + 1 %}{{ ns.n }}{{ m.content }}{% endmacro %}" +
        "{% for m in messages %}{{ show(m) }}{% endfor %}",
    );
    const chat = (length: number): ChatInput => ({
      messages: Array.from({ length }, () => ({ role: "user", content: "x" })),
    });
    expect(template.render(chat(3))).toBe("1x2x3x");
    expect(template.render(chat(1))).toBe("1x");
    expect(template.render(chat(2))).toBe("1x2x");
  });

  test("one that fails midway leaves nothing behind", () => {
    const template = compile(
      "{% set ns = namespace(n=0) %}{% macro show(m) %}[{% set ns.n = ns.n + 1 %}{{ m.content }}{{ raise_exception('stop') if m.role == 'bad' }}]{% endmacro %}{% for m in messages %}{{ show(m) }}{% endfor %}{{ ns.n }}",
    );
    const good = { role: "user", content: "a" };
    expect(template.render({ messages: [good] })).toBe("[a]1");
    for (let round = 0; round < 300; round++) {
      expect(() => template.render({ messages: [good, { role: "bad", content: "b" }] })).toThrow("stop");
    }
    expect(template.render({ messages: [good, good] })).toBe("[a][a]2");
  });
});
