import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { waitFor } from "@espalier/testing";
import { shippedModelFolder } from "@espalier/tokenizer";
import { afterEach, describe, expect, test } from "vitest";
import { cacheRouter, publishingSims, untilHeard } from "./cache-rig.ts";
import { ask, converse, type Turn, wordsOf } from "./cached-turns.ts";
import { type Json, post } from "./client.ts";
import { httpEngine } from "./engines.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

/** Prompts so far, by what they were cut into. */
async function promptsOf(router: RunningRouter): Promise<Json> {
  const page = await router.metrics();
  const count = (source: string) => page.sum("espalier_prompts_total", { source });
  return { tokens: count("tokens"), partial: count("partial"), bytes: count("bytes") };
}

const warningsOf = (router: RunningRouter, about: string) =>
  router.lines.filter(({ level, message }) => level === "warn" && message.includes(about));

interface ForeignForm {
  readonly path: string;
  readonly what: string;
  readonly body: (history: readonly Json[]) => Json;
  /** Engines that six conversations go to: all to one when they begin alike. */
  readonly engines: number;
}

/** Requests of the APIs that engines make chats of, each kind of engine in its way. */
const foreignForms: readonly ForeignForm[] = [
  { path: "/v1/messages", what: "each on its own", body: (messages) => ({ messages, max_tokens: 12 }), engines: 3 },
  {
    path: "/v1/messages",
    what: "behind one system prompt",
    body: (messages) => ({ system: wordsOf(99, 100), messages, max_tokens: 12 }),
    engines: 1,
  },
  { path: "/v1/responses", what: "each on its own", body: (input) => ({ input, max_output_tokens: 12 }), engines: 3 },
];

test.each(foreignForms)(
  "conversations with SGLang at $path, $what, are followed by their bytes",
  async ({ path, body, engines }) => {
    const sims = await publishingSims(rig, 3, { dialect: "sglang-0.5.23" });
    const router = await cacheRouter(rig, sims);
    const histories: Json[][] = Array.from({ length: 6 }, () => []);
    const turns: Turn[][] = histories.map(() => []);
    for (let round = 0; round < 4; round++) {
      for (const [at, history] of histories.entries()) {
        history.push({ role: "user", content: wordsOf(100 * at + round, 80) });
        const turn = await ask(router, path, body(history));
        history.push({ role: "assistant", content: turn.text });
        turns[at]!.push(turn);
      }
    }
    for (const conversation of turns) {
      expect(new Set(conversation.map(({ engine }) => engine)).size).toBe(1);
      for (const { predicted, cached, promptTokens } of conversation.slice(1)) {
        expect(cached).toBeGreaterThan(0.4 * promptTokens);
        expect(predicted).toBeGreaterThan(0);
      }
    }
    expect(new Set(turns.map(([first]) => first!.engine)).size).toBe(engines);
    expect(await promptsOf(router)).toEqual({ tokens: 0, partial: 0, bytes: 24 });
  },
);

test.each(foreignForms)(
  "conversations with vLLM at $path, $what, are followed by their tokens, exactly",
  async ({ path, body, engines }) => {
    const sims = await publishingSims(rig, 3);
    const router = await cacheRouter(rig, sims);
    const histories: Json[][] = Array.from({ length: 6 }, () => []);
    const chosen = histories.map(() => new Set<string>());
    for (let round = 0; round < 4; round++) {
      for (const [at, history] of histories.entries()) {
        history.push({ role: "user", content: wordsOf(100 * at + round, 80) });
        const turn = await ask(router, path, body(history));
        history.push({ role: "assistant", content: turn.text });
        chosen[at]!.add(turn.engine);
        expect(turn.predicted).toBe(turn.cached);
        if (round > 0) expect(turn.cached).toBeGreaterThan(0.4 * turn.promptTokens);
        await untilHeard(router, sims);
      }
    }
    expect(chosen.map(({ size }) => size)).toEqual(histories.map(() => 1));
    // How full a cache is that events tell of decides nothing: conversations of their own begin where chance has it.
    if (engines === 1) expect(new Set(chosen.map(([first]) => first)).size).toBe(1);
    expect(await promptsOf(router)).toEqual({ tokens: 24, partial: 0, bytes: 0 });
  },
);

/** A folder with the small model, changed, for the time of a test. */
function modelFolder(change: (folder: string) => void): string {
  const folder = mkdtempSync(join(tmpdir(), "espalier-model-"));
  rig.own(() => rmSync(folder, { recursive: true }));
  cpSync(shippedModelFolder(), folder, { recursive: true });
  change(folder);
  return folder;
}

function withTemplate(chat_template: string): string {
  return modelFolder((folder) => {
    const path = join(folder, "tokenizer_config.json");
    writeFileSync(path, JSON.stringify({ ...(JSON.parse(readFileSync(path, "utf8")) as Json), chat_template }));
  });
}

