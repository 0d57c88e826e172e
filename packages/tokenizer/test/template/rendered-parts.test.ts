import { systemClock } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { chatInputOf } from "../../src/chat/chat-input.ts";
import { compileChatTemplate, maxPlacedParts } from "../../src/chat/chat-template.ts";
import { mediaSource, processorArguments } from "../../src/chat/media-part.ts";

/** As the templates of Qwen's vision models, which count pictures on request. */
const source =
  "{% set ns = namespace(count=0) %}{% for m in messages %}<{{ m.role }}>{% for part in m.content %}" +
  "{% if part.type == 'text' %}{{ part.text }}{% else %}{% set ns.count = ns.count + 1 %}" +
  "{% if numbered %}Picture {{ ns.count }}: {% endif %}[{{ part.type }}]{% endif %}{% endfor %}{% endfor %}";
const template = compileChatTemplate(source, { clock: systemClock });

const text = (content: string) => ({ type: "text", text: content });
const image = (url: string) => ({ type: "image_url", image_url: { url } });

function partsOf(messages: readonly object[], more: object = {}) {
  const { text: written, parts } = template.renderChat(chatInputOf({ messages, ...more }, "vllm-0.32")!);
  return parts?.map(({ part, start, end }) => [part, written.slice(start, end)]);
}

describe("the places of images, audio and video in the rendered text", () => {
  test("each has what the template writes for it, also side by side and in several messages", () => {
    const [one, two, three] = ["a", "b", "c"].map(image);
    const film = { type: "video_url", video_url: { url: "v" } };
    const messages = [
      { role: "user", content: [text("see [image] and"), one, two] },
      { role: "assistant", content: "yes" },
      { role: "user", content: [film, text("and"), three] },
    ];
    expect(partsOf(messages)).toEqual([
      [one, "[image]"],
      [two, "[image]"],
      [film, "[video]"],
      [three, "[image]"],
    ]);
    expect(partsOf([{ role: "user", content: [text("none")] }])).toBeUndefined();
  });

  test("a template whose text changes when a part is left out places those before it", () => {
    const content = [image("a"), text("x"), image("b")];
    const numbered = { chat_template_kwargs: { numbered: true } };
    // Without the first one, the second would be the first.
    expect(partsOf([{ role: "user", content }], numbered)).toEqual([]);
    expect(partsOf([{ role: "user", content: content.slice(0, 2) }], numbered)).toEqual([
      [content[0], "Picture 1: [image]"],
    ]);
  });

  test("references to tools and templates of strings have no places", () => {
    const reference = { type: "tool_reference", name: "look" };
    expect(partsOf([{ role: "user", content: [image("a"), reference] }])).toBeUndefined();
    const strings = compileChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}", { clock: systemClock });
    const input = chatInputOf({ messages: [{ role: "user", content: [image("a"), text("x")] }] }, "vllm-0.32")!;
    expect(strings.renderChat(input)).toEqual({ text: "x", textUntil: 0 });
  });

  test("a chat with more parts than the bound has places for the first ones", () => {
    const content = Array.from({ length: maxPlacedParts + 1 }, (_, at) => image(String(at)));
    const placed = partsOf([{ role: "user", content }])!;
    expect(placed).toHaveLength(maxPlacedParts);
    expect(placed.at(-1)?.[0]).toBe(content[maxPlacedParts - 1]);
  });
});

test("a part's source is its URL or data, and the client's identifier", () => {
  const none = { uuid: undefined, content: undefined };
  expect(mediaSource(image("https://a/b.png"))).toEqual({ uuid: undefined, content: "https://a/b.png" });
  expect(mediaSource({ type: "input_image", image_url: "data:x" })).toEqual({ uuid: undefined, content: "data:x" });
  expect(mediaSource({ type: "input_audio", input_audio: { data: "QUJD", format: "wav" } }).content).toBe("QUJD");
  expect(mediaSource({ type: "image_url", image_url: null, uuid: "u" })).toEqual({ uuid: "u", content: undefined });
  expect(mediaSource({ type: "image_url", image_url: { url: "" }, uuid: "" })).toEqual(none);
  expect(mediaSource({ type: "image_url" })).toEqual(none);
});

test("arguments of the media processor are told apart from none", () => {
  expect(processorArguments({ mm_processor_kwargs: null })).toBe("");
  const [one, two] = [{ mm_processor_kwargs: { size: 1 } }, { media_io_kwargs: { size: 1 } }];
  expect(processorArguments(one)).not.toBe("");
  expect(processorArguments(one)).not.toBe(processorArguments(two));
});
