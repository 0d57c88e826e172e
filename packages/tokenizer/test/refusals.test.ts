import { EspalierError } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { createTextTokenizer, maxTextLength } from "../src/text/text-tokenizer.ts";
import { readModel, type TokenizerJson } from "./support/models.ts";

const refusal = (changes: TokenizerJson, config: TokenizerJson = {}, name = "espalier-tiny"): string => {
  try {
    createTextTokenizer({ tokenizer: { ...readModel(name), ...changes }, config });
  } catch (error) {
    if (error instanceof EspalierError && error.code === "config_invalid") return error.message;
    throw error;
  }
  return "accepted";
};

const bpe = (changes: TokenizerJson): TokenizerJson => ({
  model: { ...(readModel("espalier-tiny").model as TokenizerJson), ...changes },
});
const unigram = (changes: TokenizerJson): TokenizerJson => ({
  model: { ...(readModel("unigram").model as TokenizerJson), ...changes },
});
const spmBpe = (changes: TokenizerJson): TokenizerJson => ({
  model: { ...(readModel("spm-bpe").model as TokenizerJson), ...changes },
});
const step = (type: string, fields: object = {}): TokenizerJson => ({ pre_tokenizer: { type, ...fields } });

describe("what cannot be done exactly is refused, with its place in the file and what to do instead", () => {
  test.each([
    { changes: { normalizer: { type: "BertNormalizer" } }, says: "normalizer is a BertNormalizer" },
    {
      changes: { normalizer: { type: "Sequence", normalizers: [{ type: "NFC" }, { type: "StripAccents" }] } },
      says: "normalizer.normalizers[1] is a StripAccents",
    },
    { changes: { normalizer: { type: "Sequence" } }, says: "has no list under normalizers" },
    { changes: { normalizer: { type: "Replace", content: "" } }, says: "has no pattern" },
    { changes: { normalizer: { type: "Replace", pattern: {}, content: "" } }, says: "neither Regex nor String" },
    { changes: { normalizer: { type: "Precompiled", precompiled_charsmap: "AAAA" } }, says: "cut short" },
    { changes: { normalizer: { type: "Precompiled", precompiled_charsmap: "////fw==" } }, says: "cut short" },
    { changes: { normalizer: { type: "Strip", strip_left: "yes" } }, says: "a non-boolean strip_left" },
    { changes: { normalizer: 5 }, says: "is not an object" },
    { changes: step("UnicodeScripts"), says: "pre_tokenizer is a UnicodeScripts" },
    { changes: step("Sequence", { pretokenizers: [{}] }), says: "pretokenizers[0] is a part without a type" },
    {
      changes: step("Split", { pattern: { Regex: "(" }, behavior: "Isolated", invert: false }),
      says: "cannot be translated",
    },
    {
      changes: step("Split", { pattern: { Regex: "a" }, behavior: "Sideways", invert: false }),
      says: "unknown behavior Sideways",
    },
    { changes: step("Metaspace", { replacement: "ab" }), says: "not one character" },
    { changes: step("Metaspace", { replacement: "_", prepend_scheme: "last" }), says: "unknown prepend_scheme last" },
    { changes: { model: { type: "WordPiece", vocab: {} } }, says: "model is a WordPiece" },
    { changes: { model: {} }, says: "model without a type" },
    { changes: { model: readModel("unigram").model as TokenizerJson }, says: "Unigram over bytes" },
    { changes: bpe({ vocab: [] }), says: "has no vocabulary" },
    { changes: bpe({ vocab: { a: -1 } }), says: "without a usable id" },
    { changes: bpe({ vocab: { a: "1" } }), says: "without a usable id" },
    { changes: bpe({ merges: "a b" }), says: "no list of merges" },
    { changes: bpe({ merges: ["a b c"] }), says: "malformed merge at 0" },
    { changes: bpe({ merges: ["a nothing-such"] }), says: "has a merge outside its vocabulary at 0" },
    { changes: bpe({ dropout: 0.1 }), says: "dropout" },
    { changes: { post_processor: { type: "Unknown" } }, says: "post_processor is a Unknown" },
    { changes: { post_processor: { type: "BertProcessing", sep: ["</s>", 1] } }, says: "no token under cls" },
    { changes: { post_processor: { type: "TemplateProcessing", single: [] } }, says: "does not contain the text" },
    {
      changes: { post_processor: { type: "TemplateProcessing", single: [{ Sequence: {} }, { Sequence: {} }] } },
      says: "contains the text twice",
    },
    {
      changes: { post_processor: { type: "TemplateProcessing", single: [{ SpecialToken: { id: "x" } }] } },
      says: "undeclared special token",
    },
    {
      changes: { post_processor: { type: "TemplateProcessing", single: ["A"] } },
      says: "neither a text nor a special token",
    },
    { changes: { added_tokens: {} }, says: "no list under added_tokens" },
    { changes: { added_tokens: [{ id: 1 }] }, says: "added_tokens[0] has no text under content" },
  ])("$says", ({ changes, says }) => {
    const message = refusal(changes);
    expect(message).toContain(says);
    expect(message).toMatch(/^tokenizer\.json: .*; set tokenize to engine or bytes instead$/);
  });

  test.each([
    { name: "spm-bpe", changes: spmBpe({ unk_token: "nothing-such" }), says: "unk_token outside its vocabulary" },
    { name: "unigram", changes: unigram({ vocab: [] }), says: "has no vocabulary" },
    { name: "unigram", changes: unigram({ vocab: ["a"] }), says: "malformed token at 0" },
    { name: "unigram", changes: unigram({ unk_id: 1e9 }), says: "unk_id outside its vocabulary" },
  ])("$name: $says", ({ name, changes, says }) => {
    expect(refusal(changes, {}, name)).toContain(says);
  });

  test("a token of tokenizer_config.json is named as such", () => {
    const message = refusal({}, { added_tokens_decoder: { "7": { content: 7 } } });
    expect(message).toContain("added_tokens_decoder of tokenizer_config.json, 7 has no text under content");
  });
});

test("a Unigram model without an unknown token refuses a text that needs one, and goes on with others", () => {
  const definition = {
    ...readModel("unigram"),
    ...unigram({
      unk_id: null,
      byte_fallback: false,
      vocab: [
        ["\u2581", -1],
        ["a", -1],
      ],
    }),
  };
  const tokenizer = createTextTokenizer({
    tokenizer: { ...definition, added_tokens: [], post_processor: null },
    config: {},
  });
  const encode = (text: string): number[] => [...tokenizer.encode(text, { addSpecialTokens: false })];
  expect(encode("aa")).toEqual([0, 1, 1]);
  expect(() => encode("a b")).toThrow(/has no unk_id/);
  expect(encode("aa")).toEqual([0, 1, 1]);
});

test("a text one character beyond the bound is refused", () => {
  const tokenizer = createTextTokenizer({ tokenizer: readModel("espalier-tiny"), config: {} });
  const text = "<|im_end|>".repeat(Math.ceil(maxTextLength / 10)).slice(0, maxTextLength);
  expect(() => tokenizer.encodePiece(`${text}x`, true)).toThrow(RangeError);
  expect(tokenizer.encodePiece(text.slice(0, 100), true)).toHaveLength(10);
});
