import fc from "fast-check";
import { expect, test } from "vitest";
import { createTokenDecoder, readTokenNames } from "../src/text/tokenizer-text.ts";

const named = (...names: string[]): Map<number, string> => new Map(names.map((name, id) => [id, name]));

const decode = (decoder: unknown, ...names: string[]): string =>
  createTokenDecoder(decoder, named(...names))(names.map((_, id) => id));

const byteLevel = { type: "ByteLevel" };

/** The printable stand-ins of bytes, built as the paper says: printable ones for themselves, the others from 256 on. */
const standIns = (() => {
  const printable = [
    ...Array.from({ length: 94 }, (_, index) => 0x21 + index),
    ...Array.from({ length: 12 }, (_, index) => 0xa1 + index),
    ...Array.from({ length: 82 }, (_, index) => 0xae + index),
  ];
  const others = Array.from({ length: 256 }, (_, byte) => byte).filter((byte) => !printable.includes(byte));
  const characters = new Map(printable.map((byte) => [byte, String.fromCodePoint(byte)]));
  for (const [index, byte] of others.entries()) characters.set(byte, String.fromCodePoint(256 + index));
  return characters;
})();

test("byte-level tokens are bytes, wherever characters are cut", () => {
  fc.assert(
    fc.property(fc.string({ unit: "grapheme" }), fc.nat(7), (text, cut) => {
      const spelled = Array.from(Buffer.from(text, "utf8"), (byte) => standIns.get(byte));
      const pieces: string[] = [];
      for (let at = 0; at < spelled.length; at += cut + 1) pieces.push(spelled.slice(at, at + cut + 1).join(""));
      expect(decode(byteLevel, ...pieces)).toBe(text);
    }),
  );
});

test("bytes that are no text become replacement characters", () => {
  expect(decode(byteLevel, standIns.get(0xc3) as string, "a")).toBe("\uFFFDa");
});

test("added tokens that no byte stands for are text themselves", () => {
  expect(decode(byteLevel, "\u0120a", "<\u4F60\u597D>", "b")).toBe(" a<\u4F60\u597D>b");
});

test.each([
  ["always", "the cat"],
  ["first", "the cat"],
  ["never", " the cat"],
])("the mark of a space, put first %s", (prepend_scheme, text) => {
  expect(decode({ type: "Metaspace", replacement: "\u2581", prepend_scheme }, "\u2581the", "\u2581cat")).toBe(text);
});

test("older files say add_prefix_space, and only the first token loses its space", () => {
  const tokens = ["\u2581\u2581a", "\u2581", "b"];
  expect(decode({ type: "Metaspace", add_prefix_space: true }, ...tokens)).toBe(" a b");
  expect(decode({ type: "Metaspace", add_prefix_space: false }, ...tokens)).toBe("  a b");
});

test.each([
  [["<0xE2>", "<0x82>", "<0xAC>"], "\u20AC"],
  [["a", "<0xE2>", "<0x82>", "b"], "a\uFFFD\uFFFDb"],
  [["<0xc3>", "<0xa9>", "<0x0A>"], "\u00E9\n"],
  [["<0x4>", "<0xZZ>"], "<0x4><0xZZ>"],
])("pieces %j of bytes are %j", (names, text) => {
  expect(decode({ type: "ByteFallback" }, ...names)).toBe(text);
});

test("replacing takes texts and patterns, and means what it puts there as it is", () => {
  expect(decode({ type: "Replace", pattern: { String: "a." }, content: "$&" }, "xa.ya.", "aa")).toBe("x$&y$&aa");
  expect(decode({ type: "Replace", pattern: { Regex: "a+" }, content: "-" }, "xaay", "a")).toBe("x-y-");
});

test("stripping takes no more than it may from either end", () => {
  const strip = (start: number, stop: number) => ({ type: "Strip", content: " ", start, stop });
  expect(decode(strip(1, 0), "  a ", " b")).toBe(" a b");
  expect(decode(strip(0, 2), "a   ", "b ")).toBe("a b");
  expect(decode(strip(9, 9), "    ", "c")).toBe("c");
});

test("a sequence is one step after the other", () => {
  const decoders = [
    { type: "Replace", pattern: { String: "\u2581" }, content: " " },
    { type: "ByteFallback" },
    { type: "Fuse" },
    { type: "Strip", content: " ", start: 1, stop: 0 },
  ];
  const sequence = { type: "Sequence", decoders };
  expect(decode(sequence, "\u2581the", "\u2581", "<0xF0>", "<0x9F>", "<0x99>", "<0x82>", "\u2581cat")).toBe(
    "the \u{1F642} cat",
  );
  expect(decode({ type: "Sequence" }, "a", "b")).toBe("ab");
});

test("without a decoder tokens are joined as words", () => {
  expect(decode(null, "a", "b")).toBe("a b");
});

test("ids without a name are nothing", () => {
  expect(createTokenDecoder(byteLevel, named("a"))([0, 5, 0])).toBe("aa");
});

test.each(["CTC", "WordPiece", undefined])("a decoder of type %s is refused", (type) => {
  expect(() => createTokenDecoder({ type }, named())).toThrow(RangeError);
  expect(() => createTokenDecoder({ type: "Sequence", decoders: [{ type }] }, named())).toThrow(RangeError);
});

test("names come from the vocabulary, and what is added comes before it", () => {
  const bpe = { vocab: { a: 0, b: 1, c: 2 } };
  const added_tokens = [
    { id: 1, content: "<b>" },
    { id: 9, content: "<nine>" },
  ];
  const config = { added_tokens_decoder: { "9": { content: "<NINE>" }, "10": { content: "<ten>" } } };
  expect([...readTokenNames({ tokenizer: { model: bpe, added_tokens }, config })].sort()).toEqual(
    [
      [0, "a"],
      [1, "<b>"],
      [2, "c"],
      [9, "<NINE>"],
      [10, "<ten>"],
    ].sort(),
  );
  const unigram = { vocab: [["<unk>", 0], ["a", -1], "broken"] };
  expect([...readTokenNames({ tokenizer: { model: unigram }, config: {} })]).toEqual([
    [0, "<unk>"],
    [1, "a"],
  ]);
  expect(readTokenNames({ tokenizer: {}, config: {} }).size).toBe(0);
});
