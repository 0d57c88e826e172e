import { createSeededRandom } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { byteTokenName } from "../../src/text/token-model.ts";
import { encoderOf } from "../support/models-made.ts";
import { referenceOf } from "../support/reference.ts";

type Scored = readonly [string, number];

/** Tokens with scores; the first one is unknown. */
const model = (vocab: readonly Scored[], fields: object = {}): { readonly [key: string]: unknown } => ({
  type: "Unigram",
  unk_id: 0,
  byte_fallback: false,
  vocab: [["<unk>", 0], ...vocab],
  ...fields,
});

/** The highest sum of scores over all divisions of a text into tokens, one character at least each. */
function bestScore(text: string, vocab: readonly Scored[]): number {
  const scores = new Map(vocab);
  const unknown = Math.min(0, ...vocab.map(([, score]) => score)) - 10;
  const characters = [...text];
  const best: number[] = [0];
  for (let end = 1; end <= characters.length; end++) {
    let found = Number.NEGATIVE_INFINITY;
    for (let start = 0; start < end; start++) {
      const token = characters.slice(start, end).join("");
      const score = scores.get(token) ?? (end - start === 1 ? unknown : Number.NEGATIVE_INFINITY);
      found = Math.max(found, best[start]! + score);
    }
    best.push(found);
  }
  return best.at(-1)!;
}

describe("the division found has the highest score there is, and the reference's tokens", () => {
  const alphabet = ["a", "b", "c", "é", "🙂"];

  test.each([81, 82, 83])("seed %d", async (seed) => {
    const random = createSeededRandom(seed);
    const draw = (length: number): string =>
      Array.from({ length }, () => alphabet[random.integer(alphabet.length)]!).join("");
    for (let round = 0; round < 30; round++) {
      const tokens = new Set([
        ...alphabet.slice(0, 3),
        ...Array.from({ length: 12 }, () => draw(1 + random.integer(5))),
      ]);
      // Sums of eighths are exact, so that ties are ties on both sides.
      const vocab = [...tokens].map((token): Scored => [token, -(1 + random.integer(80)) / 8]);
      const definition = model(vocab);
      const encode = encoderOf(definition);
      const reference = referenceOf({ model: definition });
      for (let repeat = 0; repeat < 10; repeat++) {
        const text = draw(1 + random.integer(30));
        const ids = encode(text);
        expect(ids, `${JSON.stringify(vocab)} of ${text}`).toEqual((await reference.encode(text, null)).getIds());
        if (ids.includes(0)) continue;
        expect(ids.map((id) => vocab[id - 1]![0]).join("")).toBe(text);
        expect(ids.reduce((sum, id) => sum + vocab[id - 1]![1], 0)).toBe(bestScore(text, vocab));
      }
    }
  });
});

test.each<{ name: string; vocab: readonly Scored[]; text: string; wanted: readonly number[] }>([
  {
    name: "one likely token beats two",
    vocab: [
      ["a", -1],
      ["b", -1],
      ["ab", -1.5],
    ],
    text: "ab",
    wanted: [3],
  },
  {
    name: "two likely tokens beat one",
    vocab: [
      ["a", -1],
      ["b", -1],
      ["ab", -2.5],
    ],
    text: "ab",
    wanted: [1, 2],
  },
  { name: "a run of unknown characters is one token", vocab: [["a", -1]], text: "xyzaxx", wanted: [0, 1, 0] },
  { name: "an unknown one beyond the basic plane", vocab: [["a", -1]], text: "🙂a🙂🙂", wanted: [0, 1, 0] },
  {
    name: "an unlikely token all the same",
    vocab: [
      ["a", -1],
      ["axa", -12],
    ],
    text: "axa",
    wanted: [2],
  },
])("$name", async ({ vocab, text, wanted }) => {
  expect(encoderOf(model(vocab))(text)).toEqual(wanted);
  expect((await referenceOf({ model: model(vocab) }).encode(text, null)).getIds()).toEqual(wanted);
});

