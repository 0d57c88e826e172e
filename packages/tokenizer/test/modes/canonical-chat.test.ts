import { createSeededRandom, type JsonObject, type Random } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { canonicalChat, canonicalMessages } from "../../src/modes/canonical-chat.ts";
import { createPromptHasher } from "../../src/prompt/prompt-blocks.ts";
import { firstPartMessage, isTextPart, promptSource } from "../../src/prompt-request.ts";

const hasher = createPromptHasher();
const chatText = (messages: readonly unknown[], fields: JsonObject = {}): string =>
  canonicalChat(fields, messages, hasher);

/** The text of a request by its endpoint's rules. */
function textOf(endpoint: string, fields: JsonObject): string {
  const source = promptSource({ endpoint, fields });
  if (source.kind !== "chat") throw new Error(`${endpoint} has no chat but ${source.kind}`);
  return canonicalChat(fields, source.messages, hasher);
}

const oneOf = <T>(random: Random, list: readonly T[]): T => list[random.integer(list.length)]!;
const words = ["", "hello", "two words", "größer\n", "🙂", "a:b", "[]", "x".repeat(300)];
const draw = (random: Random): string => oneOf(random, words) + oneOf(random, words);

/** What a message of each API may hold, by its endpoint. */
const makers: Readonly<Record<string, (random: Random) => unknown>> = {
  chat: (random) =>
    oneOf<() => unknown>(random, [
      () => ({ role: "user", content: draw(random) }),
      () => ({ role: "user", content: [{ type: "text", text: draw(random) }] }),
      () => ({ role: "user", content: [{ type: "image_url", image_url: { url: draw(random).repeat(9) } }] }),
      () => ({ role: "assistant", content: null, tool_calls: [{ id: draw(random), function: { name: "f" } }] }),
      () => ({ role: "assistant", content: draw(random), reasoning_content: draw(random) }),
      () => ({ role: "tool", tool_call_id: "1", content: draw(random) }),
    ])(),
  messages: (random) =>
    oneOf<() => unknown>(random, [
      () => ({ role: "user", content: draw(random) }),
      () => ({ role: "user", content: [{ type: "text", text: draw(random), cache_control: { type: "ephemeral" } }] }),
      () => ({ role: "user", content: [{ type: "tool_result", tool_use_id: "t", content: draw(random) }] }),
      () => ({ role: "assistant", content: [{ type: "thinking", thinking: draw(random), signature: "s" }] }),
      () => ({ role: "assistant", content: [{ type: "tool_use", id: "t", name: "f", input: { a: draw(random) } }] }),
      () => ({ role: "user", content: [{ type: "image", source: { type: "base64", data: draw(random).repeat(5) } }] }),
    ])(),
  responses: (random) =>
    oneOf<() => unknown>(random, [
      () => ({ role: "user", content: draw(random) }),
      () => ({ type: "message", role: "user", content: [{ type: "input_text", text: draw(random) }] }),
      () => ({ type: "message", role: "assistant", content: [{ type: "output_text", text: draw(random) }] }),
      () => ({ type: "function_call", call_id: "c", name: "f", arguments: draw(random) }),
      () => ({ type: "function_call_output", call_id: "c", output: draw(random) }),
      () => ({ type: "reasoning", summary: [{ type: "summary_text", text: draw(random) }] }),
    ])(),
};
const listField: Readonly<Record<string, string>> = { chat: "messages", messages: "messages", responses: "input" };
const around: Readonly<Record<string, JsonObject>> = {
  chat: { tools: [{ type: "function", function: { name: "f" } }], documents: [{ text: "d" }] },
  messages: { system: [{ type: "text", text: "be brief" }], tools: [{ name: "f" }] },
  responses: { instructions: "be brief", tools: [{ type: "function", name: "f" }] },
};

describe.each(["chat", "messages", "responses"])("%s", (endpoint) => {
  const make = makers[endpoint]!;
  const fieldsOf = (messages: readonly unknown[]): JsonObject => ({
    ...around[endpoint],
    [listField[endpoint]!]: messages,
  });

  test.each([121, 122, 123])("the next turn starts with the text of this one, seed %d", (seed) => {
    const random = createSeededRandom(seed);
    for (let round = 0; round < 40; round++) {
      const messages: unknown[] = [make(random)];
      let before = textOf(endpoint, fieldsOf(messages));
      for (let turn = 0; turn < 6; turn++) {
        for (let count = random.integer(3); count >= 0; count--) messages.push(make(random));
        const text = textOf(endpoint, fieldsOf(messages));
        expect(text.startsWith(before)).toBe(true);
        expect(text.length).toBeGreaterThan(before.length);
        before = text;
      }
    }
  });

  test("conversations that differ in a message differ from there on, and not before", () => {
    const random = createSeededRandom(124);
    for (let round = 0; round < 60; round++) {
      const messages = Array.from({ length: 4 }, () => make(random));
      const at = random.integer(4);
      const changed = messages.with(at, { role: "user", content: `changed in round ${round}` });
      const [one, other] = [textOf(endpoint, fieldsOf(messages)), textOf(endpoint, fieldsOf(changed))];
      const shared = textOf(endpoint, fieldsOf(messages.slice(0, at)));
      expect(one).not.toBe(other);
      expect([one.startsWith(shared), other.startsWith(shared)]).toEqual([true, true]);
    }
  });

  test("what stands before the messages makes another text, and sampling makes none", () => {
    const messages = [{ role: "user", content: "hi" }];
    const plain = textOf(endpoint, { [listField[endpoint]!]: messages });
    const texts = Object.entries(around[endpoint]!).map(([name, value]) =>
      textOf(endpoint, { [listField[endpoint]!]: messages, [name]: value }),
    );
    expect(new Set([plain, ...texts]).size).toBe(texts.length + 1);
    for (const text of texts) expect(text.endsWith(plain)).toBe(true);
    const sampled = { [listField[endpoint]!]: messages, temperature: 1, seed: 4, stream: true, tools: null };
    expect(textOf(endpoint, sampled)).toBe(plain);
  });
});

