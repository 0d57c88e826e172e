import { createSeededRandom } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { readPreTokenizer } from "../../src/text/pre-tokenizer.ts";
import { byteAlphabet, inByteAlphabet } from "../../src/text/token-model.ts";
import { referencePieces } from "../support/reference.ts";

const sequence = (...pretokenizers: object[]): object => ({ type: "Sequence", pretokenizers });
const split = (pattern: object, behavior: string, invert = false): object => ({
  type: "Split",
  pattern,
  behavior,
  invert,
});
const bytes = (fields: object = {}): object => ({
  type: "ByteLevel",
  add_prefix_space: false,
  trim_offsets: true,
  use_regex: true,
  ...fields,
});
const metaspace = (prepend_scheme: string, fields: object = {}): object => ({
  type: "Metaspace",
  replacement: "\u2581",
  prepend_scheme,
  split: true,
  ...fields,
});

/** Our pieces in the reference's form: a last step `ByteLevel` leaves the characters of its bytes to the model. */
function pieces(part: object, text: string): readonly string[] {
  const { split: divide, bytes: isBytes } = readPreTokenizer(part);
  const found = divide(text, true).filter((piece) => piece !== "");
  return isBytes ? found.map(inByteAlphabet) : found;
}

test.each([null, undefined])("with %s a text is one piece", (value) => {
  const { split: divide, bytes: isBytes } = readPreTokenizer(value);
  expect([divide("a b", true), isBytes]).toEqual([["a b"], false]);
});

test.each<{ part: object; text: string; wanted: readonly string[] }>([
  { part: { type: "Whitespace" }, text: "a_b, c!? é\u0301x", wanted: ["a_b", ",", "c", "!?", "é\u0301x"] },
  { part: { type: "WhitespaceSplit" }, text: " a,b\u00a0c\n", wanted: ["a,b", "c"] },
  { part: { type: "WhitespaceSplit" }, text: " \t", wanted: [] },
  { part: { type: "CharDelimiterSplit", delimiter: "," }, text: "a,,b,", wanted: ["a", "b"] },
  { part: { type: "CharDelimiterSplit", delimiter: "." }, text: "a.b", wanted: ["a", "b"] },
  { part: { type: "Digits", individual_digits: false }, text: "a12b٣", wanted: ["a", "12", "b", "٣"] },
  { part: { type: "Digits", individual_digits: true }, text: "a12b½", wanted: ["a", "1", "2", "b", "½"] },
  { part: { type: "Punctuation", behavior: "Isolated" }, text: "a,.b", wanted: ["a", ",", ".", "b"] },
  { part: { type: "Punctuation", behavior: "Removed" }, text: "a,.b$", wanted: ["a", "b"] },
  { part: { type: "Punctuation", behavior: "Contiguous" }, text: "a,.b", wanted: ["a", ",.", "b"] },
  { part: { type: "Punctuation", behavior: "MergedWithPrevious" }, text: "a,.b", wanted: ["a,", ".", "b"] },
  { part: { type: "Punctuation", behavior: "MergedWithNext" }, text: "a,.b", wanted: ["a", ",", ".b"] },
  { part: split({ String: "-" }, "Removed"), text: "a-b--c", wanted: ["a", "b", "c"] },
  { part: split({ String: "-" }, "Isolated"), text: "a-b--c", wanted: ["a", "-", "b", "-", "-", "c"] },
  { part: split({ String: "-" }, "Contiguous"), text: "a-b--c", wanted: ["a", "-", "b", "--", "c"] },
  { part: split({ String: "-" }, "MergedWithPrevious"), text: "a-b--c", wanted: ["a-", "b-", "-", "c"] },
  { part: split({ String: "-" }, "MergedWithNext"), text: "a-b--c", wanted: ["a", "-b", "-", "-c"] },
  { part: split({ Regex: "\\d" }, "Removed", true), text: "a1b23", wanted: ["1", "2", "3"] },
  { part: split({ Regex: "\\d" }, "Contiguous", true), text: "a1b23", wanted: ["a", "1", "b", "23"] },
  { part: metaspace("always"), text: "a b", wanted: ["\u2581a", "\u2581b"] },
  { part: metaspace("never"), text: "a b", wanted: ["a", "\u2581b"] },
  { part: metaspace("first"), text: "a  b", wanted: ["\u2581a", "\u2581", "\u2581b"] },
  { part: metaspace("always"), text: " a", wanted: ["\u2581a"] },
  { part: metaspace("always", { split: false }), text: "a b", wanted: ["\u2581a\u2581b"] },
  { part: metaspace("always", { replacement: "🙂" }), text: "a b", wanted: ["🙂a", "🙂b"] },
  { part: metaspace("always", { replacement: "$" }), text: "a b", wanted: ["$a", "$b"] },
  { part: bytes(), text: "I'm 12 a", wanted: ["I", "'m", "Ġ12", "Ġa"] },
  { part: bytes({ add_prefix_space: true }), text: "a", wanted: ["Ġa"] },
  { part: bytes({ add_prefix_space: true }), text: " a", wanted: ["Ġa"] },
  { part: bytes({ use_regex: false }), text: "a é", wanted: ["aĠÃ©"] },
  { part: sequence(), text: "a b", wanted: ["a b"] },
  {
    part: sequence(bytes({ use_regex: false }), { type: "Digits", individual_digits: false }),
    text: "é1",
    wanted: ["Ã©", "1"],
  },
  { part: sequence({ type: "WhitespaceSplit" }, metaspace("always")), text: "a b", wanted: ["\u2581a", "\u2581b"] },
  { part: sequence({ type: "WhitespaceSplit" }, metaspace("first")), text: "a b", wanted: ["\u2581a", "b"] },
])("$part divides $text as the reference does", ({ part, text, wanted }) => {
  expect(pieces(part, text)).toEqual(wanted);
  expect(referencePieces(part)(text)).toEqual(wanted);
});

