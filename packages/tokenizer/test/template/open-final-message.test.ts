import { createSeededRandom, type Random } from "@espalier/core";
import { describe, expect, test } from "vitest";
import type { ChatInput } from "../../src/chat/chat-input.ts";
import { type ChatTemplateOptions, compileChatTemplate } from "../../src/chat/chat-template.ts";
import { goldenClock } from "./golden.ts";

const marked =
  "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
const trimming = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>{% endfor %}";
const inParts =
  "{% for m in messages %}<{{ m.role }}>{% for p in m.content %}{{ p.text if p.type == 'text' else '[' ~ p.type ~ ']' }}{% endfor %}</>{% endfor %}";

const compile = (source: string, options: Partial<ChatTemplateOptions> = {}) =>
  compileChatTemplate(source, { clock: goldenClock, ...options });

const message = (role: string, content: unknown): unknown => ({ role, content });
const text = (value: string): unknown => ({ type: "text", text: value });
const image = { type: "image_url", image_url: { url: "data:," } };

const open = (messages: readonly unknown[], more: Partial<ChatInput> = {}): ChatInput => ({
  messages,
  addGenerationPrompt: false,
  continueFinalMessage: true,
  ...more,
});

describe("where the text is cut", () => {
  test.each([
    ["plain text", marked, "One", "<user>Go</><assistant>One"],
    ["empty text", marked, "", "<user>Go</><assistant>"],
    ["blanks only", marked, "  ", "<user>Go</><assistant>  "],
    ["blanks at both ends", marked, " One ", "<user>Go</><assistant> One "],
    ["a line end", marked, "One\n", "<user>Go</><assistant>One\n"],
    ["the text that closes a turn", marked, "a</>", "<user>Go</><assistant>a</>"],
    ["text beyond the BMP", marked, "🙂", "<user>Go</><assistant>🙂"],
    ["template code, which stays text", marked, "{{ 1 }}", "<user>Go</><assistant>{{ 1 }}"],
    ["a trimming template", trimming, " One ", "<user>Go</><assistant>One"],
    ["a trimming template and no blanks", trimming, "One", "<user>Go</><assistant>One"],
    ["a trimming template and empty text", trimming, "", "<user>Go</><assistant>"],
    ["parts for a template of strings", marked, [text("a"), text("b")], "<user>Go</><assistant>a\nb"],
    ["text for a template of parts", inParts, "One", "<user>Go</><assistant>One"],
    ["parts for a template of parts", inParts, [text("a"), text("b ")], "<user>Go</><assistant>ab "],
    ["a bare string among parts", inParts, ["a", "b"], "<user>Go</><assistant>ab"],
    ["an image before the text", inParts, [image, text("b")], "<user>Go</><assistant>[image]b"],
    ["an image after the text", inParts, [text("a"), image], "<user>Go</><assistant>a"],
    ["an empty last part", inParts, [text("a"), text("")], "<user>Go</><assistant>a"],
  ])("%s", (_, source, content, expected) => {
    expect(compile(source).render(open([message("user", "Go"), message("assistant", content)]))).toBe(expected);
  });

  test("the final message need not be the assistant's", () => {
    expect(compile(marked).render(open([message("user", "Tell me ab")]))).toBe("<user>Tell me ab");
  });

  test("what follows the messages is cut away too", () => {
    const source = `${marked}{{ '[end]' }}`;
    expect(compile(source).render(open([message("user", "a")]))).toBe("<user>a");
  });

  test("a content that has the words of the mark is no trouble when the message says them itself", () => {
    const said = "CONTINUE_FINAL_MESSAGE_TAG";
    expect(compile(marked).render(open([message("user", said), message("assistant", "b")]))).toBe(
      `<user>${said}</><assistant>b`,
    );
  });

  test("a template that writes the last message twice is cut at the later place", () => {
    const source = "{{ messages[-1].content }}|{% for m in messages %}{{ m.content }};{% endfor %}";
    const given = open([message("user", "a"), message("assistant", "b")]);
    expect(compile(source).render(given)).toBe("bCONTINUE_FINAL_MESSAGE_TAG |a;b");
  });

  test("tools and variables of the request are there as always", () => {
    const source = `{{ tools | length }}{{ tone }}${marked}`;
    const tools = [{ type: "function", function: { name: "f" } }];
    const given = open([message("user", "a")], { tools, variables: { tone: "calm" } });
    expect(compile(source).render(given)).toBe("1calm<user>a");
  });

  test("without the wish the last message is closed", () => {
    const given = { messages: [message("assistant", "b")], addGenerationPrompt: false, continueFinalMessage: false };
    expect(compile(marked).render(given)).toBe("<assistant>b</>");
  });
});

describe("what cannot be left open", () => {
  const noContent = "continue_final_message is set but the final message has no content to continue";
  const notThere = "continue_final_message is set but the final message does not appear in the rendered chat";

  test.each([
    ["no messages at all", inParts, [], noContent],
    ["a message without parts", inParts, [message("user", [])], noContent],
    ["a message of null for a template of parts", inParts, [message("user", null)], noContent],
    ["a message of images", inParts, [message("user", [image, image])], noContent],
    ["a message that is left out", "{{ messages[0].content }}", [message("user", "a"), message("user", "b")], notThere],
    ["a message in other letters", "{{ messages[0].content | upper }}x", [message("user", "abc")], notThere],
    ["a template without messages", "fixed", [message("user", "a")], notThere],
  ])("%s", (_, source, messages, expected) => {
    expect(() => compile(source).render(open(messages))).toThrow(expect.objectContaining({ reason: "value" }));
    expect(() => compile(source).render(open(messages))).toThrow(expected);
  });

  test("an opened turn behind it, which is the default", () => {
    const given: ChatInput = { messages: [message("assistant", "a")], continueFinalMessage: true };
    const refusal = "continue_final_message and add_generation_prompt are not compatible";
    expect(() => compile(marked).render(given)).toThrow(refusal);
    expect(() => compile(marked).renderChat(given)).toThrow(refusal);
  });
});

describe("growth of an open message", () => {
  const alphabet = ["a", "b", " ", "\n", "<", "</>", "🙂", "é", "{{", "%}"];
  const content = (random: Random): string =>
    Array.from({ length: 1 + random.integer(8) }, () => alphabet[random.integer(alphabet.length)]).join("");

  test("the prompt is that of the messages before it, the role's mark and the content", () => {
    const random = createSeededRandom(41);
    const template = compile(marked);
    for (let round = 0; round < 300; round++) {
      const before = Array.from({ length: random.integer(4) }, () => message("user", content(random)));
      const last = content(random);
      const head = template.render({ messages: before, addGenerationPrompt: false });
      expect(template.render(open([...before, message("assistant", last)]))).toBe(`${head}<assistant>${last}`);
    }
  });

  test("more content only adds to the prompt, so that an engine goes on where it stopped", () => {
    const random = createSeededRandom(42);
    for (const source of [marked, inParts]) {
      const template = compile(source);
      let said = "";
      let previous = template.render(open([message("user", "Go"), message("assistant", said)]));
      for (let round = 0; round < 100; round++) {
        said += content(random);
        const next = template.render(open([message("user", "Go"), message("assistant", said)]));
        expect(next.startsWith(previous)).toBe(true);
        previous = next;
      }
    }
  });
});
