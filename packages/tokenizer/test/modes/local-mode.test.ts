import { createSeededRandom } from "@espalier/core";
import { createRecordingLogger, createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import {
  createModelTokenizer,
  type ModelTokenizer,
  type ModelTokenizerOptions,
} from "../../src/modes/model-tokenizer.ts";
import type { PromptView } from "../../src/modes/prompt-view.ts";
import { createPromptHasher } from "../../src/prompt/prompt-blocks.ts";
import type { PromptRequest } from "../../src/prompt-request.ts";
import { createTextTokenizer } from "../../src/text/text-tokenizer.ts";
import { createManualPool, type ManualPool } from "../support/manual-pool.ts";
import { modelFolders, readModel } from "../support/models.ts";

const hasher = createPromptHasher();
const tokenizer = createTextTokenizer({ tokenizer: readModel("espalier-tiny"), config: {} });
const blockSize = 8;

interface Rig {
  readonly model: ModelTokenizer;
  readonly pool: ManualPool;
  readonly time: ReturnType<typeof createVirtualTime>;
  readonly logger: ReturnType<typeof createRecordingLogger>;
}

async function rig(options: Partial<ModelTokenizerOptions> = {}): Promise<Rig> {
  const time = createVirtualTime();
  const logger = createRecordingLogger();
  const pool = createManualPool(tokenizer);
  const model = await createModelTokenizer({
    model: "tiny",
    mode: "local",
    folder: modelFolders["espalier-tiny"]!,
    blockSize,
    hasher,
    ...time,
    logger,
    pool,
    inlineLength: 100,
    ...options,
  });
  return { model, pool, time, logger };
}

interface Message {
  readonly role: string;
  readonly content: unknown;
}

const user = (content: unknown): Message => ({ role: "user", content });
const chat = (...messages: readonly Message[]): PromptRequest => ({ endpoint: "chat", fields: { messages } });
const completion = (prompt: string): PromptRequest => ({ endpoint: "completions", fields: { prompt } });
const long = (seed: string, words = 60): string =>
  Array.from({ length: words }, (_, index) => `${seed}${index}`).join(" ");
const rendered = (...messages: readonly Message[]): string =>
  `${messages.map(({ role, content }) => `<|im_start|>${role}\n${content}<|im_end|>\n`).join("")}<|im_start|>assistant\n`;

/** The digests that the whole text comes to. */
function digests(text: string): Uint32Array {
  const tokens = tokenizer.encode(text, { addSpecialTokens: false });
  const words = 2 * Math.floor(tokens.length / blockSize);
  const contents = new Uint32Array(words);
  hasher.blocks.hashTokens({ tokens, blockSize, parent: { low: 0, high: 0 }, chain: new Uint32Array(words), contents });
  return contents;
}

describe("what goes to a thread", () => {
  test.each([
    { length: 100, goes: false },
    { length: 101, goes: true },
  ])("new text of $length characters, where 100 are done at once: $goes", async ({ length, goes }) => {
    const { model, pool } = await rig();
    const view = model.view(completion("x".repeat(length)));
    expect(view instanceof Promise).toBe(goes);
    expect(pool.batches).toHaveLength(goes ? 1 : 0);
  });

  test.each([
    { length: 2_048, goes: false },
    { length: 2_049, goes: true },
  ])("new text of $length characters, by default: $goes", async ({ length, goes }) => {
    const time = createVirtualTime();
    const pool = createManualPool(tokenizer);
    const folder = modelFolders["espalier-tiny"]!;
    const options = { model: "m", mode: "local", folder, blockSize, hasher, ...time, pool } as const;
    const model = await createModelTokenizer({ ...options, logger: createRecordingLogger() });
    expect(model.view(completion("x".repeat(length))) instanceof Promise).toBe(goes);
  });

  test("only what is new, and whether that starts the prompt", async () => {
    const { model, pool } = await rig();
    const first = user(long("a"));
    void model.view(chat(first));
    expect(pool.batches[0]).toMatchObject({ startsPrompt: true, folder: modelFolders["espalier-tiny"] });
    pool.answer();
    await Promise.resolve();
    const next = model.view(chat(first, user(long("b"))));
    expect(pool.batches[1]?.startsPrompt).toBe(false);
    expect(pool.batches[1]?.texts.join("")).not.toContain("a30");
    pool.answer();
    expect((await next).contents).toEqual(digests(rendered(first, user(long("b")))));
  });

  test("long text that is known costs no thread, however little new there is", async () => {
    const { model, pool } = await rig();
    const view = model.view(chat(user(long("c", 500))));
    pool.answer();
    await view;
    expect(model.view(chat(user(long("c", 500)), user("short")))).toMatchObject({ complete: true });
    expect(pool.batches).toHaveLength(1);
  });
});

describe("time", () => {
  test("is 20 ms unless told otherwise", async () => {
    const { model, time } = await rig();
    const settled: PromptView[] = [];
    void Promise.resolve(model.view(completion(long("d")))).then((view) => settled.push(view));
    await time.advanceAsync(19);
    expect(settled).toEqual([]);
    await time.advanceAsync(1);
    expect(settled).toMatchObject([{ unit: "tokens", how: "tokens", complete: false, blocks: 0, count: 0 }]);
  });

  test("that is up for one request and not for another leaves both complete the next time", async () => {
    const { model, pool, time } = await rig({ budgetMs: 10 });
    const shared = user(long("e"));
    const slow = model.view(chat(shared, user(long("f", 200))));
    const other = model.view(chat(shared, user("g")));
    pool.answer(1);
    expect(await other).toMatchObject({ complete: true });
    time.advance(10);
    expect(await slow).toMatchObject({ complete: false });
    pool.answer();
    await time.advanceAsync(0);
    expect(model.view(chat(shared, user(long("f", 200))))).toMatchObject({ complete: true });
    expect(model.view(chat(shared, user("g")))).toEqual(await other);
  });

  test("two requests for the same prompt at once come to the same, in whatever order they are answered", async () => {
    for (const order of [
      [0, 0],
      [1, 0],
    ]) {
      const { model, pool, time } = await rig();
      const request = chat(user(long("h")));
      const views = [model.view(request), model.view(request)];
      for (const index of order) pool.answer(index);
      const [one, other] = await Promise.all(views);
      expect(one).toEqual(other);
      expect(one?.contents).toEqual(digests(rendered(user(long("h")))));
      await time.advanceAsync(0);
      expect(time.pendingCount).toBe(0);
    }
  });

  test("a thread that answers with too few rows leaves bytes and one warning, and no hole in the cache", async () => {
    const { model, pool, logger } = await rig();
    const request = chat(user(long("i")), user(long("j")));
    const view = model.view(request);
    pool.answerWith([]);
    expect(await view).toMatchObject({ unit: "bytes" });
    expect(logger.lines).toMatchObject([
      { level: "warn", fields: { reason: "a piece of the prompt is not tokenized" } },
    ]);
    const again = model.view(request);
    pool.answer();
    expect((await again).contents).toEqual(digests(rendered(user(long("i")), user(long("j")))));
  });
});

test("any order of requests, answers, failures and ends of time comes to blocks of the whole prompt", async () => {
  for (const seed of [131, 132, 133, 134]) {
    const random = createSeededRandom(seed);
    const { model, pool, time, logger } = await rig({ budgetMs: 5, stateBytes: 20_000, pieceBytes: 20_000 });
    const conversations: Message[][] = [[user(long("k", 20))], [user(long("l", 20))]];
    const settled: Promise<void>[] = [];
    for (let step = 0; step < 150; step++) {
      const messages = conversations[random.integer(conversations.length)]!;
      switch (random.integer(5)) {
        case 0:
          if (messages.length < 8) messages.push(user(long(`m${step}`, random.integer(50))));
          break;
        case 1:
          if (pool.open > 0) pool.answer(random.integer(pool.open));
          break;
        case 2:
          if (pool.open > 0) pool.fail(random.integer(pool.open));
          pool.isFull = random.integer(3) === 0;
          break;
        case 3:
          await time.advanceAsync(random.integer(7));
          break;
        default: {
          const whole = digests(rendered(...messages));
          const check = (view: PromptView): void => {
            expect(view.unit).toBe("tokens");
            expect(view.contents).toEqual(whole.slice(0, view.contents.length));
            if (view.complete) expect(view.contents).toHaveLength(whole.length);
          };
          settled.push(Promise.resolve(model.view(chat(...messages))).then(check));
        }
      }
    }
    await time.advanceAsync(5);
    while (pool.open > 0) pool.answer();
    await Promise.all(settled);
    expect(settled.length).toBeGreaterThan(10);
    expect([time.pendingCount, logger.lines]).toEqual([0, []]);
  }
});

describe("chats with images", () => {
  const image = (url: string): Message =>
    user([
      { type: "text", text: "look" },
      { type: "image_url", image_url: { url } },
    ]);
  const viewOf = async (...messages: readonly Message[]): Promise<PromptView> => {
    const { model } = await rig({ inlineLength: 1_000_000 });
    return model.view(chat(...messages));
  };

  test("begin with tokens up to the last cut before the image, which engines share", async () => {
    const text = long("n");
    const view = await viewOf(user(text), image("http://a"));
    const before = rendered(user(text)).split("<|im_start|>assistant")[0]!;
    const shared = digests(`${before}<|im_start|>`);
    expect(2 * view.textUntil).toBe(shared.length);
    expect(view.contents.slice(0, shared.length)).toEqual(shared);
    expect(view).toMatchObject({ unit: "tokens", how: "tokens", complete: true });
  });

  test("in the first message have next to no text that is sure", async () => {
    const view = await viewOf(image("http://a"), user(long("o")));
    expect(view.textUntil).toBe(0);
    expect(view.blocks).toBeGreaterThan(3);
  });

  test("are told apart by their images, by what comes before and by what comes after", async () => {
    const rest = user(long("p"));
    const views = await Promise.all([
      viewOf(user("q"), image("http://a"), rest),
      viewOf(user("q"), image("http://b"), rest),
      viewOf(user("r"), image("http://a"), rest),
      viewOf(user("q"), image("http://a"), user(long("s"))),
    ]);
    const last = views.map(({ contents }) => contents.join());
    expect(new Set(last).size).toBe(4);
  });

  test("grow from turn to turn: each has the blocks of the one before at its start", async () => {
    const messages: Message[] = [user(long("t", 20))];
    let before: PromptView | undefined;
    for (let turn = 0; turn < 5; turn++) {
      messages.push(turn % 2 === 0 ? image(`http://a/${turn}`) : user(long(`u${turn}`, 12)));
      const view = await viewOf(...messages);
      if (before) {
        expect(view.contents.slice(0, before.contents.length)).toEqual(before.contents);
        expect(view.textUntil).toBe(before.textUntil);
        expect(view.count).toBeGreaterThan(before.count);
      }
      before = view;
      messages.push({ role: "assistant", content: long(`v${turn}`, 6) });
    }
  });

  test("that a thread has not tokenised in time have no bytes behind the gap", async () => {
    const { model, pool, time } = await rig({ budgetMs: 5 });
    const request = chat(user(long("w")), image("http://a"));
    const early = model.view(request);
    time.advance(5);
    expect(await early).toMatchObject({ complete: false, blocks: 0 });
    pool.answer();
    await time.advanceAsync(0);
    const later = await model.view(request);
    expect(later.complete).toBe(true);
    expect(later.blocks).toBeGreaterThan(later.textUntil);
  });
});