test("an empty token is never found", () => {
  const encode = encoderOf(
    model([
      ["", 5],
      ["a", -1],
    ]),
  );
  expect(encode("aa")).toEqual([2, 2]);
});

describe("byte fallback", () => {
  const bytes = Array.from({ length: 256 }, (_, byte): Scored => [byteTokenName(byte), -20]);
  const vocab: readonly Scored[] = [["a", -1], ...bytes];
  const byteId = (byte: number): number => 2 + byte;

  test("writes the bytes of what is unknown, run by run", () => {
    const encode = encoderOf(model(vocab, { byte_fallback: true }));
    expect(encode("aéa")).toEqual([1, byteId(0xc3), byteId(0xa9), 1]);
    expect(encode("é\u0000")).toEqual([byteId(0xc3), byteId(0xa9), byteId(0)]);
  });

  test("without all bytes of a run, the run is unknown", async () => {
    const definition = model(
      vocab.filter(([token]) => token !== "<0xA9>"),
      { byte_fallback: true },
    );
    const encode = encoderOf(definition);
    const reference = referenceOf({ model: definition });
    for (const text of ["é", "è", "éè", "aéaè", "🙂é"]) {
      expect(encode(text), text).toEqual((await reference.encode(text, null)).getIds());
    }
    expect(encode("é")).toEqual([0]);
  });

  test("off, what is unknown is one token", () => {
    expect(encoderOf(model(vocab))("aéè")).toEqual([1, 0]);
  });
});

test("a piece gives the same tokens from the cache as at first, and beyond the cache's length", () => {
  const encode = encoderOf(
    model([
      ["a", -1],
      ["aa", -1.5],
    ]),
    { pre_tokenizer: { type: "WhitespaceSplit" } },
  );
  for (const length of [1, 2, 47, 48, 49, 501]) {
    const wanted = encode("a".repeat(length));
    expect(wanted).toHaveLength(Math.ceil(length / 2));
    expect(encode("a".repeat(length))).toEqual(wanted);
  }
});

test("a short text after a long one is not affected by what the long one left behind", () => {
  const vocab: readonly Scored[] = [
    ["a", -1],
    ["b", -1],
    ["ab", -1],
    ["ba", -1],
  ];
  const encode = encoderOf(model(vocab));
  encode("ab".repeat(500));
  for (const text of ["ba", "bab", "xb", "b"]) expect(encode(text)).toEqual(encoderOf(model(vocab))(text));
});

describe("a model that cannot be read", () => {
  test.each<{ fields: object; says: string }>([
    { fields: { vocab: {} }, says: "model has no vocabulary" },
    { fields: { vocab: null }, says: "model has no vocabulary" },
    { fields: { vocab: [] }, says: "model has no vocabulary" },
    { fields: { vocab: [["a", -1], ["b"]] }, says: "model has a malformed token at 1" },
    { fields: { vocab: [["a", "-1"]] }, says: "model has a malformed token at 0" },
    { fields: { vocab: [[1, -1]] }, says: "model has a malformed token at 0" },
    { fields: { vocab: [["a", -1]], unk_id: 1 }, says: "model has an unk_id outside its vocabulary" },
    { fields: { vocab: [["a", -1]], unk_id: -1 }, says: "model has an unk_id outside its vocabulary" },
    { fields: { vocab: [["a", -1]], unk_id: "0" }, says: "model has an unk_id outside its vocabulary" },
    { fields: { byte_fallback: 1 }, says: "model has a non-boolean byte_fallback" },
  ])("$fields: $says", ({ fields, says }) => {
    expect(() => encoderOf(model([], fields))).toThrow(says);
  });

  test("bytes before it", () => {
    const pre_tokenizer = { type: "ByteLevel", add_prefix_space: false };
    expect(() => encoderOf(model([]), { pre_tokenizer })).toThrow("model is a Unigram over bytes, which is not");
  });
});
