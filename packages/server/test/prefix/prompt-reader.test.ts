import { EspalierError, type HttpClient, type HttpRequest } from "@espalier/core";
import { createCacheMeters, type PromptBlocks } from "@espalier/routing";
import {
  createRecordingLogger,
  createSeriesMeter,
  createVirtualTime,
  type LogLine,
  type VirtualTime,
} from "@espalier/testing";
import { shippedModelFolder, type TokenizerPool } from "@espalier/tokenizer";
import { describe, expect, test } from "vitest";
import type { TokenizerConfig } from "../../src/config/index.ts";
import {
  maxEngineTokenizers,
  maxWarmUpMs,
  PromptReader,
  type PromptReaderOptions,
  type PromptSource,
} from "../../src/prefix/prompt-reader.ts";
import { bodyOf } from "./body-of.ts";

const blockSize = 16;
const budgetMs = 50;
const local: TokenizerConfig = { models: ["*"], mode: "local", engine: "auto", path: shippedModelFolder() };
const engine = (...models: readonly string[]): TokenizerConfig => ({
  models,
  mode: "engine",
  engine: "auto",
  path: undefined,
});
const bytes = (...models: readonly string[]): TokenizerConfig => ({
  models,
  mode: "bytes",
  engine: "auto",
  path: undefined,
});

/** The tokens that the engine of these tests has for a text: one for each character. */
const engineTokens = (text: string): number[] => [...text].map((character) => character.charCodeAt(0));

interface Rig {
  readonly reader: PromptReader;
  readonly time: VirtualTime;
  readonly asked: HttpRequest[];
  readonly lines: readonly LogLine[];
  readonly pool: TokenizerPool & { running: boolean; batches: number };
  /** How often prompts were read as what. */
  count(from: PromptBlocks["from"]): number;
  read(changes?: Partial<PromptSource>): PromptBlocks | Promise<PromptBlocks>;
}

interface RigOptions {
  readonly tokenizers?: readonly TokenizerConfig[];
  readonly seed?: string;
  readonly size?: number;
  /** How long an engine takes; undefined refuses. */
  readonly engineMs?: number | undefined;
  readonly engineUrl?: (model: string) => string | undefined;
  readonly engineKind?: PromptReaderOptions["engineKind"];
  /** How the threads load a model; at once unless given. */
  readonly warm?: (folder: string) => Promise<void>;
}

function create(options: RigOptions = {}): Rig {
  const { tokenizers = [local], seed = "fleet", size = blockSize, engineUrl = (model) => `http://${model}` } = options;
  const engineMs = "engineMs" in options ? options.engineMs : 0;
  const warm = options.warm ?? (() => Promise.resolve());
  const time = createVirtualTime();
  const logger = createRecordingLogger();
  const meter = createSeriesMeter();
  const asked: HttpRequest[] = [];
  const http: HttpClient = async (request) => {
    asked.push(request);
    if (engineMs === undefined) throw new EspalierError("upstream_connect_failed");
    if (engineMs > 0) await new Promise<void>((resolve) => void time.scheduler.after(engineMs, resolve));
    const { prompt, messages } = JSON.parse(request.body ?? "") as { prompt?: string; messages?: unknown };
    const tokens = engineTokens(prompt ?? JSON.stringify(messages));
    return { status: 200, headers: {}, body: JSON.stringify({ tokens, count: tokens.length }) };
  };
  const pool = {
    running: false,
    batches: 0,
    async start() {
      pool.running = true;
    },
    async stop() {
      pool.running = false;
    },
    // A thread that is always busy: what is long and new is not known in time.
    encode: () => void pool.batches++,
    warm,
  };
  const reader = new PromptReader({
    ...time,
    ...{ tokenizers, budgetMs, cacheBytes: 1_048_576, seed, blockSize: size, http, logger, engineUrl },
    engineKind: options.engineKind ?? (() => undefined),
    pool: pool as Rig["pool"],
    meters: createCacheMeters(meter),
  });
  return {
    ...{ reader, time, asked, lines: logger.lines, pool: pool as Rig["pool"] },
    count: (from) => meter.value("espalier_prompts_total", from) ?? 0,
    read: (changes) => reader.read(sourceOf(changes)),
  };
}

