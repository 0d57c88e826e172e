import { createSeededRandom, EspalierError, type HttpRequest } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { createTextTokenizer } from "../../src/text/text-tokenizer.ts";
import {
  hardTexts,
  type VerifyCase,
  type VerifyOptions,
  type VerifyRow,
  verifyTokenizer,
} from "../../src/verify-tokenizer.ts";
import { tokensBody } from "../support/fake-engine.ts";
import { vocabularyOf } from "../support/models-made.ts";

const tokenizer = createTextTokenizer({
  tokenizer: {
    model: { type: "BPE", vocab: vocabularyOf(["a", "b", "c"]), merges: [] },
    post_processor: { type: "BertProcessing", cls: ["[", 8], sep: ["]", 9] },
  },
  config: {},
});
const prompt: VerifyCase = { name: "one", prompt: "abc" };

/** Rows for cases whose answers are given, and what was asked. */
async function verify(
  cases: readonly VerifyCase[],
  answers: readonly (string | Error | number)[],
  options: Partial<VerifyOptions> = {},
): Promise<{ readonly rows: readonly VerifyRow[]; readonly asked: readonly HttpRequest[] }> {
  const asked: HttpRequest[] = [];
  const rows = await verifyTokenizer({
    tokenizer,
    url: "http://engine",
    model: "m",
    cases,
    http: async (request) => {
      const answer = answers[asked.push(request) - 1];
      if (answer instanceof Error) throw answer;
      if (typeof answer === "number") return { status: answer, headers: {}, body: "" };
      return { status: 200, headers: {}, body: answer ?? "" };
    },
    ...options,
  });
  return { rows, asked };
}

describe("a row", () => {
  test.each<{ name: string; engine: readonly number[]; row: Partial<VerifyRow> }>([
    { name: "of equal tokens", engine: [8, 0, 1, 2, 9], row: { ok: true, tokens: 5 } },
    {
      name: "of none from the engine",
      engine: [],
      row: { ok: false, tokens: 5, firstDifference: { at: 0, ours: 8, engine: undefined } },
    },
    {
      name: "of one that differs first",
      engine: [7, 0, 1, 2, 9],
      row: { ok: false, tokens: 5, firstDifference: { at: 0, ours: 8, engine: 7 } },
    },
    {
      name: "of one that differs later",
      engine: [8, 0, 2, 1, 9],
      row: { ok: false, tokens: 5, firstDifference: { at: 2, ours: 1, engine: 2 } },
    },
    {
      name: "of one too few",
      engine: [8, 0, 1, 2],
      row: { ok: false, tokens: 5, firstDifference: { at: 4, ours: 9, engine: undefined } },
    },
    {
      name: "of one too many",
      engine: [8, 0, 1, 2, 9, 9],
      row: { ok: false, tokens: 5, firstDifference: { at: 5, ours: undefined, engine: 9 } },
    },
    {
      name: "of one left out",
      engine: [0, 1, 2],
      row: { ok: false, tokens: 5, firstDifference: { at: 0, ours: 8, engine: 0 } },
    },
  ])("$name", async ({ engine, row }) => {
    expect((await verify([prompt], [tokensBody(...engine)])).rows).toEqual([{ case: "one", ...row }]);
  });

  test.each([
    { answer: 500, error: "http://engine/tokenize answered 500" },
    { answer: "{}", error: "http://engine/tokenize answered without tokens" },
    { answer: "<html>", error: expect.stringContaining("JSON") },
    { answer: new EspalierError("upstream_timeout"), error: "The engine did not answer in time." },
    { answer: new TypeError("bad URL"), error: "bad URL" },
  ])("of an engine that answers $answer says why", async ({ answer, error }) => {
    expect((await verify([prompt], [answer])).rows).toEqual([{ case: "one", ok: false, tokens: 0, error }]);
  });

  test("of a text that this tokenizer refuses says why, and the engine is not asked", async () => {
    const encode = (): never => {
      throw new RangeError("too long");
    };
    const { rows, asked } = await verify([prompt], [], { tokenizer: { ...tokenizer, encode } });
    expect([rows, asked]).toEqual([[{ case: "one", ok: false, tokens: 0, error: "too long" }], []]);
  });
});

describe("cases", () => {
  const chat: VerifyCase = { name: "chat", messages: [{ role: "user", content: "ab" }], tools: [{ type: "function" }] };

  test("are asked in order, each as the API has it, with the time given", async () => {
    const rendered: unknown[] = [];
    const { rows, asked } = await verify([prompt, chat], [tokensBody(8, 0, 1, 2, 9), tokensBody(0, 1)], {
      timeoutMs: 77,
      render: (fields) => {
        rendered.push(fields);
        return "ab";
      },
    });
    expect(rows).toEqual([
      { case: "one", ok: true, tokens: 5 },
      { case: "chat", ok: true, tokens: 2 },
    ]);
    const { name: _, ...fields } = chat;
    expect(rendered).toEqual([fields]);
    expect(asked.map(({ body }) => JSON.parse(body ?? ""))).toEqual([
      { model: "m", prompt: "abc" },
      { model: "m", ...fields },
    ]);
    expect(asked.map(({ url, timeoutMs }) => [url, timeoutMs])).toEqual(
      asked.map(() => ["http://engine/tokenize", 77]),
    );
  });

  test("have 10 s each unless told otherwise", async () => {
    const { asked } = await verify([prompt], [tokensBody()]);
    expect(asked[0]?.timeoutMs).toBe(10_000);
  });

  test("of chats get no row without a template, and one that fails gets one", async () => {
    expect((await verify([chat, prompt], [tokensBody(8, 0, 1, 2, 9)])).rows.map((row) => row.case)).toEqual(["one"]);
    const render = (): string => {
      throw new Error("no such role");
    };
    expect((await verify([chat], [], { render })).rows).toEqual([
      { case: "chat", ok: false, tokens: 0, error: "no such role" },
    ]);
  });

  test("go on after one that failed", async () => {
    const cases = ["x", "y", "z"].map((name): VerifyCase => ({ name, prompt: "a" }));
    const { rows } = await verify(cases, [503, tokensBody(8, 0, 9), "{"]);
    expect(rows.map(({ case: name, ok }) => [name, ok])).toEqual([
      ["x", false],
      ["y", true],
      ["z", false],
    ]);
  });

  test("of none give no rows", async () => {
    expect((await verify([], [])).rows).toEqual([]);
  });
});

describe("hard texts", () => {
  test("have names of their own, and are the same every time for the same seed", () => {
    const make = (seed: number) => hardTexts({ tokens: ["<s>"], mixtures: 30, random: createSeededRandom(seed) });
    const texts = make(5);
    expect(new Set(texts.map(({ name }) => name)).size).toBe(texts.length);
    expect(make(5)).toEqual(texts);
    expect(make(6)).not.toEqual(texts);
  });

  test.each([0, 1, 7])("%d mixtures are as many more", (mixtures) => {
    expect(hardTexts({ mixtures }).length - hardTexts({ mixtures: 0 }).length).toBe(mixtures);
  });

  test("put each token into text whole, halved and beside words", () => {
    const texts = hardTexts({ tokens: ["<|end|>"], mixtures: 0 }).filter(({ name }) => name.startsWith("around"));
    expect(texts.map(({ text }) => text)).toEqual(
      expect.arrayContaining(["<|end|>", "a<|end|>b", "<|end|", "|end|>", "<|END|>"]),
    );
  });
});
