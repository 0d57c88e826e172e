import type { JsonObject } from "@espalier/core";
import { createRecordingLogger, createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import type { ChatDialect } from "../../src/chat/chat-dialect.ts";
import { createEngineTokenizer, type EngineTokenizer, fetchTokens } from "../../src/modes/engine-mode.ts";
import { createModelTokenizer, type ModelTokenizer } from "../../src/modes/model-tokenizer.ts";
import { createPromptHasher, type PromptBlocks } from "../../src/prompt/prompt-blocks.ts";
import { promptSource } from "../../src/prompt-request.ts";
import { createFakeEngine, type FakeEngine, tokensBody } from "../support/fake-engine.ts";

const hasher = createPromptHasher();
const mebibyte = 1024 * 1024;

interface Rig {
  readonly engine: FakeEngine;
  /** The blocks of a request, whose number of tokens tells which answer they are of. */
  encode(endpoint: string, fields: JsonObject, dialect?: ChatDialect): ReturnType<EngineTokenizer["encode"]>;
}

function rig(
  options: {
    readonly blocksBytes?: number;
    readonly cacheBytes?: number;
    readonly url?: () => string | undefined;
  } = {},
): Rig {
  const engine = createFakeEngine();
  const tokenizer = createEngineTokenizer({
    http: engine.http,
    engineUrl: options.url ?? (() => "http://engine"),
    model: "m",
    hasher,
    timeoutMs: 700,
    toBlocks: (tokens): PromptBlocks => ({
      tokenCount: tokens.length,
      contents: new Uint32Array((options.blocksBytes ?? 0) / 4),
      leftover: tokens,
    }),
    ...(options.cacheBytes === undefined ? {} : { cacheBytes: options.cacheBytes }),
  });
  return {
    engine,
    encode: (endpoint, fields, dialect) =>
      tokenizer.encode({ endpoint, fields, ...(dialect && { dialect }) }, promptSource({ endpoint, fields })),
  };
}

const user = (content: string): object => ({ role: "user", content });

describe("what the engine is asked", () => {
  test.each<{ name: string; endpoint: string; fields: JsonObject; body: object; dialect?: ChatDialect }>([
    {
      name: "a prompt, with the tokens around it",
      endpoint: "completions",
      fields: { prompt: "a", max_tokens: 4 },
      body: { prompt: "a", add_special_tokens: true },
    },
    {
      name: "a prompt without them",
      endpoint: "completions",
      fields: { prompt: "a", add_special_tokens: false },
      body: { prompt: "a", add_special_tokens: false },
    },
    {
      name: "the first of several prompts",
      endpoint: "completions",
      fields: { prompt: ["a", "b"] },
      body: { prompt: "a", add_special_tokens: true },
    },
    {
      name: "the text of SGLang",
      endpoint: "generate",
      fields: { text: "a" },
      body: { prompt: "a", add_special_tokens: true },
    },
    { name: "a chat", endpoint: "chat", fields: { messages: [user("a")], seed: 5 }, body: { messages: [user("a")] } },
    {
      name: "a chat with all that its prompt depends on",
      endpoint: "chat",
      fields: {
        reasoning_effort: "low",
        messages: [],
        tools: [],
        documents: null,
        add_generation_prompt: false,
        continue_final_message: true,
        chat_template_kwargs: { a: 1 },
        tool_choice: "none",
      },
      body: {
        messages: [],
        tools: [],
        documents: null,
        add_generation_prompt: false,
        continue_final_message: true,
        chat_template_kwargs: { a: 1, enable_thinking: true, reasoning_effort: "low" },
      },
    },
    {
      name: "a chat of SGLang, whose choice of tools and effort it reads itself",
      endpoint: "chat",
      dialect: "sglang-0.5.23",
      fields: { messages: [], tools: [], tool_choice: "none", reasoning_effort: "low", chat_template_kwargs: { a: 1 } },
      body: { messages: [], tools: [], tool_choice: "none", reasoning_effort: "low", chat_template_kwargs: { a: 1 } },
    },
  ])("$name", ({ endpoint, fields, body, dialect }) => {
    const { engine, encode } = rig();
    void encode(endpoint, fields, dialect);
    const [asked] = engine.asked;
    expect(JSON.parse(asked?.body ?? "")).toEqual({ model: "m", ...body });
    expect(asked).toMatchObject({
      url: "http://engine/tokenize",
      method: "POST",
      headers: { "content-type": "application/json" },
      timeoutMs: 700,
      maxBytes: 32 * mebibyte,
    });
  });

  test("the engine that is up when it is asked", async () => {
    const urls = ["http://one", "http://two", undefined];
    const { engine, encode } = rig({ url: () => urls.shift() });
    void encode("completions", { prompt: "a" });
    void encode("completions", { prompt: "b" });
    expect(engine.asked.map(({ url }) => url)).toEqual(["http://one/tokenize", "http://two/tokenize"]);
    await expect(encode("completions", { prompt: "c" })).rejects.toThrow("no engine of the model is up");
    expect(engine.asked).toHaveLength(2);
  });
});

describe("answers", () => {
  const url = "http://engine";
  const fetched = (body: string, status = 200): Promise<Uint32Array> => {
    const engine = createFakeEngine();
    const tokens = fetchTokens({ http: engine.http, url, body: "{}", timeoutMs: 1 });
    engine.answer(body, status);
    return tokens;
  };

  test.each([{ ids: [] }, { ids: [0] }, { ids: [1, 2, 0xffff_ffff] }])("tokens $ids", async ({ ids }) => {
    expect([...(await fetched(tokensBody(...ids)))]).toEqual(ids);
  });

  test.each([
    { body: "{}", status: 200, says: "http://engine/tokenize answered without tokens" },
    { body: "[1, 2]", status: 200, says: "answered without tokens" },
    { body: "null", status: 200, says: "answered without tokens" },
    { body: '{"tokens": {"0": 1}}', status: 200, says: "answered without tokens" },
    { body: tokensBody(1, -1), status: 200, says: "answered without tokens" },
    { body: tokensBody(1, 2.5), status: 200, says: "answered without tokens" },
    { body: tokensBody(1, "2"), status: 200, says: "answered without tokens" },
    { body: tokensBody(1, null), status: 200, says: "answered without tokens" },
    { body: tokensBody(0x1_0000_0000), status: 200, says: "answered without tokens" },
    { body: "", status: 200, says: "JSON" },
    { body: tokensBody(1), status: 201, says: "http://engine/tokenize answered 201" },
    { body: tokensBody(1), status: 404, says: "http://engine/tokenize answered 404" },
    { body: "busy", status: 503, says: "http://engine/tokenize answered 503" },
  ])("$status $body is an error: $says", async ({ body, status, says }) => {
    await expect(fetched(body, status)).rejects.toThrow(says);
  });

  test("one of 32 MiB is taken, and one byte more is refused", async () => {
    const padded = (length: number): string => tokensBody(1).padEnd(length, " ");
    expect(await fetched(padded(32 * mebibyte))).toEqual(Uint32Array.of(1));
    await expect(fetched(padded(32 * mebibyte + 1))).rejects.toMatchObject({ code: "upstream_protocol_error" });
  });
});

describe("what is remembered", () => {
  test("is found at once when the same is asked, and only then", async () => {
    const { engine, encode } = rig();
    const first = encode("completions", { prompt: "a" });
    engine.answer(tokensBody(1, 2, 3));
    const blocks = await first;
    expect(encode("completions", { prompt: "a", temperature: 1 })).toBe(blocks);
    expect(encode("generate", { text: "a" })).toBe(blocks);
    for (const fields of [{ prompt: "b" }, { prompt: "a", add_special_tokens: false }]) {
      expect(encode("completions", fields)).toBeInstanceOf(Promise);
    }
    expect(encode("chat", { messages: [user("a")] })).toBeInstanceOf(Promise);
    expect(engine.asked).toHaveLength(4);
  });

  test("is no failure: the next one asks again", async () => {
    const { engine, encode } = rig();
    const failed = encode("completions", { prompt: "a" });
    engine.fail(new Error("reset"));
    await expect(failed).rejects.toThrow("reset");
    const again = encode("completions", { prompt: "a" });
    engine.answer(tokensBody(7));
    expect(await again).toMatchObject({ tokenCount: 1 });
    expect(encode("completions", { prompt: "a" })).not.toBeInstanceOf(Promise);
  });

  test("is bounded: what was not asked for longest is asked for again", async () => {
    // Two answers of 100 bytes of blocks, 4 of tokens and 160 of entry.
    const { engine, encode } = rig({ blocksBytes: 100, cacheBytes: 2 * 264 });
    const ask = async (prompt: string): Promise<boolean> => {
      const found = encode("completions", { prompt });
      if (!(found instanceof Promise)) return true;
      engine.answer(tokensBody(1));
      await found;
      return false;
    };
    const hits: boolean[] = [];
    for (const prompt of ["a", "b", "a", "c", "a", "b", "c"]) hits.push(await ask(prompt));
    expect(hits).toEqual([false, false, true, false, true, false, false]);
  });

  test.each([
    { blocksBytes: 16 * mebibyte - 160, isKept: true },
    { blocksBytes: 16 * mebibyte - 156, isKept: false },
  ])("an answer of $blocksBytes bytes within the 16 MiB: kept $isKept", async ({ blocksBytes, isKept }) => {
    const { engine, encode } = rig({ blocksBytes });
    const first = encode("completions", { prompt: "a" });
    engine.answer(tokensBody());
    await first;
    expect(encode("completions", { prompt: "a" }) instanceof Promise).toBe(!isKept);
  });
});

describe("the mode engine", () => {
  interface ModelRig {
    readonly engine: FakeEngine;
    readonly model: ModelTokenizer;
    readonly time: ReturnType<typeof createVirtualTime>;
    readonly logger: ReturnType<typeof createRecordingLogger>;
  }
  async function modelRig(budgetMs?: number): Promise<ModelRig> {
    const engine = createFakeEngine();
    const time = createVirtualTime();
    const logger = createRecordingLogger();
    const model = await createModelTokenizer({
      model: "m",
      mode: "engine",
      http: engine.http,
      engineUrl: () => "http://engine",
      blockSize: 2,
      hasher,
      ...time,
      logger,
      ...(budgetMs === undefined ? {} : { budgetMs }),
    });
    return { engine, model, time, logger };
  }
  const request = { endpoint: "completions", fields: { prompt: "a prompt" } };

  test("gives nothing at the end of its 20 ms, and not before", async () => {
    const { engine, model, time } = await modelRig();
    const settled: unknown[] = [];
    void Promise.resolve(model.view(request)).then((view) => settled.push(view));
    await time.advanceAsync(19);
    expect(settled).toEqual([]);
    await time.advanceAsync(1);
    expect(settled).toMatchObject([{ unit: "tokens", how: "engine", blocks: 0, count: 0, complete: false }]);
    expect(engine.open).toBe(1);
  });

  test("an answer in time cancels the budget", async () => {
    const { engine, model, time } = await modelRig();
    const view = model.view(request);
    engine.answer(tokensBody(1, 2, 3, 4, 5));
    expect(await view).toMatchObject({ complete: true, blocks: 2, textUntil: 2, count: 5 });
    expect(time.pendingCount).toBe(0);
  });

  test("an error after the budget is nobody's: nothing is logged, and the next request asks again", async () => {
    const { engine, model, time, logger } = await modelRig(3);
    const view = model.view(request);
    time.advance(3);
    expect(await view).toMatchObject({ complete: false });
    engine.fail(new Error("too late"));
    await time.advanceAsync(1);
    expect(logger.lines).toEqual([]);
    const again = model.view(request);
    engine.answer(tokensBody(1, 2));
    expect(await again).toMatchObject({ complete: true, blocks: 1 });
  });

  test("an engine that does not know the endpoint is warned of once for the model, then at debug", async () => {
    const { engine, model, logger } = await modelRig();
    for (let round = 0; round < 3; round++) {
      const view = model.view(request);
      engine.answer("{}", 404);
      expect(await view).toMatchObject({ unit: "bytes", how: "bytes", count: 8 });
    }
    expect(logger.lines.map(({ level }) => level)).toEqual(["warn", "debug", "debug"]);
    expect(logger.lines[0]?.fields).toEqual({
      model: "m",
      endpoint: "completions",
      reason: "http://engine/tokenize answered 404",
    });
    expect(logger.lines[0]?.message).toMatch(/debug level$/);
  });

  test("prompts of ids, of other templates and of nothing are not asked for", async () => {
    const { engine, model, logger } = await modelRig();
    const ids = { endpoint: "completions", fields: { prompt: [1, 2, 3] } };
    expect(model.view(ids)).toMatchObject({ unit: "tokens", how: "tokens", blocks: 1, complete: true });
    for (const endpoint of ["messages", "responses", "embeddings"]) {
      const fields = { messages: [user("a")], input: "a" };
      expect(model.view({ endpoint, fields })).toMatchObject({ unit: "bytes" });
    }
    expect([engine.asked, logger.lines]).toEqual([[], []]);
  });
});
