import { copyFile, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { EspalierError, type HttpClient, type HttpRequest, scanBody } from "@espalier/core";
import { createRecordingLogger, createVirtualTime } from "@espalier/testing";
import { describe, expect, onTestFinished, test } from "vitest";
import { createModelTokenizer, type ModelTokenizer, type ModelTokenizerOptions } from "../src/modes/model-tokenizer.ts";
import type { PromptView } from "../src/modes/prompt-view.ts";
import { createPromptHasher } from "../src/prompt/prompt-blocks.ts";
import { createTextTokenizer } from "../src/text/text-tokenizer.ts";
import { shippedModelFolder } from "../src/tokenizer-files.ts";
import type { PieceBatch, TokenizerPool } from "../src/workers/tokenizer-pool.ts";
import { modelFolders, readModel } from "./support/models.ts";

const hasher = createPromptHasher();
const tokenizer = createTextTokenizer({ tokenizer: readModel("espalier-tiny"), config: {} });
const blockSize = 16;

interface Rig {
  readonly model: ModelTokenizer;
  readonly time: ReturnType<typeof createVirtualTime>;
  readonly logger: ReturnType<typeof createRecordingLogger>;
}

async function rig(options: Partial<ModelTokenizerOptions> = {}): Promise<Rig> {
  const time = createVirtualTime();
  const logger = createRecordingLogger();
  const model = await createModelTokenizer({
    model: "tiny",
    mode: "local",
    folder: modelFolders["espalier-tiny"]!,
    blockSize,
    hasher,
    ...time,
    logger,
    ...options,
  });
  return { model, time, logger };
}

const chat = (...messages: object[]) => ({ endpoint: "chat", fields: { model: "tiny", messages } });
const user = (content: unknown) => ({ role: "user", content });
const long = (seed: string, words = 400): string =>
  Array.from({ length: words }, (_, index) => `${seed}${index}`).join(" ");

/** Digests of the full blocks of tokens. */
function digests(tokens: Uint32Array): Uint32Array {
  const words = 2 * Math.floor(tokens.length / blockSize);
  const contents = new Uint32Array(words);
  const parent = { low: 0, high: 0 };
  hasher.blocks.hashTokens({ tokens, blockSize, parent, chain: new Uint32Array(words), contents });
  return contents;
}

const rendered = (...messages: { role: string; content: string }[]): string =>
  `${messages.map(({ role, content }) => `<|im_start|>${role}\n${content}<|im_end|>\n`).join("")}<|im_start|>assistant\n`;

/** A pool whose batches are answered when the test says so. */
function manualPool(): TokenizerPool & { readonly batches: PieceBatch[]; answer(): void; fail(): void; full: boolean } {
  const batches: PieceBatch[] = [];
  const waiting: { resolve: (rows: readonly Uint32Array[]) => void; reject: (error: Error) => void }[] = [];
  return {
    batches,
    full: false,
    start: async () => undefined,
    stop: async () => undefined,
    warm: async () => undefined,
    encode(batch) {
      if (this.full) return undefined;
      batches.push(batch);
      return new Promise((resolve, reject) => waiting.push({ resolve, reject }));
    },
    answer() {
      const { texts, startsPrompt } = batches.at(-1)!;
      waiting.pop()?.resolve(texts.map((text, index) => tokenizer.encodePiece(text, startsPrompt && index === 0)));
    },
    fail: () => waiting.pop()?.reject(new Error("the thread ended")),
  };
}

describe("local", () => {
  test("a chat has the blocks of its rendered prompt, at once", async () => {
    const { model } = await rig();
    const messages = [user(long("a", 90)), { role: "assistant", content: "yes" }, user("and now?")];
    const view = model.view(chat(...messages)) as PromptView;
    const tokens = tokenizer.encode(rendered(...(messages as { role: string; content: string }[])), {
      addSpecialTokens: false,
    });
    expect(view).toMatchObject({ unit: "tokens", how: "tokens", complete: true, count: tokens.length });
    expect(view.contents).toEqual(digests(tokens));
    expect([view.blocks, view.textUntil]).toEqual([view.contents.length / 2, view.contents.length / 2]);
  });

  test.each([
    { endpoint: "completions", fields: { prompt: long("b", 60) } },
    { endpoint: "completions", fields: { prompt: [long("b", 60), "another prompt"] } },
    { endpoint: "generate", fields: { text: long("b", 60) } },
    { endpoint: "completions", fields: { prompt: long("b", 60), add_special_tokens: false } },
  ])("text of $endpoint has the blocks of its tokens", async (request) => {
    const { model } = await rig();
    expect((model.view(request) as PromptView).contents).toEqual(
      digests(tokenizer.encode(long("b", 60), { addSpecialTokens: false })),
    );
  });

  test("completions get the tokens around them that the model wants, unless they say no", async () => {
    const { model } = await rig({ folder: modelFolders["spm-bpe"]! });
    const count = (fields: object): number =>
      (model.view({ endpoint: "completions", fields: { prompt: "hello", ...fields } }) as PromptView).count;
    expect(count({})).toBe(count({ add_special_tokens: false }) + 1);
  });

  test.each([
    { endpoint: "completions", fields: { prompt: Array.from({ length: 40 }, (_, index) => index) } },
    { endpoint: "completions", fields: { prompt: [Array.from({ length: 40 }, (_, index) => index), [1]] } },
    { endpoint: "generate", fields: { input_ids: Array.from({ length: 40 }, (_, index) => index) } },
  ])("token ids of $endpoint pass straight through, in every mode", async (request) => {
    for (const mode of ["local", "bytes"] as const) {
      const { model } = await rig({ mode });
      const view = model.view(request) as PromptView;
      expect(view).toMatchObject({ unit: "tokens", how: "tokens", count: 40, blocks: 2, complete: true });
      expect(view.contents).toEqual(digests(Uint32Array.from({ length: 40 }, (_, index) => index)));
    }
  });

  test.each([
    { endpoint: "embeddings", fields: { input: "text" } },
    { endpoint: "completions", fields: { prompt: [] } },
    { endpoint: "completions", fields: { prompt: [-1, 2] } },
    { endpoint: "completions", fields: { prompt_embeds: "..." } },
    { endpoint: "chat", fields: { messages: "none" } },
  ])("a body without a prompt has no blocks: $endpoint $fields", async (request) => {
    const { model, logger } = await rig();
    expect(model.view(request)).toMatchObject({ unit: "bytes", blocks: 0, count: 0, complete: true });
    expect(logger.lines).toEqual([]);
  });

  test("from the first image on, blocks are those of the chat's bytes", async () => {
    const { model } = await rig();
    const text = long("c", 60);
    const image = (url: string) =>
      user([
        { type: "text", text: "look" },
        { type: "image_url", image_url: { url } },
      ]);
    const view = (...messages: object[]): PromptView => model.view(chat(...messages)) as PromptView;
    const one = view(user(text), image("http://a/1"), user(long("q", 30)));
    const other = view(user(text), image("http://a/2"), user(long("q", 30)));
    const plain = view(user(text), user("look"));
    expect(one.textUntil).toBeGreaterThan(5);
    expect(one.textUntil).toBeLessThan(one.blocks);
    const until = 2 * one.textUntil;
    expect(one.contents.slice(0, until)).toEqual(plain.contents.slice(0, until));
    expect(one.contents.slice(0, until)).toEqual(other.contents.slice(0, until));
    expect(one.contents.slice(until)).not.toEqual(other.contents.slice(until));
    // The next turn, with an image of its own, begins with the blocks of this one.
    const next = view(
      user(text),
      image("http://a/1"),
      user(long("q", 30)),
      image("data:image/png;base64,".padEnd(9_000, "A")),
    );
    expect(next.textUntil).toBe(one.textUntil);
    expect(next.contents.slice(0, one.contents.length)).toEqual(one.contents);
    expect(next.count).toBeLessThan(one.count + 60);
  });

  test("a chat that the template refuses is seen as bytes, with one warning for the model", async () => {
    const { model, logger } = await rig();
    const refused = { endpoint: "chat", fields: { messages: [user("hi")], tools: [{ type: "function" }] } };
    for (let round = 0; round < 3; round++) {
      expect(model.view(refused)).toMatchObject({ unit: "bytes", how: "bytes", textUntil: 0, complete: true });
    }
    expect(logger.lines.map(({ level }) => level)).toEqual(["warn", "debug", "debug"]);
    expect(logger.lines[0]?.fields).toMatchObject({ model: "tiny", endpoint: "chat" });
  });

  test.each([
    ["{{ messages | map('abs') }}", "the renderer does not support the filter 'abs'"],
    ["{% macro m() %}{{ caller() }}{% endmacro %}", "the renderer does not support the variable 'caller' of macros"],
    ["{% with a = 1 %}{% endwith %}", "the template cannot be read: Unknown statement type: with"],
  ])(
    "chats of a model with the template %s are seen as bytes, and the log names the cause",
    async (template, reason) => {
      const folder = await mkdtemp(join(tmpdir(), "espalier-template-"));
      onTestFinished(() => rm(folder, { recursive: true }));
      await copyFile(join(shippedModelFolder(), "tokenizer.json"), join(folder, "tokenizer.json"));
      await writeFile(join(folder, "chat_template.jinja"), template);
      const { model, logger } = await rig({ folder });
      for (let round = 0; round < 2; round++) {
        expect(model.view(chat(user(long("f"))))).toMatchObject({ unit: "bytes", how: "bytes", complete: true });
      }
      expect(logger.lines).toMatchObject([
        { level: "warn", fields: { model: "tiny", reason } },
        { level: "debug", fields: { reason } },
      ]);
      expect(model.view({ endpoint: "completions", fields: { prompt: long("g") } })).toMatchObject({ unit: "tokens" });
    },
  );

  test("a model without usable files works in bytes and says so once", async () => {
    const { model, logger } = await rig({ folder: "/nowhere/at/all" });
    expect(model.mode).toBe("bytes");
    for (let round = 0; round < 3; round++) expect(model.view(chat(user(long("e"))))).toMatchObject({ unit: "bytes" });
    expect(logger.lines).toHaveLength(1);
    expect(logger.lines[0]).toMatchObject({
      level: "warn",
      fields: { model: "tiny", reason: expect.stringContaining("does not exist") },
    });
  });
});

describe("requests of other APIs", () => {
  test("are seen as the chats that vLLM makes of them", async () => {
    const { model, logger } = await rig();
    const text = long("d", 40);
    const chat = { messages: [{ role: "system", content: "be brief" }, user(text)] };
    const wanted = model.view({ endpoint: "chat", fields: chat }) as PromptView;
    const views = [
      { endpoint: "messages", fields: { system: "be brief", messages: [user(text)] } },
      { endpoint: "responses", fields: { instructions: "be brief", input: text } },
    ].map((request) => model.view(request) as PromptView);
    for (const view of views) expect([view.unit, [...view.contents]]).toEqual(["tokens", [...wanted.contents]]);
    expect(logger.lines).toEqual([]);
  });

  test("are seen as bytes where it is not known what an engine makes of them", async () => {
    const { model, logger } = await rig();
    const fields = { system: "be brief", messages: [user(long("d", 40))] };
    const dialect = "sglang-0.5.23";
    expect(model.view({ endpoint: "messages", fields, dialect })).toMatchObject({ unit: "bytes", complete: true });
    const input = { input: long("d", 40), previous_response_id: "r" };
    expect(model.view({ endpoint: "responses", fields: input })).toMatchObject({ unit: "bytes" });
    expect(logger.lines).toEqual([]);
  });
});

describe("threads and the budget", () => {
  const request = (first: string, second = "x") => chat(user(first), user(second));

  test("short new text is tokenised at once, long new text by a thread", async () => {
    const pool = manualPool();
    const { model } = await rig({ pool, inlineLength: 500 });
    expect(model.view(request("short"))).toMatchObject({ complete: true });
    expect(pool.batches).toEqual([]);
    const promise = model.view(request(long("f")));
    expect(promise).toBeInstanceOf(Promise);
    expect(pool.batches[0]).toMatchObject({ folder: modelFolders["espalier-tiny"], startsPrompt: true });
    pool.answer();
    const view = await promise;
    const tokens = tokenizer.encode(rendered({ role: "user", content: long("f") }, { role: "user", content: "x" }), {
      addSpecialTokens: false,
    });
    expect(view.contents).toEqual(digests(tokens));
    expect(model.view(request(long("f")))).toEqual(view);
  });

  test("past the budget the view is of what is known, and the tokens are there for the next request", async () => {
    const pool = manualPool();
    const { model, time } = await rig({ pool, inlineLength: 500, budgetMs: 5 });
    const known = long("g", 60);
    model.view(request(known));
    const promise = model.view(request(known, long("h")));
    time.advance(5);
    const early = await promise;
    expect(early.complete).toBe(false);
    expect(early.blocks).toBeGreaterThan(3);
    pool.answer();
    await time.advanceAsync(1);
    const later = model.view(request(known, long("h"))) as PromptView;
    expect(later).toMatchObject({ complete: true });
    expect(later.contents.slice(0, early.contents.length)).toEqual(early.contents);
    expect(time.pendingCount).toBe(0);
  });

  test("a full pool, or a thread that fails, leaves what is known", async () => {
    const pool = manualPool();
    const { model, time, logger } = await rig({ pool, inlineLength: 500 });
    const promise = model.view(request(long("i")));
    pool.fail();
    expect(await promise).toMatchObject({ unit: "tokens", complete: false, blocks: 0 });
    pool.full = true;
    expect(model.view(request(long("i")))).toMatchObject({ unit: "tokens", complete: false, blocks: 0 });
    expect(time.pendingCount).toBe(0);
    expect(logger.lines).toEqual([]);
  });

  test("a beginning that is known of a chat with an image has no bytes behind it", async () => {
    const pool = manualPool();
    const { model } = await rig({ pool, inlineLength: 500 });
    pool.full = true;
    const parts = [
      { type: "text", text: "see" },
      { type: "image_url", image_url: { url: "http://a" } },
    ];
    expect(model.view(chat(user(long("j")), user(parts)))).toMatchObject({ complete: false, blocks: 0 });
  });
});

describe("bytes", () => {
  test("blocks are 64 bytes of text for 16 tokens, and text until the first image is never sure", async () => {
    const { model } = await rig({ mode: "bytes" });
    const view = model.view({ endpoint: "completions", fields: { prompt: "é".repeat(100) } }) as PromptView;
    expect(view).toMatchObject({ unit: "bytes", how: "bytes", count: 200, blocks: 3, textUntil: 0, complete: true });
    expect(model.mode).toBe("bytes");
  });

  test("a conversation's next turn begins with the blocks of this one", async () => {
    const { model } = await rig({ mode: "bytes" });
    const messages: object[] = [{ role: "system", content: long("k", 30) }];
    let before: Uint32Array = new Uint32Array(0);
    for (let turn = 0; turn < 6; turn++) {
      messages.push(user(turn === 2 ? [{ type: "text", text: long("l", 20) }] : long(`m${turn}`, 20)));
      const { contents } = model.view(chat(...messages)) as PromptView;
      expect(contents.slice(0, before.length)).toEqual(before);
      before = contents;
      messages.push({ role: "assistant", content: long(`n${turn}`, 15) });
    }
  });

  test("a chain starts from its root", async () => {
    const { model } = await rig({ mode: "bytes" });
    const view = model.view(chat(user(long("o")))) as PromptView;
    const [one, other] = [1, 2].map((low) => model.chain(view, { low, high: 0 }));
    expect(one).toHaveLength(view.contents.length);
    expect(one).not.toEqual(other);
    expect(model.chain(view, { low: 1, high: 0 })).toEqual(one);
  });
});

describe("engine", () => {
  const prompt = long("p", 60);
  const tokens = tokenizer.encode(prompt, { addSpecialTokens: false });

  function engine(answer: (request: HttpRequest) => Promise<{ status: number; body: string }>): {
    readonly http: HttpClient;
    readonly asked: HttpRequest[];
  } {
    const asked: HttpRequest[] = [];
    return {
      asked,
      http: async (request) => {
        asked.push(request);
        return { headers: {}, ...(await answer(request)) };
      },
    };
  }
  const ok = async () => ({ status: 200, body: JSON.stringify({ tokens: [...tokens], count: tokens.length }) });
  const engineUrl = () => "http://engine:8000";

  test("prompts are tokenised by the engine, and the same prompt only once", async () => {
    const { http, asked } = engine(ok);
    const { model } = await rig({ mode: "engine", http, engineUrl });
    const request = { endpoint: "completions", fields: { prompt } };
    const view = await model.view(request);
    expect(view).toMatchObject({ unit: "tokens", how: "engine", complete: true, count: tokens.length });
    expect(view.contents).toEqual(digests(tokens));
    expect(model.view(request)).toEqual(view);
    expect(asked).toHaveLength(1);
    expect(asked[0]).toMatchObject({ url: "http://engine:8000/tokenize", method: "POST" });
    expect(JSON.parse(asked[0]?.body ?? "")).toEqual({ model: "tiny", prompt, add_special_tokens: true });
  });

  test("chats are sent with everything that their prompt depends on, and nothing else", async () => {
    const { http, asked } = engine(ok);
    const { model } = await rig({ mode: "engine", http, engineUrl });
    const fields = {
      messages: [user("hi")],
      tools: [{ type: "function", function: { name: "f" } }],
      chat_template_kwargs: { enable_thinking: false },
      temperature: 0.3,
      stream: true,
    };
    await model.view({ endpoint: "chat", fields });
    const { temperature: _, stream: __, ...wanted } = fields;
    expect(JSON.parse(asked[0]?.body ?? "")).toEqual({ model: "tiny", ...wanted });
  });

  test("past the budget nothing is known, and the answer is there for the next request", async () => {
    let answer: (() => void) | undefined;
    const { http } = engine(() => new Promise((resolve) => (answer = () => resolve(ok()))));
    const { model, time } = await rig({ mode: "engine", http, engineUrl, budgetMs: 7 });
    const request = { endpoint: "completions", fields: { prompt } };
    const promise = model.view(request);
    time.advance(7);
    expect(await promise).toMatchObject({ unit: "tokens", how: "engine", blocks: 0, complete: false });
    answer?.();
    await time.advanceAsync(1);
    expect(model.view(request)).toMatchObject({ how: "engine", complete: true, count: tokens.length });
  });

  test.each([
    { name: "an error", answer: async () => ({ status: 404, body: "{}" }) },
    { name: "no tokens", answer: async () => ({ status: 200, body: '{"tokens":"none"}' }) },
    { name: "no JSON", answer: async () => ({ status: 200, body: "<html>" }) },
    { name: "nothing", answer: () => Promise.reject(new EspalierError("upstream_connect_failed")) },
  ])("an engine that answers with $name leaves bytes, and one warning", async ({ answer }) => {
    const { model, logger } = await rig({ mode: "engine", ...engine(answer), engineUrl });
    for (let round = 0; round < 2; round++) {
      expect(await model.view({ endpoint: "completions", fields: { prompt } })).toMatchObject({ unit: "bytes" });
    }
    expect(logger.lines.map(({ level }) => level)).toEqual(["warn", "debug"]);
  });

  test("without an engine that is up, and for images, prompts are seen as bytes", async () => {
    const { http, asked } = engine(ok);
    const { model } = await rig({ mode: "engine", http, engineUrl: () => undefined });
    expect(await model.view({ endpoint: "completions", fields: { prompt } })).toMatchObject({ unit: "bytes" });
    const image = user([{ type: "image_url", image_url: { url: "http://a" } }]);
    expect(model.view(chat(image))).toMatchObject({ unit: "bytes" });
    expect(asked).toEqual([]);
  });
});

test("a mode that lacks what it needs is refused", async () => {
  const time = createVirtualTime();
  const base = { model: "m", blockSize, hasher, ...time, logger: createRecordingLogger() };
  await expect(createModelTokenizer({ ...base, mode: "local" })).rejects.toThrow(TypeError);
  await expect(createModelTokenizer({ ...base, mode: "engine" })).rejects.toThrow(TypeError);
});

/**
 * Messages and responses become chats of other fields than their bodies have. What is remembered of chats by the bytes of
 * their bodies took such a body for the chat's own: its system prompt, which stands in a field of its own, was left out.
 */
test.each([
  ["messages", { system: long("s", 60), messages: [user("Hi")], max_tokens: 5 }],
  ["responses", { instructions: long("s", 60), input: [user("Hi")] }],
])("%s have the same prompt with the bytes of their body as without", async (endpoint, fields) => {
  const { model } = await rig();
  const body = scanBody(Buffer.from(JSON.stringify(fields)), 64);
  if (typeof body === "string") throw new TypeError(body);
  const whole = await model.view({ endpoint, fields });
  for (let turn = 0; turn < 2; turn++) {
    const { contents } = await model.view({ endpoint, fields, body });
    expect(contents).toEqual(whole.contents);
  }
});
