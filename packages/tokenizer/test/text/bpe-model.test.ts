import { createSeededRandom, type Random } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { byteAlphabet, byteTokenName } from "../../src/text/token-model.ts";
import { encoderOf, vocabularyOf } from "../support/models-made.ts";
import { referenceOf } from "../support/reference.ts";

type Merge = readonly [string, string];

interface Made {
  readonly vocab: Readonly<Record<string, number>>;
  readonly merges: readonly Merge[];
}

/** A vocabulary of an alphabet and of merges of what it has so far. */
function madeOf(alphabet: readonly string[], count: number, random: Random): Made {
  const tokens = [...alphabet];
  const merges: Merge[] = [];
  for (let tries = 0; tries < count; tries++) {
    const [left, right] = [tokens[random.integer(tokens.length)]!, tokens[random.integer(tokens.length)]!];
    if (left.length + right.length > 8 || merges.some(([one, other]) => one === left && other === right)) continue;
    merges.push([left, right]);
    if (!tokens.includes(left + right)) tokens.push(left + right);
  }
  return { vocab: vocabularyOf(tokens), merges };
}

/** The definition of BPE: the leftmost pair of the lowest rank is merged until no pair is in the list. */
function naiveMerge(symbols: readonly string[], merges: readonly Merge[]): readonly string[] {
  const row = [...symbols];
  const rankOf = (at: number): number => merges.findIndex(([left, right]) => left === row[at] && right === row[at + 1]);
  for (;;) {
    let best = -1;
    let lowest = Number.POSITIVE_INFINITY;
    for (let at = 0; at + 1 < row.length; at++) {
      const rank = rankOf(at);
      if (rank < 0 || rank >= lowest) continue;
      [best, lowest] = [at, rank];
    }
    if (best < 0) return row;
    row.splice(best, 2, row[best]! + row[best + 1]!);
  }
}

const draw = (alphabet: readonly string[], length: number, random: Random): string =>
  Array.from({ length }, () => alphabet[random.integer(alphabet.length)]!).join("");

describe("merges are those of the naive loop", () => {
  test.each([1, 2, 3])("over characters, seed %d", (seed) => {
    const random = createSeededRandom(seed);
    const alphabet = ["a", "b", "c", "é", "🙂"];
    for (let round = 0; round < 40; round++) {
      const { vocab, merges } = madeOf(alphabet, 1 + random.integer(25), random);
      const encode = encoderOf({ type: "BPE", vocab, merges });
      for (let repeat = 0; repeat < 12; repeat++) {
        const text = draw(alphabet, random.integer(40), random);
        const wanted = naiveMerge([...text], merges).map((token) => vocab[token]);
        expect(encode(text), `${JSON.stringify(merges)} of ${text}`).toEqual(wanted);
      }
    }
  });

  test("over bytes", () => {
    const random = createSeededRandom(4);
    const encoder = new TextEncoder();
    const common = [..."ab Ġ"].concat(byteAlphabet[0xc3]!, byteAlphabet[0xa9]!, byteAlphabet[0xf0]!);
    for (let round = 0; round < 25; round++) {
      const { merges, vocab: some } = madeOf(
        common.filter((one) => one !== " "),
        20,
        random,
      );
      const vocab = vocabularyOf([...byteAlphabet, ...Object.keys(some)]);
      const pre_tokenizer = { type: "ByteLevel", add_prefix_space: false, use_regex: false };
      const encode = encoderOf({ type: "BPE", vocab, merges }, { pre_tokenizer });
      for (let repeat = 0; repeat < 12; repeat++) {
        const text = draw(["a", "b", " ", "é", "🙂", "\u0000"], 1 + random.integer(40), random);
        const symbols = Array.from(encoder.encode(text), (byte) => byteAlphabet[byte]!);
        expect(encode(text)).toEqual(naiveMerge(symbols, merges).map((token) => vocab[token]));
      }
    }
  });

  test("over words with a space mark, cut into words or not", () => {
    const random = createSeededRandom(5);
    const alphabet = ["a", "b", "\u2581"];
    for (let round = 0; round < 60; round++) {
      const { vocab, merges } = madeOf(alphabet, 1 + random.integer(16), random);
      const encode = encoderOf({ type: "BPE", vocab, merges });
      for (let repeat = 0; repeat < 12; repeat++) {
        const text = draw(alphabet, random.integer(60), random);
        const wanted = naiveMerge([...text], merges).map((token) => vocab[token]);
        expect(encode(text), `${JSON.stringify(merges)} of ${text}`).toEqual(wanted);
      }
    }
  });
});