const unusable = "tokenizer unusable: matching the model's prompts by bytes";
const notTokenised = "prompt not tokenized: matched by bytes, without engines' KV events";

describe("a model whose chats cannot be tokenised", () => {
  /** Two conversations of three turns each, with an engine that knows the model well. */
  async function play(tokenizer: Json): Promise<readonly [RunningRouter, readonly Turn[][]]> {
    const sims = await publishingSims(rig, 2);
    const router = await cacheRouter(rig, sims, { config: { tokenizers: [tokenizer] } });
    const turns: Turn[][] = [[], []];
    const conversations = turns.map((_, seed) => converse(router, "chat", { seed }, sims[0]!));
    for (let round = 0; round < 3; round++) {
      for (const [at, conversation] of conversations.entries()) turns[at]!.push(await conversation.turn());
    }
    return [router, turns];
  }

  function expectFollowed(turns: readonly (readonly Turn[])[]): void {
    for (const conversation of turns) {
      expect(new Set(conversation.map(({ engine }) => engine)).size).toBe(1);
      expect(conversation.at(-1)!.cached).toBeGreaterThan(100);
    }
  }

  test.each<readonly [string, () => string, RegExp]>([
    ["has no files", () => modelFolder((folder) => rmSync(join(folder, "tokenizer.json"))), /tokenizer\.json/],
    ["has files that are no JSON", () => modelFolder((at) => writeFileSync(join(at, "tokenizer.json"), "{")), /JSON/i],
    ["is nowhere", () => "/nowhere/at/all", /nowhere/],
  ])("because it %s is followed by bytes, which is said at the start", async (_, folder, reason) => {
    const [router, turns] = await play({ path: folder() });
    expectFollowed(turns);
    expect(await promptsOf(router)).toEqual({ tokens: 0, partial: 0, bytes: 6 });
    expect(warningsOf(router, unusable).map(({ fields }) => String(fields.reason))).toEqual([
      expect.stringMatching(reason),
    ]);
    expect(warningsOf(router, notTokenised)).toEqual([]);
  });

  test.each<readonly [string, () => string]>([
    ["refuses every chat", () => withTemplate("{{ raise_exception('not today') }}")],
    ["does not parse", () => withTemplate("{% for m in messages %}{{ m.content }}")],
  ])("because its template %s is followed by bytes, which is said once", async (_, folder) => {
    const [router, turns] = await play({ path: folder() });
    expectFollowed(turns);
    expect(await promptsOf(router)).toEqual({ tokens: 0, partial: 0, bytes: 6 });
    const said = warningsOf(router, "matched by bytes").length + warningsOf(router, unusable).length;
    expect(said).toBe(1);
    expect((await ask(router, "/v1/completions", { prompt: wordsOf(5, 50), max_tokens: 1 })).status).toBe(200);
  });

  test("because nothing says how is followed by bytes, of which nothing is said", async () => {
    const [router, turns] = await play({ models: ["other-*"], mode: "bytes" });
    expectFollowed(turns);
    expect(await promptsOf(router)).toEqual({ tokens: 0, partial: 0, bytes: 6 });
    expect(router.lines.filter(({ level }) => level === "warn")).toEqual([]);
  });
});