async function start(options: RigOptions = {}): Promise<Rig> {
  const rig = create(options);
  await rig.reader.start();
  return rig;
}

const words = (count: number, stem = "word"): string =>
  Array.from({ length: count }, (_, at) => `${stem}${at}`).join(" ");
const text = words(60);

const sourceOf = (changes: Partial<PromptSource> = {}): PromptSource => ({
  model: "m",
  parent: undefined,
  endpoint: "completions",
  body: bodyOf({ prompt: text }),
  estimatedTokens: 1_000,
  ...changes,
});

const chat = (...contents: readonly unknown[]): Partial<PromptSource> => ({
  endpoint: "chat",
  body: bodyOf({ messages: contents.map((content) => ({ role: "user", content })) }),
});

describe("which tokenizer a model has", () => {
  test.each<{ model: string; parent?: string; from: PromptBlocks["from"] }>([
    { model: "llama-8b", from: "tokens" },
    { model: "llama-", from: "tokens" },
    { model: "llama", from: "bytes" },
    { model: "x-llama-8b", from: "bytes" },
    { model: "exact", from: "tokens" },
    { model: "exactly", from: "bytes" },
    { model: "a.c", from: "tokens" },
    { model: "abc", from: "bytes" },
    { model: "sql-adapter", parent: "llama-8b", from: "tokens" },
    { model: "llama-8b", parent: "other", from: "bytes" },
  ])("$model of $parent: $from", async ({ model, parent, from }) => {
    const rig = await start({ tokenizers: [{ ...local, models: ["llama-*", "exact", "a.c"] }] });
    expect(await rig.read({ model, parent })).toMatchObject({ from });
    expect(rig.count(from)).toBe(1);
  });

  test("the first entry that fits counts", async () => {
    const rig = await start({ tokenizers: [bytes("llama-70b"), { ...local, models: ["llama-*"] }, bytes("*")] });
    const kinds = await Promise.all(["llama-70b", "llama-8b", "qwen"].map((model) => rig.read({ model })));
    expect(kinds.map(({ from }) => from)).toEqual(["bytes", "tokens", "bytes"]);
  });

  test("without any, all prompts are cut over their bytes", async () => {
    const rig = await start({ tokenizers: [] });
    expect(await rig.read()).toMatchObject({ from: "bytes" });
    expect(rig.pool.running).toBe(false);
  });

  test("files that cannot be used leave the model with its bytes, and a warning", async () => {
    const rig = await start({ tokenizers: [{ ...local, path: "/no/such/folder" }] });
    expect(await rig.read()).toMatchObject({ from: "bytes" });
    expect(rig.lines.filter(({ level }) => level === "warn")).toHaveLength(1);
  });

  test("before the start there is none", () => {
    expect(() => create().read()).toThrow(new TypeError("the reader has not been started"));
  });

  test("threads run from start to stop, where an entry needs them", async () => {
    const rig = await start();
    expect(rig.pool.running).toBe(true);
    await rig.reader.stop();
    expect(rig.pool.running).toBe(false);
  });
});