test.each([
  { name: "the lower rank wins over the one further left", merges: ["b c", "a b"], text: "abc", wanted: ["a", "bc"] },
  { name: "the leftmost of equal ranks wins", merges: ["a a"], text: "aaa", wanted: ["aa", "a"] },
  { name: "a later merge needs the earlier one's token", merges: ["a b", "ab c"], text: "abc", wanted: ["abc"] },
  {
    name: "a merge that stands too early never comes",
    merges: ["ab c", "b c", "a b"],
    text: "abc",
    wanted: ["a", "bc"],
  },
  { name: "the last of two ranks of a pair counts", merges: ["a b", "b c", "a b"], text: "abc", wanted: ["a", "bc"] },
  { name: "one character", merges: ["a b"], text: "b", wanted: ["b"] },
])("$name", ({ merges, text, wanted }) => {
  const vocab = vocabularyOf(["a", "b", "c", "aa", "ab", "bc", "abc"]);
  const expected = wanted.map((token) => vocab[token]);
  expect(encoderOf({ type: "BPE", vocab, merges })(text)).toEqual(expected);
  expect(encoderOf({ vocab, merges: merges.map((merge) => merge.split(" ")) })(text)).toEqual(expected);
});

describe("characters that the vocabulary lacks", () => {
  const bytes = Array.from({ length: 256 }, (_, byte) => byteTokenName(byte));
  const vocab = vocabularyOf(["<unk>", "a", "b", "ab", ...bytes]);
  const { "<0xC3>": c3, "<0xA9>": a9 } = vocab;
  const merges = ["a b"];
  const unknown = { unk_token: "<unk>" };

  test.each<{ fields: object; text: string; wanted: readonly (number | undefined)[] }>([
    { fields: {}, text: "aéb", wanted: [3] },
    { fields: {}, text: "éé", wanted: [] },
    { fields: { unk_token: "" }, text: "aéa", wanted: [1, 1] },
    { fields: unknown, text: "aéèb", wanted: [1, 0, 0, 2] },
    { fields: unknown, text: "é", wanted: [0] },
    { fields: { ...unknown, fuse_unk: true }, text: "aéèb", wanted: [1, 0, 2] },
    { fields: { ...unknown, fuse_unk: true }, text: "éaè", wanted: [0, 1, 0] },
    { fields: { byte_fallback: true }, text: "aéb", wanted: [1, c3, a9, 2] },
    { fields: { ...unknown, byte_fallback: true, fuse_unk: true }, text: "éa", wanted: [c3, a9, 1] },
  ])("$fields: $text", ({ fields, text, wanted }) => {
    const model = { type: "BPE", vocab, merges, ...fields };
    expect(encoderOf(model)(text)).toEqual(wanted);
  });

  test("with some bytes missing, a character whose bytes are not all there is unknown", async () => {
    const { "<0xA9>": _, ...some } = vocab;
    for (const fuse_unk of [true, false]) {
      const model = { type: "BPE", vocab: some, merges, ...unknown, byte_fallback: true, fuse_unk };
      const encode = encoderOf(model);
      const reference = referenceOf({ model });
      for (const text of ["é", "éè", "éaé", "ééèé", "aèéb", "é🙂é"]) {
        const encoding = await reference.encode(text, null, { addSpecialTokens: false });
        expect(encode(text), text).toEqual(encoding.getIds());
      }
    }
  });
});

describe("prefixes and suffixes of symbols", () => {
  test("a suffix marks the last symbol of a piece, so that no merge without it ends one", () => {
    const vocab = vocabularyOf(["a", "b", "a</w>", "b</w>", "ab", "ab</w>"]);
    const model = { type: "BPE", vocab, merges: ["a b", "a b</w>"], end_of_word_suffix: "</w>" };
    const encode = encoderOf(model, { pre_tokenizer: { type: "WhitespaceSplit" } });
    expect(encode("ab abab a")).toEqual([vocab["ab</w>"], vocab.ab, vocab["ab</w>"], vocab["a</w>"]]);
  });

  test("a prefix marks all symbols but the first, and is dropped when two join", () => {
    const vocab = vocabularyOf(["a", "b", "##a", "##b", "ab", "##ba", "abba"]);
    const model = {
      type: "BPE",
      vocab,
      merges: [
        ["a", "##b"],
        ["##b", "##a"],
        ["ab", "##ba"],
      ],
      continuing_subword_prefix: "##",
    };
    expect(encoderOf(model)("abba")).toEqual([vocab.abba]);
    expect(encoderOf(model)("bab")).toEqual([vocab.b, vocab["##a"], vocab["##b"]]);
  });
});