describe("tokens from an engine", () => {
  const byEngine = { tokenizers: [{ mode: "engine" }] };

  test("are those of the engine, asked once for the same", async () => {
    const sims = await publishingSims(rig, 2);
    const router = await cacheRouter(rig, sims, { config: byEngine });
    const conversation = converse(router, "chat", { seed: 1 }, sims[0]!);
    for (let round = 0; round < 4; round++) {
      const turn = await conversation.turn();
      await untilHeard(router, sims);
      expect(turn.predicted).toBe(turn.cached);
      expect(turn.cached).toBeGreaterThan(round === 0 ? -1 : 0.6 * turn.promptTokens);
    }
    const text = { prompt: wordsOf(3, 100), max_tokens: 1 };
    for (const expected of [0, 1]) {
      const turn = await ask(router, "/v1/completions", text);
      await untilHeard(router, sims);
      expect([turn.predicted, turn.cached > 0 ? 1 : 0]).toEqual([turn.cached, expected]);
    }
    expect(await promptsOf(router)).toEqual({ tokens: 6, partial: 0, bytes: 0 });
  });

  test.each<readonly [string, number, string]>([
    ["has no such path", 404, '{"error":"no"}'],
    ["answers something else", 200, '{"tokens":"many"}'],
    ["answers nonsense", 200, "<html>"],
  ])("of which one that %s has none: prompts are followed by bytes, which is said once", async (_, status, body) => {
    const usage = '{"usage":{"prompt_tokens":100,"prompt_tokens_details":{"cached_tokens":90}}}';
    const engine = await httpEngine(rig, ({ path, response }) => {
      const isTokenize = path === "/tokenize";
      response.writeHead(isTokenize ? status : 200, { "content-type": "application/json" });
      response.end(isTokenize ? body : usage);
    });
    const router = await rig.router({ engines: [engine.url], config: { policy: "cache_aware", ...byEngine } });
    const chat = { messages: [{ role: "user", content: wordsOf(1, 200) }] };
    const predicted: number[] = [];
    for (let turn = 0; turn < 4; turn++) predicted.push((await ask(router, "/v1/chat/completions", chat)).predicted);
    expect(predicted[0]).toBe(0);
    for (const tokens of predicted.slice(1)) expect(tokens).toBeGreaterThan(200);
    expect(await promptsOf(router)).toEqual({ tokens: 0, partial: 0, bytes: 4 });
    expect(engine.requests.filter(({ path }) => path === "/tokenize").length).toBeGreaterThan(0);
    expect(warningsOf(router, notTokenised)).toHaveLength(1);
  });

  test("that take too long are not waited for, and are known the next time", async () => {
    const held: (() => void)[] = [];
    const engine = await httpEngine(rig, ({ path, response }) => {
      response.writeHead(200, { "content-type": "application/json" });
      if (path !== "/tokenize") response.end('{"usage":{"prompt_tokens":200}}');
      else held.push(() => response.end(JSON.stringify({ tokens: Array.from({ length: 200 }, (_, at) => at) })));
    });
    const router = await rig.router({
      engines: [engine.url],
      config: { policy: "cache_aware", ...byEngine, tokenize: { budget: "50ms" } },
    });
    const chat = { messages: [{ role: "user", content: wordsOf(1, 100) }] };
    const turn = () => ask(router, "/v1/chat/completions", chat);
    await turn();
    await turn();
    expect(await promptsOf(router)).toMatchObject({ tokens: 0 });
    expect(held.length).toBeGreaterThan(0);
    for (const answer of held) answer();
    await waitFor(
      async () => {
        await turn();
        return (await promptsOf(router)).tokens !== 0;
      },
      { what: "known tokens" },
    );
    expect((await turn()).predicted).toBe(192);
  });
});

test("models have the tokenizer whose pattern comes first, adapters that of their model", async () => {
  const sims = await publishingSims(rig, 1, { models: ["large-1"], adapters: ["an-adapter"] });
  const tokenizers = [
    { models: ["small-*", "an-*"], mode: "bytes" },
    { models: ["large-*"], path: shippedModelFolder() },
    { models: ["*"], mode: "bytes" },
  ];
  const router = await cacheRouter(rig, sims, { config: { tokenizers } });
  for (const model of ["large-1", "an-adapter"]) {
    const body = { model, prompt: wordsOf(1, 100), max_tokens: 1 };
    await ask(router, "/v1/completions", body);
    await untilHeard(router, sims);
    const turn = await ask(router, "/v1/completions", body);
    expect([turn.predicted, turn.cached > 0]).toEqual([turn.cached, true]);
  }
  expect(await promptsOf(router)).toEqual({ tokens: 4, partial: 0, bytes: 0 });
});

test("what is no prompt of a cache is not cut into blocks", async () => {
  const sims = await publishingSims(rig, 1);
  const router = await cacheRouter(rig, sims);
  for (const [path, body] of [
    ["/v1/embeddings", { input: wordsOf(1, 100) }],
    ["/v1/rerank", { query: "tide", documents: ["low", "high"] }],
  ] as const) {
    const answer = await post(router.url + path, { model: "tiny", ...body });
    expect([answer.status, answer.headers["x-espalier-cache-hit-tokens"]]).toEqual([200, undefined]);
  }
  expect(await promptsOf(router)).toEqual({ tokens: 0, partial: 0, bytes: 0 });
});

/**
 * A prompt that a thread tokenises must be known within the budget by the first request. A machine that is very busy may
 * take a thread longer for once, but not for five routers in a row; a thread that starts with the request always does.
 */
test("the first request of a fresh router goes by what the engines held before it", async () => {
  const sims = await publishingSims(rig, 2);
  const body = { prompt: wordsOf(7, 1_500), max_tokens: 1 };
  const held = await post(`${sims[1]!.url}/v1/completions`, { model: "tiny", ...body });
  expect(held.status).toBe(200);
  const firstOf = async (): Promise<Turn> => {
    const router = await cacheRouter(rig, sims, { config: { tokenize: { budget: "20ms" } } });
    await waitFor(() => router.router.readiness().ready, { what: "readiness", deadlineMs: 20_000 });
    await untilHeard(router, sims);
    return await ask(router, "/v1/completions", body);
  };
  let first = await firstOf();
  for (let router = 2; router <= 5 && first.predicted === 0; router++) first = await firstOf();
  expect(first).toMatchObject({ status: 200, engine: sims[1]!.id, predicted: first.cached });
  expect(first.cached).toBeGreaterThan(0.9 * first.promptTokens);
});