describe("what a prompt is cut into", () => {
  test("full blocks of its tokens", async () => {
    const rig = await start();
    const read = await rig.read();
    expect(read).toMatchObject({ from: "tokens", blockSize, blockCount: Math.floor(read.tokens / blockSize) });
    expect([read.chain.length, read.contents.length]).toEqual([2 * read.blockCount, 2 * read.blockCount]);
    expect(read.blockCount).toBeGreaterThan(5);
  });

  test("full blocks of its bytes, at four bytes a token", async () => {
    const rig = await start({ tokenizers: [] });
    const read = await rig.read({ body: bodyOf({ prompt: "é".repeat(100) }) });
    expect(read).toMatchObject({ from: "bytes", tokens: 50, blockCount: 3, blockSize });
  });

  test.each([4, 32, 256])("blocks of the size that is asked for: %i", async (size) => {
    const read = await (await start({ size })).read();
    expect(read).toMatchObject({ blockSize: size, blockCount: Math.floor(read.tokens / size) });
  });

  test("a longer prompt begins with the blocks of the shorter one", async () => {
    const rig = await start();
    const [short, long] = [
      await rig.read(),
      await rig.read({ body: bodyOf({ prompt: `${text} and more ${words(9)}` }) }),
    ];
    const words32 = 2 * (short.blockCount - 1);
    expect(long.chain.subarray(0, words32)).toEqual(short.chain.subarray(0, words32));
    expect(long.blockCount).toBeGreaterThan(short.blockCount);
  });

  test.each<[string, Partial<PromptSource>]>([
    ["embeddings", { endpoint: "embeddings", body: bodyOf({ input: text }) }],
    ["a body without a prompt", { body: bodyOf({}) }],
    ["a prompt of another kind", { body: bodyOf({ prompt: { text } }) }],
  ])("%s have no blocks", async (_, source) => {
    expect(await (await start()).read(source)).toMatchObject({ from: "bytes", blockCount: 0, tokens: 0 });
  });

  test("token ids are taken as they are, with every tokenizer", async () => {
    const prompt = Array.from({ length: 40 }, (_, at) => at);
    const [withFiles, without] = await Promise.all([start(), start({ tokenizers: [] })]);
    const read = await withFiles.read({ body: bodyOf({ prompt }) });
    expect(read).toMatchObject({ from: "tokens", tokens: 40, blockCount: 2 });
    expect(await without.read({ body: bodyOf({ prompt }) })).toEqual(read);
  });

  test("a chat with an image is known up to there only, and its bytes say the rest", async () => {
    const rig = await start();
    const image = (url: string) => [{ type: "image_url", image_url: { url } }];
    const [one, other] = [
      await rig.read({ ...chat(text, image(`data:${words(50, "a")}`)), estimatedTokens: 10 }),
      await rig.read({ ...chat(text, image(`data:${words(50, "b")}`)), estimatedTokens: 10 }),
    ];
    expect([one.from, other.from]).toEqual(["partial", "partial"]);
    const shared = one.chain.findIndex((word, at) => word !== other.chain[at]);
    expect(shared).toBeGreaterThan(10);
    expect(shared).toBeLessThan(one.chain.length);
  });
});

describe("what sets chains apart", () => {
  const roots: readonly [string, RigOptions, Partial<PromptSource>][] = [
    ["nothing", {}, {}],
    ["an adapter", {}, { model: "sql", parent: "m" }],
    ["another adapter", {}, { model: "law", parent: "m" }],
    ["a cache salt", {}, { body: bodyOf({ prompt: text, cache_salt: "tenant-7" }) }],
    ["another cache salt", {}, { body: bodyOf({ prompt: text, cache_salt: "tenant-8" }) }],
    [
      "an adapter and a salt",
      {},
      { model: "sql", parent: "m", body: bodyOf({ prompt: text, cache_salt: "tenant-7" }) },
    ],
    ["another seed", { seed: "other" }, {}],
    ["another block size", { size: 8 }, {}],
    ["bytes", { tokenizers: [] }, {}],
  ];

  test("each of these does, from the first block on", async () => {
    const firsts = await Promise.all(
      roots.map(async ([, options, source]) => String((await (await start(options)).read(source)).chain.slice(0, 2))),
    );
    expect(new Set(firsts).size).toBe(roots.length);
  });

  test.each<[string, Partial<PromptSource>]>([
    ["the model's name, which has its own engines", { model: "other" }],
    ["an empty salt", { body: bodyOf({ prompt: text, cache_salt: "" }) }],
    ["a salt that is none", { body: bodyOf({ prompt: text, cache_salt: 7 }) }],
    ["no salt, said so", { body: bodyOf({ prompt: text, cache_salt: null }) }],
    ["a limit of the answer", { body: bodyOf({ prompt: text, max_tokens: 5 }) }],
  ])("%s does not", async (_, source) => {
    const rig = await start();
    expect((await rig.read(source)).chain).toEqual((await rig.read()).chain);
  });

  test("what blocks contain is the same with every root", async () => {
    const rig = await start();
    const salted = await rig.read({ body: bodyOf({ prompt: text, cache_salt: "tenant-7" }) });
    expect(salted.contents).toEqual((await rig.read()).contents);
  });
});