describe("ignoring merges", () => {
  const vocab = vocabularyOf(["a", "b", "c", "bc", "abc", "abcabc"]);
  const model = { type: "BPE", vocab, merges: ["b c"] };
  const parts = { pre_tokenizer: { type: "WhitespaceSplit" } };

  test("a piece that is a token is that token, and others are merged", () => {
    expect(encoderOf({ ...model, ignore_merges: true }, parts)("abc abcabc abca")).toEqual([4, 5, 0, 3, 0]);
  });

  test("without the flag only merges make tokens", () => {
    expect(encoderOf(model, parts)("abc")).toEqual([0, 3]);
  });
});

test("a word gives the same tokens from the cache as at first, and beyond the cache's length", () => {
  const random = createSeededRandom(6);
  const { vocab, merges } = madeOf(["a", "b"], 12, random);
  const encode = encoderOf({ type: "BPE", vocab, merges }, { pre_tokenizer: { type: "WhitespaceSplit" } });
  for (const length of [1, 2, 47, 48, 49, 300]) {
    const word = draw(["a", "b"], length, random);
    const wanted = naiveMerge([...word], merges).map((token) => vocab[token]);
    expect([encode(word), encode(word), encode(`${word} ${word}`)]).toEqual([wanted, wanted, [...wanted, ...wanted]]);
  }
});

test("a row of symbols grows past what it first holds", () => {
  const model = { type: "BPE", vocab: vocabularyOf(["a", "aa"]), merges: ["a a"] };
  for (const length of [255, 256, 257, 512, 1_025]) {
    const wanted = [...Array<number>(Math.floor(length / 2)).fill(1), ...(length % 2 === 1 ? [0] : [])];
    expect(encoderOf(model)("a".repeat(length))).toEqual(wanted);
  }
});

describe("a model that cannot be read", () => {
  const vocab = vocabularyOf(["a", "b", "ab"]);
  test.each<{ model: object; says: string }>([
    { model: { type: "BPE", merges: [] }, says: "model has no vocabulary" },
    { model: { vocab, merges: null }, says: "model has no list of merges" },
    { model: { vocab, merges: [["a"]] }, says: "model has a malformed merge at 0" },
    {
      model: {
        vocab,
        merges: [
          ["a", "b"],
          ["a", "b", "c"],
        ],
      },
      says: "model has a malformed merge at 1",
    },
    { model: { vocab, merges: [["a", 5]] }, says: "model has a malformed merge at 0" },
    { model: { vocab, merges: ["ab"] }, says: "model has a malformed merge at 0" },
    { model: { vocab, merges: [7] }, says: "model has a malformed merge at 0" },
    { model: { vocab, merges: ["a b", "b a"] }, says: "model has a merge outside its vocabulary at 1" },
    { model: { vocab, merges: ["c a"] }, says: "model has a merge outside its vocabulary at 0" },
    { model: { type: "BPE", vocab: { a: 1.5 }, merges: [] }, says: 'model has a token without a usable id: "a"' },
    { model: { type: "BPE", vocab: { "\n": 2 ** 31 }, merges: [] }, says: 'without a usable id: "\\n"' },
    { model: { type: "BPE", vocab, merges: [], dropout: 1e-9 }, says: "model has a dropout" },
    { model: { type: "BPE", vocab, merges: [], unk_token: 3 }, says: "model has no text under unk_token" },
    {
      model: { type: "BPE", vocab, merges: [], unk_token: "x" },
      says: "model has an unk_token outside its vocabulary",
    },
    { model: { type: "BPE", vocab, merges: [], fuse_unk: "no" }, says: "a non-boolean fuse_unk" },
    { model: { type: "BPE", vocab, merges: [], byte_fallback: 0 }, says: "a non-boolean byte_fallback" },
    { model: { type: "BPE", vocab, merges: [], ignore_merges: 0 }, says: "a non-boolean ignore_merges" },
    { model: { vocab: {} }, says: "model is a model without a type, which is not supported" },
    { model: { type: "WordLevel", vocab: {} }, says: "model is a WordLevel, which is not supported" },
  ])("$says", ({ model, says }) => {
    expect(() => encoderOf({ ...model })).toThrow(says);
  });

  test.each([{ dropout: 0 }, { dropout: null }, { unk_token: null }, { byte_fallback: null }])(
    "%o is as if it were not there",
    (fields) => {
      expect(encoderOf({ type: "BPE", vocab, merges: ["a b"], ...fields })("ab")).toEqual([2]);
    },
  );

  test("merges up to 2^24 are read, and one more is refused before any is looked at", () => {
    const merges: unknown[] = [];
    merges.length = 2 ** 24 + 1;
    expect(() => encoderOf({ type: "BPE", vocab, merges })).toThrow("model has more than 16777216 merges");
    // One fewer gets as far as its first entry, which is none.
    merges.length = 2 ** 24;
    expect(() => encoderOf({ type: "BPE", vocab, merges })).toThrow("model has a malformed merge at 0");
  });
});