test("only the start of a prompt gets the space of the scheme first", () => {
  const { split: divide } = readPreTokenizer(metaspace("first"));
  expect([divide("a b", true), divide("a b", false)]).toEqual([
    ["\u2581a", "\u2581b"],
    ["a", "\u2581b"],
  ]);
});

test("in a sequence only the first piece of the prompt's start gets it, and none when the start was removed", () => {
  const { split: divide } = readPreTokenizer(sequence({ type: "WhitespaceSplit" }, metaspace("first")));
  expect(divide("a b", true)).toEqual(["\u2581a", "b"]);
  expect(divide("a b", false)).toEqual(["a", "b"]);
  const text = " a b";
  expect(divide(text, true)).toEqual(referencePieces(sequence({ type: "WhitespaceSplit" }, metaspace("first")))(text));
});

test("add_prefix_space false of old files overrides the scheme", () => {
  const { split: divide } = readPreTokenizer(metaspace("always", { add_prefix_space: false }));
  expect(divide("a", true)).toEqual(["a"]);
});

describe("which model the pieces are for", () => {
  test.each([
    { part: bytes(), isBytes: true },
    { part: sequence({ type: "Digits" }, bytes()), isBytes: true },
    { part: sequence(sequence(sequence(bytes()))), isBytes: true },
    { part: sequence(bytes(), { type: "Digits" }), isBytes: false },
    { part: metaspace("always"), isBytes: false },
  ])("$part: bytes $isBytes", ({ part, isBytes }) => {
    expect(readPreTokenizer(part).bytes).toBe(isBytes);
  });
});

test("the byte alphabet has a character of its own for each byte", () => {
  expect(byteAlphabet).toHaveLength(256);
  expect(new Set(byteAlphabet).size).toBe(256);
  for (const character of byteAlphabet) expect(character).toMatch(/^[^\s\p{C}]$/u);
  expect(inByteAlphabet("a é\n🙂")).toBe("aĠÃ©ĊðŁĻĤ");
});

