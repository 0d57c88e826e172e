import type { HttpClient } from "@espalier/core";
import { expect, test } from "vitest";
import { createTextTokenizer } from "../src/text/text-tokenizer.ts";
import { hardTexts, type VerifyOptions, verifyTokenizer } from "../src/verify-tokenizer.ts";
import { pairOf, readModel } from "./support/models.ts";

const { ours: tokenizer, reference } = pairOf(readModel("espalier-tiny"));
const render = ({ messages }: Readonly<Record<string, unknown>>): string =>
  (messages as { content: string }[]).map(({ content }) => `<|im_start|>${content}<|im_end|>`).join("\n");

/** An engine with the reference implementation and the same template, but for what `change` does to its answers. */
const engine =
  (change: (tokens: number[]) => unknown = (tokens) => ({ tokens })): HttpClient =>
  async ({ body = "" }) => {
    const { prompt, messages, model } = JSON.parse(body);
    if (model !== "m") return { status: 404, headers: {}, body: "{}" };
    const text = messages ? render({ messages }) : prompt;
    const encoding = await reference.encode(text, null, { addSpecialTokens: prompt !== undefined });
    return { status: 200, headers: {}, body: JSON.stringify(change(encoding.getIds())) };
  };

const verify = (options: Partial<VerifyOptions> = {}) =>
  verifyTokenizer({
    tokenizer,
    render,
    http: engine(),
    url: "http://engine",
    model: "m",
    cases: [
      ...hardTexts({ tokens: ["<|im_end|>"], mixtures: 10 }).map(({ name, text }) => ({ name, prompt: text })),
      { name: "a chat", messages: [{ role: "user", content: "héllo" }] },
    ],
    ...options,
  });

test("an engine with the same tokenizer and template agrees in every case", async () => {
  const rows = await verify();
  expect(rows.filter(({ ok }) => !ok)).toEqual([]);
  expect(rows.at(-1)).toMatchObject({ case: "a chat", ok: true, tokens: expect.any(Number) });
});

test("the first token that differs is told", async () => {
  const cases = [{ name: "one", prompt: "Hello there" }];
  const [id] = tokenizer.encode("Hello there", { addSpecialTokens: true });
  const at = async (change: (tokens: number[]) => number[]) =>
    (await verify({ cases, http: engine((tokens) => ({ tokens: change(tokens) })) }))[0]?.firstDifference;
  expect(await at((tokens) => [9, ...tokens.slice(1)])).toEqual({ at: 0, ours: id, engine: 9 });
  expect(await at((tokens) => [...tokens, 9])).toMatchObject({ ours: undefined, engine: 9 });
  expect(await at(() => [])).toEqual({ at: 0, ours: id, engine: undefined });
});

test("a case that cannot be compared is not ok and says why, and the others go on", async () => {
  const rows = await verify({
    cases: [
      { name: "raises", messages: [{ role: "user", content: "x" }] },
      { name: "works", prompt: "fine" },
    ],
    render: () => {
      throw new Error("no template for this");
    },
  });
  expect(rows).toMatchObject([
    { case: "raises", ok: false, error: "no template for this" },
    { case: "works", ok: true },
  ]);
  expect(await verify({ cases: [{ name: "one", prompt: "x" }], model: "other" })).toMatchObject([
    { ok: false, error: "http://engine/tokenize answered 404" },
  ]);
});

test("chats are left out when there is nothing to render them with", async () => {
  const options: VerifyOptions = {
    tokenizer: createTextTokenizer({ tokenizer: readModel("espalier-tiny"), config: {} }),
    http: engine(),
    url: "http://engine",
    model: "m",
    cases: [
      { name: "a chat", messages: [] },
      { name: "text", prompt: "x" },
    ],
  };
  expect((await verifyTokenizer(options)).map((row) => row.case)).toEqual(["text"]);
});
