import { createSeededRandom } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { hardTexts } from "../src/verify-tokenizer.ts";
import { mismatches, pairOf, readModel, type TokenizerJson } from "./support/models.ts";

const texts = hardTexts({ tokens: ["<|im_start|>", "[INST]", "</s>"], mixtures: 60 }).filter(
  ({ text }) => text.length < 1_200,
);

const variant = (name: string, changes: TokenizerJson): TokenizerJson => ({ ...readModel(name), ...changes });

const split = (pattern: object, behavior: string, invert = false): object => ({
  type: "Split",
  pattern,
  behavior,
  invert,
});
const byteLevel = { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false };
const sequence = (...pretokenizers: object[]): object => ({ type: "Sequence", pretokenizers });
const normalizers = (...list: object[]): object => ({ type: "Sequence", normalizers: list });

/** Patterns of models in use, by the kind of model that has them. */
const patterns: Readonly<Record<string, string>> = {
  "GPT-4 with possessive quantifiers":
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
  "GPT-4o":
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  "digits in threes from the right": "(?=(\\d{3})+(?!\\d))",
  "ideographs, kana and words": "[一-龥\u3040-ゟ゠-ヿ]+",
  "words by \\w": "\\w+|[^\\w\\s]+",
  "words at boundaries": "\\b\\w|\\w\\b",
  "case of a class ignored": "(?i:[k-s]+)|.",
  lines: "^.*$",
};

describe("pre-tokenizers", () => {
  test.each(Object.keys(patterns))("pattern: %s", async (name) => {
    const changed = { pre_tokenizer: sequence(split({ Regex: patterns[name] }, "Isolated"), byteLevel) };
    expect(await mismatches(pairOf(variant("espalier-tiny", changed)), texts)).toEqual([]);
  });

  test.each(
    ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"].flatMap((behavior) => [
      { behavior, invert: false },
      { behavior, invert: true },
    ]),
  )("split, $behavior, inverted: $invert", async ({ behavior, invert }) => {
    for (const pattern of [{ Regex: "\\s+|\\p{P}" }, { String: " " }, { String: "ab" }]) {
      const changed = { pre_tokenizer: sequence(split(pattern, behavior, invert), byteLevel) };
      expect(await mismatches(pairOf(variant("espalier-tiny", changed)), texts)).toEqual([]);
    }
  });

  const steps: Readonly<Record<string, object>> = {
    "digits one by one": { type: "Digits", individual_digits: true },
    "digits together": { type: "Digits", individual_digits: false },
    punctuation: { type: "Punctuation", behavior: "Contiguous" },
    "punctuation as it comes": { type: "Punctuation" },
    words: { type: "Whitespace" },
    "white space": { type: "WhitespaceSplit" },
    "a character": { type: "CharDelimiterSplit", delimiter: "e" },
    "bytes, then digits": sequence(
      { ...byteLevel, add_prefix_space: true },
      { type: "Digits", individual_digits: true },
    ),
    "bytes with GPT-2's pattern": { ...byteLevel, use_regex: true },
    "a prefix space": { ...byteLevel, add_prefix_space: true, use_regex: true },
    nested: sequence(
      sequence({ type: "Digits", individual_digits: true }),
      sequence({ ...byteLevel, use_regex: true }),
    ),
  };
  test.each(Object.keys(steps))("step: %s", async (name) => {
    const step = steps[name]!;
    for (const pre of [step, sequence(step, byteLevel)]) {
      expect(await mismatches(pairOf(variant("espalier-tiny", { pre_tokenizer: pre })), texts)).toEqual([]);
    }
  });

  test.each(["always", "first", "never"].flatMap((scheme) => [true, false].map((splits) => ({ scheme, splits }))))(
    "metaspace, $scheme, split: $splits",
    async ({ scheme, splits }) => {
      const metaspace = { type: "Metaspace", replacement: "\u2581", prepend_scheme: scheme, split: splits };
      for (const name of ["spm-bpe", "unigram"]) {
        const changed = variant(name, { normalizer: null, pre_tokenizer: metaspace });
        expect(await mismatches(pairOf(changed), texts)).toEqual([]);
      }
    },
  );
});

