import { createSeededRandom, type Random } from "@espalier/core";
import { describe, expect, test } from "vitest";
import type { ContentFormat } from "../../src/chat/chat-dialect.ts";
import { compileChatTemplate } from "../../src/chat/chat-template.ts";
import { goldenClock, readTemplate } from "./golden.ts";

const inParts =
  "{% for m in messages %}<{{ m.role }}>{% for p in m.content %}{{ p.text if p.type == 'text' else '[' ~ p.type ~ ']' }}{% endfor %}</>{% endfor %}";
const inStrings = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}";

const compile = (source: string, contentFormat?: ContentFormat) =>
  compileChatTemplate(source, { clock: goldenClock, ...(contentFormat && { contentFormat }) });

const user = (content: unknown): unknown => ({ role: "user", content });
const text = (value: string): unknown => ({ type: "text", text: value });
const image = { type: "image_url", image_url: { url: "data:," } };
const audio = { type: "input_audio", input_audio: { data: "AA", format: "wav" } };
const video = { type: "video_url", video_url: { url: "data:," } };

/** The text that is surely the prompt's beginning; all of it when there is no bound. */
const sure = (source: string, messages: readonly unknown[], format?: ContentFormat): string | undefined => {
  const { text: whole, textUntil } = compile(source, format).renderChat({ messages });
  return textUntil === undefined ? undefined : whole.slice(0, textUntil);
};

describe("a template of parts is sure up to the first part that is not text", () => {
  test.each([
    ["first in the first message", [user([image, text("a")])], "<user>"],
    ["last in the first message", [user([text("a"), image])], "<user>a"],
    ["between texts", [user([text("a"), image, text("b")])], "<user>a"],
    ["alone", [user([image])], "<user>"],
    ["twice", [user([text("a"), image, image])], "<user>a"],
    ["audio", [user([text("a"), audio])], "<user>a"],
    ["video", [user([text("a"), video])], "<user>a"],
    ["audio before an image", [user([text("a"), audio, text("b"), image])], "<user>a"],
    ["in the second message", [user("a"), user([text("b"), image])], "<user>a</><user>b"],
    ["in the last of three", [user("a"), user("b"), user([image])], "<user>a</><user>b</><user>"],
    ["in two messages", [user("a"), user([image]), user([text("x"), image])], "<user>a</><user>"],
    ["after an empty text", [user([text(""), image])], "<user>"],
    ["after a text of null", [user([{ type: "text", text: null }, text("a"), image])], "<user>a"],
    ["after a bare string", [user(["a", image])], "<user>a"],
    ["beyond the BMP before it", [user([text("🙂"), image])], "<user>🙂"],
    ["before a text that looks like it", [user([image, text("[image]")])], "<user>"],
    ["after a text that looks like it", [user([text("[image]"), image])], "<user>[image]"],
  ])("%s", (_, messages, expected) => {
    expect(sure(inParts, messages)).toBe(expected);
  });
});

describe("a template of strings is sure up to the content of the message", () => {
  test.each([
    ["in the only message", [user([text("a"), image])], "<user>"],
    ["in the second", [user("a"), user([text("b"), image])], "<user>a</><user>"],
    ["alone", [user("a"), user([image])], "<user>a</><user>"],
    ["in two", [user([image]), user([image])], "<user>"],
  ])("%s", (_, messages, expected) => {
    expect(sure(inStrings, messages)).toBe(expected);
  });

  test("the content format that the engine was told decides, not the template", () => {
    const messages = [user([text("a"), image])];
    expect(sure(inParts, messages, "openai")).toBe("<user>a");
    expect(sure("{% for m in messages %}{{ m.role }}:{{ m.content }}{% endfor %}", messages, "string")).toBe("user:");
  });
});

describe("templates that look at parts before they write them", () => {
  test("a count of parts is the same for any part, so it is sure", () => {
    const source = `{{ messages[0].content | length }};${inParts}`;
    expect(sure(source, [user([text("a"), image])])).toBe("2;<user>a");
  });

  test("a word on whether there are pictures is not", () => {
    const count = "{{ messages[0].content | selectattr('type', 'equalto', 'image') | list | length }}";
    expect(sure(`pictures: ${count};${inParts}`, [user([text("a"), image])])).toBe("pictures: ");
  });

  test("a template that drops parts has no place for them, so nothing is sure", () => {
    const source =
      "{% for m in messages %}{{ m.role }}{% for p in m.content if p.type == 'image' %}[i]{% endfor %}{% endfor %}";
    expect(sure(source, [user([text("a"), image])])).toBe("");
  });

  test("a template that refuses images refuses the chat", () => {
    const source = inParts.replace("'[' ~ p.type ~ ']'", "raise_exception('no ' ~ p.type)");
    expect(() => compile(source).renderChat({ messages: [user([image])] })).toThrow("no image");
  });
});

describe("chats of text alone have no bound", () => {
  test.each([
    ["strings", [user("a"), user("b")]],
    ["parts", [user([text("a"), text("b")])]],
    ["no messages", []],
    ["null", [user(null)]],
    ["no parts", [user([])]],
    [
      "a refusal and reasoning",
      [
        user([
          { type: "refusal", refusal: "no" },
          { type: "thinking", thinking: "hm" },
        ]),
      ],
    ],
  ])("%s", (_, messages) => {
    for (const source of [inParts, inStrings]) expect(sure(source, messages)).toBeUndefined();
  });
});

describe("random chats with parts", () => {
  function randomContent(random: Random): unknown {
    if (random.integer(3) === 0) return `t${random.integer(100)}`;
    return Array.from({ length: random.integer(5) }, () => {
      const pick = random.integer(6);
      return pick < 3 ? text(`p${random.integer(100)}`) : [image, audio, video][pick - 3];
    });
  }

  test("the sure text is what comes before the first placeholder, whatever follows", () => {
    const random = createSeededRandom(1234);
    for (let round = 0; round < 400; round++) {
      const messages = Array.from({ length: 1 + random.integer(4) }, () => user(randomContent(random)));
      const { text: whole, textUntil } = compile(inParts).renderChat({ messages });
      const place = whole.search(/\[(?:image|audio|video)\]/);
      expect(textUntil).toBe(place < 0 ? undefined : place);
      expect(compile(inParts).render({ messages })).toBe(whole);
    }
  });

  test("later messages do not move the bound", () => {
    const random = createSeededRandom(99);
    const template = compile(readTemplate("vision"));
    for (let round = 0; round < 100; round++) {
      const messages = [user("Hello"), user([text(`a${round}`), image])];
      const more = Array.from({ length: random.integer(4) }, () => user(randomContent(random)));
      const first = template.renderChat({ messages, addGenerationPrompt: false });
      const next = template.renderChat({ messages: [...messages, ...more] });
      expect(next.textUntil).toBe(first.textUntil);
      expect(next.text.slice(0, next.textUntil)).toBe(first.text.slice(0, first.textUntil));
    }
  });
});