describe("any steps in any order divide random texts as the reference's do", () => {
  const behaviors = ["Removed", "Isolated", "Contiguous", "MergedWithPrevious", "MergedWithNext"];
  const patterns: readonly object[] = [
    { String: " " },
    { String: "ab" },
    { Regex: "\\s+" },
    { Regex: "\\d{1,3}" },
    { Regex: "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+" },
    { Regex: "\\s+(?!\\S)|\\s+" },
    { Regex: "a*" },
    { Regex: "(?i:'s|k)" },
  ];
  const units = [
    "a",
    "b",
    "ab",
    "K",
    "'s",
    "'ſ",
    " ",
    "  ",
    "\n",
    "\r\n",
    "1",
    "23",
    "٣",
    ",",
    "$",
    "é",
    "\u0301",
    "好",
    "🙂",
  ];

  test.each([11, 12, 13, 14])("seed %d", (seed) => {
    const random = createSeededRandom(seed);
    const oneOf = <T>(list: readonly T[]): T => list[random.integer(list.length)]!;
    const draw = (): object =>
      oneOf<() => object>([
        () => split(oneOf(patterns), oneOf(behaviors), random.integer(2) === 0),
        () => ({ type: "Punctuation", behavior: oneOf(behaviors) }),
        () => ({ type: "Digits", individual_digits: random.integer(2) === 0 }),
        () => ({ type: "Whitespace" }),
        () => ({ type: "WhitespaceSplit" }),
        () => ({ type: "CharDelimiterSplit", delimiter: oneOf([" ", "a", "é"]) }),
        () => bytes({ add_prefix_space: random.integer(2) === 0, use_regex: random.integer(2) === 0 }),
        () => metaspace(oneOf(["always", "never"]), { split: random.integer(2) === 0 }),
      ])();
    for (let round = 0; round < 40; round++) {
      const part = sequence(...Array.from({ length: 1 + random.integer(3) }, draw));
      const reference = referencePieces(part);
      for (let repeat = 0; repeat < 10; repeat++) {
        const text = Array.from({ length: 1 + random.integer(10) }, () => oneOf(units)).join("");
        expect(pieces(part, text), `${JSON.stringify(part)} of ${JSON.stringify(text)}`).toEqual(reference(text));
      }
    }
  });
});

test("nothing is lost by steps that remove nothing", () => {
  const random = createSeededRandom(15);
  const steps = [
    bytes(),
    { type: "Digits", individual_digits: true },
    { type: "Punctuation", behavior: "MergedWithNext" },
    split({ Regex: "\\s+|\\p{Lu}" }, "MergedWithPrevious"),
  ];
  for (let round = 0; round < 300; round++) {
    const points = Array.from({ length: random.integer(30) }, () => random.integer(0x3000));
    const text = String.fromCodePoint(...points);
    for (const step of steps) expect(readPreTokenizer(step).split(text, true).join("")).toBe(text);
  }
});

test.each<{ part: unknown; says: string }>([
  { part: { type: "BertPreTokenizer" }, says: "pre_tokenizer is a BertPreTokenizer, which is not supported" },
  { part: { type: "FixedLength" }, says: "pre_tokenizer is a FixedLength, which is not supported" },
  { part: "ByteLevel", says: "pre_tokenizer is not an object" },
  { part: { type: "Sequence", pretokenizers: null }, says: "pre_tokenizer has no list under pretokenizers" },
  {
    part: sequence(bytes(), sequence({ type: "UnicodeScripts" })),
    says: "pre_tokenizer.pretokenizers[1].pretokenizers[0] is a UnicodeScripts, which is not supported",
  },
  { part: { type: "Split", pattern: { String: "a" } }, says: "pre_tokenizer has no text under behavior" },
  { part: { type: "Split", behavior: "Isolated" }, says: "pre_tokenizer has no pattern" },
  { part: split({ String: "a" }, "isolated"), says: "has the unknown behavior isolated" },
  { part: { type: "Punctuation", behavior: "toString" }, says: "has the unknown behavior toString" },
  { part: { ...split({ String: "a" }, "Isolated"), invert: 0 }, says: "a non-boolean invert" },
  { part: { type: "Digits", individual_digits: "no" }, says: "a non-boolean individual_digits" },
  { part: { type: "CharDelimiterSplit" }, says: "pre_tokenizer has no text under delimiter" },
  { part: bytes({ use_regex: 1 }), says: "a non-boolean use_regex" },
  { part: bytes({ add_prefix_space: "" }), says: "a non-boolean add_prefix_space" },
  { part: metaspace("always", { replacement: "" }), says: "has a replacement that is not one character" },
  { part: metaspace("always", { replacement: "e\u0301" }), says: "has a replacement that is not one character" },
  { part: metaspace("Always"), says: "has the unknown prepend_scheme Always" },
  { part: metaspace("always", { split: "yes" }), says: "a non-boolean split" },
])("$part is refused: $says", ({ part, says }) => {
  expect(() => readPreTokenizer(part)).toThrow(says);
});