describe("normalizers", () => {
  const list: Readonly<Record<string, object | null>> = {
    none: null,
    ...Object.fromEntries(["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Nmt"].map((type) => [type, { type }])),
    "strip both": { type: "Strip", strip_left: true, strip_right: true },
    "strip right": { type: "Strip", strip_left: false, strip_right: true },
    prepend: { type: "Prepend", prepend: "x " },
    "replace by pattern": { type: "Replace", pattern: { Regex: "\\s+|\\$" }, content: "$&" },
    "replace by text": { type: "Replace", pattern: { String: "e" }, content: "$1" },
    several: normalizers(
      { type: "NFKC" },
      { type: "Lowercase" },
      { type: "Strip", strip_left: true, strip_right: false },
    ),
  };
  test.each(Object.keys(list))("%s", async (name) => {
    expect(await mismatches(pairOf(variant("espalier-tiny", { normalizer: list[name] })), texts)).toEqual([]);
  });
});

describe("models", () => {
  const model = (name: string): TokenizerJson => readModel(name).model as TokenizerJson;

  test.each([
    { ignore_merges: true },
    { fuse_unk: true, unk_token: "a" },
    { unk_token: "a", byte_fallback: true },
    { continuing_subword_prefix: "" },
  ])("byte-level BPE with %o", async (changes) => {
    const changed = variant("espalier-tiny", { model: { ...model("espalier-tiny"), ...changes } });
    expect(await mismatches(pairOf(changed), texts)).toEqual([]);
  });

  test.each([
    { byte_fallback: false, fuse_unk: true },
    { byte_fallback: false, fuse_unk: false },
    { byte_fallback: false, unk_token: null },
    { ignore_merges: true },
    { end_of_word_suffix: "e" },
  ])("SentencePiece BPE with %o", async (changes) => {
    const changed = variant("spm-bpe", { model: { ...model("spm-bpe"), ...changes } });
    expect(await mismatches(pairOf(changed), texts)).toEqual([]);
  });

  test("BPE in which some bytes are missing: the unknown and the byte tokens come in the reference's order", async () => {
    const { vocab, merges, ...rest } = model("spm-bpe");
    const kept = Object.fromEntries(
      Object.entries(vocab as Record<string, number>).filter(([token]) => !/^<0x[8-9A-C]/.test(token)),
    );
    for (const fuse_unk of [true, false]) {
      const changed = variant("spm-bpe", { model: { ...rest, fuse_unk, vocab: kept, merges } });
      expect(await mismatches(pairOf(changed), texts)).toEqual([]);
    }
  });

  test("BPE with a merge across the space mark is not cut into words", async () => {
    const { vocab, merges, ...rest } = model("spm-bpe");
    const size = Object.keys(vocab as object).length;
    const changed = variant("spm-bpe", {
      added_tokens: [],
      post_processor: null,
      model: {
        ...rest,
        vocab: { ...(vocab as object), "e\u2581": size },
        merges: [...(merges as string[]), "e \u2581"],
      },
    });
    expect(await mismatches(pairOf(changed), texts)).toEqual([]);
  });

  test("merges as pairs, with spaces in them", async () => {
    const { merges, ...rest } = model("espalier-tiny");
    const pairs = (merges as string[]).map((merge) => merge.split(" "));
    const changed = variant("espalier-tiny", { model: { ...rest, merges: pairs } });
    expect(await mismatches(pairOf(changed), texts)).toEqual([]);
  });

  test.each([{ byte_fallback: false }, { byte_fallback: true }])("Unigram with %o", async (changes) => {
    for (const normalizer of [readModel("unigram").normalizer, null]) {
      const changed = variant("unigram", { normalizer, model: { ...model("unigram"), ...changes } });
      expect(await mismatches(pairOf(changed), texts)).toEqual([]);
    }
  });

  test("Unigram with scores that tie", async () => {
    const vocab = ["<unk>", "a", "b", "ab", "ba", "aba", "bab", "\u2581"].map((token) => [
      token,
      token === "ab" ? -2 : -1,
    ]);
    const changed = variant("unigram", {
      added_tokens: [],
      normalizer: null,
      pre_tokenizer: null,
      post_processor: null,
      model: { type: "Unigram", unk_id: 0, vocab, byte_fallback: false },
    });
    const random = createSeededRandom(9);
    const ties = Array.from({ length: 200 }, (_, index) => ({
      name: String(index),
      text: Array.from({ length: random.integer(30) }, () => "abc好"[random.integer(4)]!).join(""),
    }));
    expect(await mismatches(pairOf(changed), ties)).toEqual([]);
  });
});