describe("text that is long and new", () => {
  const long = words(2_000);

  test("is known in its beginning only when nobody has the time, and then it is estimated", async () => {
    const rig = await start();
    const read = await rig.read({ body: bodyOf({ prompt: long }), estimatedTokens: 4_321 });
    expect(read).toMatchObject({ from: "partial", tokens: 4_321, blockCount: 0 });
    expect([rig.pool.batches, rig.count("partial")]).toEqual([1, 1]);
  });

  test("never counts for less than what is known of it", async () => {
    const rig = await start();
    await rig.read();
    const read = await rig.read({ body: bodyOf({ prompt: `${text} ${long}` }), estimatedTokens: 0 });
    expect(read.from).toBe("partial");
    expect(read.tokens).toBeGreaterThanOrEqual(read.blockCount * blockSize);
  });
});

describe("prompts that an engine tokenizes", () => {
  const prompt = "x".repeat(40);
  const tokenizers = [engine("*")];

  test("the first request of a model is asked for, as all that follow", async () => {
    const rig = await start({ tokenizers });
    expect(await rig.read({ body: bodyOf({ prompt }) })).toMatchObject({ from: "tokens", tokens: 40, blockCount: 2 });
    expect(rig.asked.map(({ url }) => url)).toEqual(["http://m/tokenize"]);
    expect(await rig.read({ body: bodyOf({ prompt: `${prompt}y` }) })).toMatchObject({ from: "tokens", tokens: 41 });
  });

  test("the same prompt is not asked for twice", async () => {
    const rig = await start({ tokenizers });
    const first = await rig.read({ body: bodyOf({ prompt }) });
    const again = rig.read({ body: bodyOf({ prompt }) });
    expect(again).toEqual(first);
    expect(rig.asked).toHaveLength(1);
  });

  test("adapters ask as the model that they are of", async () => {
    const rig = await start({ tokenizers });
    await rig.read({ model: "sql", parent: "m", body: bodyOf({ prompt }) });
    expect(rig.asked.map(({ url, body }) => [url, JSON.parse(body ?? "").model])).toEqual([["http://m/tokenize", "m"]]);
  });

  test("an engine that takes longer than the budget has nothing known this time", async () => {
    const rig = await start({ tokenizers, engineMs: 200 });
    const slow = rig.read({ body: bodyOf({ prompt }), estimatedTokens: 12 });
    await rig.time.advanceAsync(budgetMs);
    expect(await slow).toMatchObject({ from: "partial", tokens: 12, blockCount: 0 });
    await rig.time.advanceAsync(200);
    expect(await rig.read({ body: bodyOf({ prompt }) })).toMatchObject({ from: "tokens", blockCount: 2 });
  });

  test.each<[string, RigOptions]>([
    ["an engine that does not answer", { engineMs: undefined }],
    ["no engine that is up", { engineUrl: () => undefined }],
  ])("with %s they are seen as bytes", async (_, options) => {
    const rig = await start({ tokenizers, ...options });
    expect(await rig.read({ body: bodyOf({ prompt }) })).toMatchObject({ from: "bytes", tokens: 10 });
    expect(rig.lines.filter(({ level }) => level === "warn")).toHaveLength(1);
  });

  test("models past the bound are cut over their bytes, those before it go on", async () => {
    const rig = await start({ tokenizers });
    for (let model = 0; model < maxEngineTokenizers; model++) await rig.read({ model: `m${model}`, body: bodyOf({}) });
    await rig.time.advanceAsync(0);
    for (const again of [1, 2]) {
      expect(await rig.read({ model: "one-more", body: bodyOf({ prompt }) }), `${again}`).toMatchObject({
        from: "bytes",
      });
      await rig.time.advanceAsync(0);
    }
    const last = await rig.read({ model: `m${maxEngineTokenizers - 1}`, body: bodyOf({ prompt }) });
    expect(last).toMatchObject({ from: "tokens" });
    expect(rig.asked).toHaveLength(1);
  });

  // A tokenizer is made in a later turn: models that came in one burst were all let in, however many there were.
  test("the bound holds for models that come in one burst", async () => {
    const rig = await start({ tokenizers });
    for (let model = 0; model <= maxEngineTokenizers; model++) void rig.read({ model: `m${model}`, body: bodyOf({}) });
    await rig.time.advanceAsync(0);
    const reads = [maxEngineTokenizers - 1, maxEngineTokenizers].map((model) =>
      rig.read({ model: `m${model}`, body: bodyOf({ prompt }) }),
    );
    expect((await Promise.all(reads)).map(({ from }) => from)).toEqual(["tokens", "bytes"]);
  });
});