test("the order in which a body has its fields does not matter before the messages", () => {
  const [tools, system] = [[{ name: "f" }], "be brief"];
  expect(chatText([], { tools, system })).toBe(chatText([], { system, tools }));
});

test("an input of the responses API that is a text is that of one message of a user", () => {
  const asText = textOf("responses", { input: "hi", instructions: "be brief" });
  const next = {
    instructions: "be brief",
    input: [
      { role: "user", content: "hi" },
      { role: "assistant", content: "ho" },
    ],
  };
  expect(textOf("responses", next).startsWith(asText)).toBe(true);
});

describe("a value that is no text", () => {
  const withImage = (url: string): string => chatText([{ role: "user", content: [{ type: "image_url", url }] }]);
  /** Characters of the JSON around the URL. */
  const jsonLength = JSON.stringify({ type: "image_url", url: "" }).length;

  test("stands as it is up to 256 characters, and as length and hash beyond", () => {
    const [longest, longer] = [256 - jsonLength, 257 - jsonLength].map((length) => "x".repeat(length));
    expect(withImage(longest!)).toContain(longest);
    expect(withImage(longer!)).not.toContain("xxx");
    expect(withImage(longer!)).toMatch(/257:[0-9a-f]+:[0-9a-f]+/);
  });

  test("is told apart by each of its characters, and by its length", () => {
    const base = "x".repeat(2_000);
    const texts = [0, 999, 1_999].map((at) => withImage(`${base.slice(0, at)}y${base.slice(at + 1)}`));
    expect(new Set([...texts, withImage(base), withImage(`${base}x`)]).size).toBe(5);
    expect(withImage(base)).toBe(withImage(base));
  });

  test("long text stays text: blocks of it are found in other chats", () => {
    const long = "word ".repeat(1_000);
    expect(chatText([{ role: "user", content: long }])).toContain(long);
    expect(chatText([{ role: "user", content: [{ type: "input_text", text: long }] }])).toContain(long);
    expect(chatText([{ role: "assistant", content: [{ type: "refusal", refusal: long }] }])).toContain(long);
  });
});

test.each<{ messages: readonly unknown[] }>([
  { messages: [null] },
  { messages: [[1, 2]] },
  { messages: [7, "text", true] },
  { messages: [{}] },
  { messages: [{ role: 5, content: 6 }] },
  { messages: [{ role: null, content: [null, [], 1] }] },
  { messages: [{ role: "user", content: [{ type: "text" }] }] },
  { messages: [{ role: "user", content: [{ type: "text", text: 5 }] }] },
])("$messages, which no engine takes, have a text all the same", ({ messages }) => {
  const text = chatText(messages);
  expect(chatText([...messages, { role: "user", content: "x" }]).startsWith(text)).toBe(true);
  expect(text).toContain(canonicalMessages(messages, hasher));
});

describe("parts of messages", () => {
  test.each([
    { part: "text", is: true },
    { part: { type: "text", text: "a" }, is: true },
    { part: { type: "input_text" }, is: true },
    { part: { type: "output_text" }, is: true },
    { part: { type: "refusal" }, is: true },
    { part: { type: "thinking" }, is: true },
    { part: { type: "image_url" }, is: false },
    { part: { type: "input_audio" }, is: false },
    { part: { text: "a" }, is: false },
    { part: null, is: false },
    { part: 5, is: false },
    { part: [], is: false },
  ])("$part is text: $is", ({ part, is }) => {
    expect(isTextPart(part)).toBe(is);
    const messages = [
      { role: "user", content: "a" },
      { role: "user", content: ["b", part] },
    ];
    expect(firstPartMessage(messages)).toBe(is ? -1 : 1);
  });

  test.each([
    { messages: [], at: -1 },
    { messages: ["text", null, { role: "user" }], at: -1 },
    { messages: [{ content: [{ type: "audio" }] }, { content: [{ type: "image_url" }] }], at: 0 },
  ])("of $messages the first that is none is at $at", ({ messages, at }) => {
    expect(firstPartMessage(messages)).toBe(at);
  });
});
