import type { JsonObject } from "@espalier/core";
import { createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { loadRequestTokens } from "../../src/modes/local-mode.ts";
import { digestText, viewOfText } from "../../src/modes/prompt-view.ts";
import { createPromptHasher } from "../../src/prompt/prompt-blocks.ts";
import { promptSource, wantsSpecialTokens } from "../../src/prompt-request.ts";
import { createTextTokenizer } from "../../src/text/text-tokenizer.ts";
import { modelFolders, readModel } from "../support/models.ts";

const text = (value: string): object => ({ kind: "text", text: value });
const tokens = (...ids: number[]): object => ({ kind: "tokens", tokens: Uint32Array.from(ids) });
const none = { kind: "none" };

describe("where the prompt of a request is", () => {
  const messages = [{ role: "user", content: "a" }];
  test.each<{ endpoint: string; fields: JsonObject; source: object }>([
    { endpoint: "chat", fields: { messages }, source: { kind: "chat", messages } },
    { endpoint: "chat", fields: { messages: [] }, source: { kind: "chat", messages: [] } },
    { endpoint: "chat", fields: { messages: { role: "user" } }, source: none },
    { endpoint: "chat", fields: { prompt: "a" }, source: none },
    { endpoint: "messages", fields: { messages }, source: { kind: "chat", messages } },
    { endpoint: "messages", fields: { messages: "a" }, source: none },
    { endpoint: "responses", fields: { input: "a" }, source: { kind: "chat", messages } },
    { endpoint: "responses", fields: { input: messages }, source: { kind: "chat", messages } },
    { endpoint: "responses", fields: { input: 5 }, source: none },
    { endpoint: "responses", fields: { messages }, source: none },
    { endpoint: "completions", fields: { prompt: "a" }, source: text("a") },
    { endpoint: "completions", fields: { prompt: "" }, source: text("") },
    { endpoint: "completions", fields: { prompt: ["a", "b"] }, source: text("a") },
    { endpoint: "completions", fields: { prompt: [1, 2] }, source: tokens(1, 2) },
    { endpoint: "completions", fields: { prompt: [[1, 2], [3]] }, source: tokens(1, 2) },
    { endpoint: "completions", fields: { prompt: [[], [3]] }, source: none },
    { endpoint: "completions", fields: { prompt: [0xffff_ffff] }, source: tokens(0xffff_ffff) },
    { endpoint: "completions", fields: { prompt: [0x1_0000_0000] }, source: none },
    { endpoint: "completions", fields: { prompt: [1, 2.5] }, source: none },
    { endpoint: "completions", fields: { prompt: [1, "a"] }, source: none },
    { endpoint: "completions", fields: { prompt: [null] }, source: none },
    { endpoint: "completions", fields: { prompt: [{}] }, source: none },
    { endpoint: "completions", fields: { prompt: null }, source: none },
    { endpoint: "generate", fields: { text: "a" }, source: text("a") },
    { endpoint: "generate", fields: { text: ["a"] }, source: text("a") },
    { endpoint: "generate", fields: { input_ids: [5] }, source: tokens(5) },
    { endpoint: "token_generate", fields: { token_ids: [5] }, source: tokens(5) },
    { endpoint: "token_generate", fields: { input_ids: [5] }, source: none },
    { endpoint: "generate", fields: { text: "a", input_ids: [[5], [6]] }, source: tokens(5) },
    { endpoint: "generate", fields: { text: "a", input_ids: null }, source: text("a") },
    { endpoint: "generate", fields: { text: "a", input_ids: [] }, source: none },
    { endpoint: "embeddings", fields: { input: "a" }, source: none },
    { endpoint: "", fields: { messages, prompt: "a" }, source: none },
  ])("$endpoint $fields: $source.kind", ({ endpoint, fields, source }) => {
    expect(promptSource({ endpoint, fields })).toEqual(source);
  });

  test.each([
    { value: undefined, wants: true },
    { value: null, wants: true },
    { value: true, wants: true },
    { value: false, wants: false },
  ])("add_special_tokens $value: $wants", ({ value, wants }) => {
    expect(wantsSpecialTokens({ add_special_tokens: value })).toBe(wants);
  });
});

describe("a text as bytes", () => {
  const hasher = createPromptHasher();
  test.each([
    { value: "", blocks: 0, count: 0 },
    { value: "abc", blocks: 0, count: 3 },
    { value: "abcd", blocks: 1, count: 4 },
    { value: "ééé", blocks: 1, count: 6 },
    { value: "🙂🙂", blocks: 2, count: 8 },
    { value: "\ud800a", blocks: 1, count: 4 },
  ])("$value has $blocks blocks of 4 bytes", ({ value, blocks, count }) => {
    const view = viewOfText(value, 4, hasher);
    expect(view).toMatchObject({ unit: "bytes", how: "bytes", textUntil: 0, complete: true, blocks, count });
    expect(view.contents).toHaveLength(2 * blocks);
  });

  test("shares the blocks of what it has in common with another, though characters lie across them", () => {
    const common = "größer als 好🙂, und noch mehr";
    const [one, other] = [`${common} AAAA`, `${common} BBBB`].map((value) => digestText(value, 4, hasher).contents);
    const shared = 2 * Math.floor(Buffer.byteLength(common) / 4);
    expect(one!.slice(0, shared)).toEqual(other!.slice(0, shared));
    expect(one).not.toEqual(other);
  });
});

describe("all tokens of a request", () => {
  const load = async (name: string) => loadRequestTokens(modelFolders[name]!, createVirtualTime().clock);
  const tiny = createTextTokenizer({ tokenizer: readModel("espalier-tiny"), config: {} });
  const chat = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";

  test.each<{ endpoint: string; fields: JsonObject; as: string }>([
    { endpoint: "chat", fields: { messages: [{ role: "user", content: "hi" }] }, as: chat },
    { endpoint: "chat", fields: { messages: [{ role: "user", content: [{ type: "text", text: "hi" }] }] }, as: chat },
    { endpoint: "completions", fields: { prompt: "some text <|im_end|>" }, as: "some text <|im_end|>" },
    { endpoint: "completions", fields: { prompt: ["one", "two"] }, as: "one" },
    { endpoint: "generate", fields: { text: "" }, as: "" },
  ])("$endpoint $fields", async ({ endpoint, fields, as }) => {
    const requestTokens = await load("espalier-tiny");
    expect(requestTokens({ endpoint, fields })).toEqual(tiny.encode(as, { addSpecialTokens: true }));
  });

  test("ids pass as they are, and no prompt has none", async () => {
    const requestTokens = await load("espalier-tiny");
    expect(requestTokens({ endpoint: "generate", fields: { input_ids: [3, 1, 2] } })).toEqual(Uint32Array.of(3, 1, 2));
    expect(requestTokens({ endpoint: "embeddings", fields: { input: "a" } })).toBeUndefined();
    expect(requestTokens({ endpoint: "completions", fields: {} })).toBeUndefined();
  });

  test("text gets the model's tokens around it unless the request says no, and chats never do", async () => {
    const requestTokens = await load("spm-bpe");
    const [around, bare] = [undefined, false].map((add_special_tokens) =>
      requestTokens({ endpoint: "completions", fields: { prompt: "hello", add_special_tokens } }),
    );
    const { surroundings } = createTextTokenizer({ tokenizer: readModel("spm-bpe"), config: {} });
    expect(surroundings.before.length).toBeGreaterThan(0);
    expect([...around!]).toEqual([...surroundings.before, ...bare!, ...surroundings.after]);
  });

  test("a chat that the template refuses is the caller's to handle", async () => {
    const requestTokens = await load("espalier-tiny");
    const fields = { messages: [{ role: "user", content: "hi" }], tools: [{ type: "function" }] };
    expect(() => requestTokens({ endpoint: "chat", fields })).toThrow(
      expect.objectContaining({ name: "TemplateError" }),
    );
  });

  test("a model without a chat template has no chats", async () => {
    const requestTokens = await load("unigram");
    expect(() => requestTokens({ endpoint: "chat", fields: { messages: [] } })).toThrow("have no chat template");
    expect(requestTokens({ endpoint: "completions", fields: { prompt: "a" } })?.length).toBeGreaterThan(0);
  });

  test("files that cannot be used are told when they are loaded", async () => {
    await expect(loadRequestTokens("/nowhere/at/all", createVirtualTime().clock)).rejects.toMatchObject({
      code: "config_unreadable",
    });
  });
});