describe("threads are made ready before the first request", () => {
  const unreported = ["loading the tokenizers"];
  const warnings = ({ lines }: Rig) => lines.filter(({ level }) => level === "warn").map(({ fields }) => fields.reason);

  test("each model that they serve once, whatever the patterns", async () => {
    const folders: string[] = [];
    let loaded = (): void => {};
    const tokenizers = [{ ...local, models: ["a-*"] }, engine("b-*"), bytes("c-*"), local];
    const rig = create({
      tokenizers,
      warm: (folder) => {
        folders.push(folder);
        return new Promise((resolve) => {
          loaded = resolve;
        });
      },
    });
    expect(rig.reader.waitingFor).toEqual(unreported);
    await rig.reader.start();
    await rig.time.advanceAsync(maxWarmUpMs - 1);
    expect([folders, rig.reader.waitingFor]).toEqual([[shippedModelFolder()], unreported]);
    loaded();
    await rig.time.advanceAsync(0);
    expect([rig.reader.waitingFor, warnings(rig), rig.time.pendingCount]).toEqual([[], [], 0]);
  });

  test("where there are none, nothing is waited for", async () => {
    const rig = await start({ tokenizers: [engine("*")], warm: () => Promise.reject(new Error("not asked for")) });
    await rig.time.advanceAsync(0);
    expect([rig.reader.waitingFor, warnings(rig)]).toEqual([[], []]);
  });

  test("one that fails is told of, and not waited for", async () => {
    const rig = await start({ warm: () => Promise.reject(new Error("the thread ended")) });
    await rig.time.advanceAsync(0);
    expect([rig.reader.waitingFor, warnings(rig)]).toEqual([[], ["the thread ended"]]);
    expect(await rig.read()).toMatchObject({ from: "tokens" });
  });

  test("one that takes too long is told of, and not waited for any longer", async () => {
    const rig = await start({ warm: () => new Promise(() => {}) });
    await rig.time.advanceAsync(maxWarmUpMs - 1);
    expect([rig.reader.waitingFor, warnings(rig)]).toEqual([unreported, []]);
    await rig.time.advanceAsync(1);
    expect([rig.reader.waitingFor, warnings(rig)]).toEqual([[], [`it takes longer than ${maxWarmUpMs} ms`]]);
  });

  test("a model whose files are of no use is not loaded, and a stop in the midst of it is no failure", async () => {
    const asked: string[] = [];
    const nowhere = { ...local, path: "/nowhere/at/all" };
    const rig = await start({ tokenizers: [nowhere], warm: async (folder) => void asked.push(folder) });
    await rig.time.advanceAsync(0);
    expect([asked, rig.reader.waitingFor]).toEqual([[], []]);

    let fail = (_: Error): void => {};
    const stopped = await start({
      warm: () =>
        new Promise((_, reject) => {
          fail = reject;
        }),
    });
    await stopped.reader.stop();
    fail(new Error("the tokenizer pool was stopped"));
    await stopped.time.advanceAsync(0);
    expect(warnings(stopped)).toEqual([]);
  });
});
