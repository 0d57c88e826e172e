import type { JsonObject } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { createTextTokenizer, type TextTokenizer } from "../../src/text/text-tokenizer.ts";
import { vocabularyOf } from "../support/models-made.ts";
import { referenceOf } from "../support/reference.ts";

const letters = vocabularyOf(["a", "b", "\ufffd", "\u2581", "A"]);
const model = { type: "BPE", vocab: letters, merges: [] };
const added = (content: string, id: number, flags: object = {}): object => ({
  id,
  content,
  single_word: false,
  lstrip: false,
  rstrip: false,
  normalized: false,
  special: true,
  ...flags,
});

const tokenizerOf = (parts: JsonObject, config: JsonObject = {}): TextTokenizer =>
  createTextTokenizer({ tokenizer: { model, ...parts }, config });
const ids = (tokenizer: TextTokenizer, text: string): readonly number[] => [
  ...tokenizer.encode(text, { addSpecialTokens: false }),
];

describe("texts are not always well formed", () => {
  test.each([
    { text: "a\ud800b", wanted: [0, 2, 1] },
    { text: "\udc00", wanted: [2] },
    { text: "\ud83d\ud83d", wanted: [2, 2] },
    { text: "\udc00\ud800", wanted: [2, 2] },
  ])("a lone surrogate is U+FFFD: $text", ({ text, wanted }) => {
    expect(ids(tokenizerOf({}), text)).toEqual(wanted);
  });
});

describe("normalization goes around tokens that are looked for in the text itself", () => {
  const parts = {
    normalizer: { type: "Sequence", normalizers: [{ type: "Prepend", prepend: "\u2581" }, { type: "Lowercase" }] },
    added_tokens: [added("<A>", 5)],
  };

  test("each stretch between them by itself", async () => {
    const tokenizer = tokenizerOf(parts);
    const reference = referenceOf({ model, ...parts });
    for (const text of ["AB", "A<A>B", "<A><A>", "<A>a<a>b", "", "<A>"]) {
      const wanted = (await reference.encode(text, null, { addSpecialTokens: false })).getIds();
      expect(ids(tokenizer, text), text).toEqual(wanted);
    }
    expect(ids(tokenizer, "A<A>B")).toEqual([3, 0, 5, 3, 1]);
  });

  test("and a token that is looked for in normalized text is found in any writing that normalizes to it", async () => {
    const normalized = { normalizer: { type: "Lowercase" }, added_tokens: [added("AB", 5, { normalized: true })] };
    const tokenizer = tokenizerOf(normalized);
    const reference = referenceOf({ model, ...normalized });
    for (const text of ["ab", "AB", "aB", "aAbb", "bAbA"]) {
      const wanted = (await reference.encode(text, null, { addSpecialTokens: false })).getIds();
      expect(ids(tokenizer, text), text).toEqual(wanted);
    }
    expect(ids(tokenizer, "aAbb")).toEqual([0, 5, 1]);
  });
});

describe("the start of a prompt", () => {
  const tokenizer = tokenizerOf({
    pre_tokenizer: { type: "Metaspace", replacement: "\u2581", prepend_scheme: "first", split: true },
    added_tokens: [added("<s>", 5), added("_", 6, { special: false, normalized: true })],
  });

  test.each([
    { text: "a", isFirst: true, wanted: [3, 0] },
    { text: "a", isFirst: false, wanted: [0] },
    { text: "<s>a", isFirst: true, wanted: [5, 0] },
    { text: "a<s>a", isFirst: true, wanted: [3, 0, 5, 0] },
    { text: "a_a", isFirst: true, wanted: [3, 0, 6, 0] },
    { text: "_a", isFirst: true, wanted: [6, 0] },
    { text: "a_a", isFirst: false, wanted: [0, 6, 0] },
    { text: "", isFirst: true, wanted: [] },
  ])("$text, first: $isFirst", ({ text, isFirst, wanted }) => {
    expect([...tokenizer.encodePiece(text, isFirst)]).toEqual(wanted);
  });
});

describe("what tokenizer_config.json says", () => {
  test.each([
    { split_special_tokens: true, wanted: [] },
    { split_special_tokens: false, wanted: [4] },
    { split_special_tokens: null, wanted: [4] },
    { split_special_tokens: "true", wanted: [4] },
  ])("split_special_tokens $split_special_tokens", ({ split_special_tokens, wanted }) => {
    const tokenizer = tokenizerOf({ added_tokens: [added("<s>", 5)] }, { split_special_tokens });
    expect(tokenizer.cuts("a<s>b")).toEqual(wanted);
    expect(ids(tokenizer, "a<s>b").includes(5)).toBe(wanted.length > 0);
  });
});

test("a text that fails leaves nothing behind for the next one", () => {
  const tokenizer = createTextTokenizer({
    tokenizer: { model: { type: "Unigram", unk_id: null, vocab: [["a", -1]] }, added_tokens: [added("<s>", 1)] },
    config: {},
  });
  expect(() => tokenizer.encode("a<s>ab", { addSpecialTokens: false })).toThrow("has no unk_id");
  expect(() => tokenizer.encodePiece("<s>b", true)).toThrow("has no unk_id");
  expect(ids(tokenizer, "a<s>")).toEqual([0, 1]);
});

test("what is handed out is the caller's: the next text does not change it", () => {
  const tokenizer = tokenizerOf({});
  const first = tokenizer.encode("ab", { addSpecialTokens: false });
  tokenizer.encode("bbbb", { addSpecialTokens: false });
  expect([...first]).toEqual([0, 1]);
});

test.each<{ tokenizer: JsonObject; says: string }>([
  { tokenizer: {}, says: "tokenizer.json: model is not an object" },
  { tokenizer: { model: null }, says: "tokenizer.json: model is not an object" },
  { tokenizer: { model: { type: "WordPiece" } }, says: "tokenizer.json: model is a WordPiece, which is not supported" },
  { tokenizer: { model, added_tokens: "none" }, says: "tokenizer.json: the file has no list under added_tokens" },
])("$says", ({ tokenizer, says }) => {
  expect(() => createTextTokenizer({ tokenizer, config: {} })).toThrow(says);
});
