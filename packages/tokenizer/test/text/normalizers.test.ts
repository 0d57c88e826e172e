import { createSeededRandom } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { readNormalizer } from "../../src/text/normalizer.ts";
import { referenceNormalizer } from "../support/reference.ts";

const made = (part: object): ((text: string) => string) => {
  const normalize = readNormalizer(part);
  if (!normalize) throw new Error("no normalizer");
  return normalize;
};
const strip = (strip_left = true, strip_right = true): object => ({ type: "Strip", strip_left, strip_right });
const sequence = (...normalizers: object[]): object => ({ type: "Sequence", normalizers });

test.each([null, undefined])("%s is no normalizer", (value) => {
  expect(readNormalizer(value)).toBeUndefined();
});

test.each<{ part: object; from: string; to: string }>([
  { part: { type: "NFC" }, from: "e\u0301", to: "é" },
  { part: { type: "NFC" }, from: "\u212b", to: "Å" },
  { part: { type: "NFC" }, from: "ﬁ", to: "ﬁ" },
  { part: { type: "NFD" }, from: "é", to: "e\u0301" },
  { part: { type: "NFD" }, from: "한", to: "\u1112\u1161\u11ab" },
  { part: { type: "NFKC" }, from: "ﬁ①", to: "fi1" },
  { part: { type: "NFKC" }, from: "ｶﾞ", to: "ガ" },
  { part: { type: "NFKD" }, from: "①é", to: "1e\u0301" },
  { part: { type: "Lowercase" }, from: "ÀΣΑΣ", to: "àσασ" },
  { part: { type: "Lowercase" }, from: "İ", to: "i\u0307" },
  { part: { type: "Lowercase" }, from: "ẞ", to: "ß" },
  { part: { type: "Nmt" }, from: "a\u0001\u007f\u009fb", to: "ab" },
  { part: { type: "Nmt" }, from: "a\tb\u200bc\ufeffd\ufffde", to: "a b c d e" },
  { part: { type: "Nmt" }, from: "a\u000bb\u00a0c", to: "ab\u00a0c" },
  { part: strip(), from: " \u00a0a b\n", to: "a b" },
  { part: strip(false), from: " a ", to: " a" },
  { part: strip(true, false), from: " a ", to: "a " },
  { part: strip(false, false), from: " a ", to: " a " },
  { part: strip(), from: " \t\u3000", to: "" },
  { part: strip(), from: "\u200ba", to: "\u200ba" },
  { part: { type: "Prepend", prepend: "\u2581" }, from: "a", to: "\u2581a" },
  { part: { type: "Prepend", prepend: "\u2581" }, from: "\u2581", to: "\u2581\u2581" },
  { part: { type: "Prepend", prepend: "" }, from: "a", to: "a" },
  { part: { type: "Replace", pattern: { String: "aa" }, content: "b" }, from: "aaaaa", to: "bba" },
  { part: { type: "Replace", pattern: { String: "." }, content: "" }, from: "a.b", to: "ab" },
  { part: { type: "Replace", pattern: { String: "x" }, content: "$&$1" }, from: "axb", to: "a$&$1b" },
  { part: { type: "Replace", pattern: { Regex: " {2,}" }, content: " " }, from: "a   b c", to: "a b c" },
  { part: { type: "Replace", pattern: { Regex: "(a)" }, content: "$1$1" }, from: "a", to: "$1$1" },
  // U+088F is of a later Unicode than the reference's patterns know, so it is no letter to them.
  { part: { type: "Replace", pattern: { Regex: "\\p{L}" }, content: "L" }, from: "a\u088fb", to: "L\u088fL" },
  { part: sequence(), from: " a", to: " a" },
  { part: sequence({ type: "NFKC" }, strip()), from: "\u2003ﬁ ", to: "fi" },
  { part: sequence({ type: "Prepend", prepend: "A" }, { type: "Lowercase" }), from: "B", to: "ab" },
  { part: sequence({ type: "Lowercase" }, { type: "Prepend", prepend: "A" }), from: "B", to: "Ab" },
  { part: sequence(sequence({ type: "NFD" }), { type: "NFC" }), from: "é", to: "é" },
])("$part rewrites $from to $to, as the reference does", ({ part, from, to }) => {
  expect(made(part)(from)).toBe(to);
  expect(referenceNormalizer(part)(from)).toBe(to);
});

test("nothing is prepended to a text of nothing", () => {
  expect(made({ type: "Prepend", prepend: "x" })("")).toBe("");
});

test("a text of nothing is looked for nowhere, where a text of nothing is replaced", () => {
  expect(made({ type: "Replace", pattern: { String: "" }, content: "x" })("ab")).toBe("ab");
});

describe("steps in any order rewrite random texts as the reference's do", () => {
  const parts: readonly object[] = [
    { type: "NFC" },
    { type: "NFD" },
    { type: "NFKC" },
    { type: "NFKD" },
    { type: "Lowercase" },
    { type: "Nmt" },
    strip(),
    strip(true, false),
    { type: "Prepend", prepend: "É " },
    { type: "Replace", pattern: { String: "e" }, content: "\u0301" },
    { type: "Replace", pattern: { Regex: "\\s+" }, content: "\u2581" },
    { type: "Replace", pattern: { Regex: "[^\\p{L}\\s]" }, content: "" },
  ];
  const units = [
    "a",
    "E",
    "é",
    "e\u0301",
    "\u0323",
    "ﬁ",
    "Σ",
    "İ",
    "①",
    "ｶﾞ",
    "한",
    "\u1112\u1161",
    " ",
    "\u00a0",
    "\t",
  ];
  units.push("\u200b", "\u088f", "🙂", "\u0345", "ǆ", "ﷺ", "\u0001", "9", "_");

  test.each([1, 2, 3, 4])("seed %d", (seed) => {
    const random = createSeededRandom(seed);
    for (let round = 0; round < 25; round++) {
      const steps = Array.from({ length: 1 + random.integer(4) }, () => parts[random.integer(parts.length)]!);
      const [ours, reference] = [made(sequence(...steps)), referenceNormalizer(sequence(...steps))];
      for (let repeat = 0; repeat < 20; repeat++) {
        const length = 1 + random.integer(14);
        const text = Array.from({ length }, () => units[random.integer(units.length)]!).join("");
        expect(ours(text), `${JSON.stringify(steps)} of ${JSON.stringify(text)}`).toBe(reference(text));
      }
    }
  });
});

test("steps that compose give the same the second time", () => {
  const random = createSeededRandom(8);
  for (const type of ["NFC", "NFD", "NFKC", "NFKD"]) {
    const normalize = made({ type });
    for (let round = 0; round < 200; round++) {
      const points = Array.from({ length: 1 + random.integer(8) }, () => 0x20 + random.integer(0xd7_00));
      const once = normalize(String.fromCodePoint(...points));
      expect(normalize(once), `${type} of ${points}`).toBe(once);
    }
  }
});

test.each<{ part: unknown; says: string }>([
  { part: { type: "StripAccents" }, says: "normalizer is a StripAccents, which is not supported" },
  { part: { type: "ByteLevel" }, says: "normalizer is a ByteLevel, which is not supported" },
  { part: {}, says: "normalizer is a part without a type, which is not supported" },
  { part: { type: 7 }, says: "normalizer is a part without a type, which is not supported" },
  { part: "NFC", says: "normalizer is not an object" },
  { part: [], says: "normalizer is not an object" },
  { part: { type: "Prepend" }, says: "normalizer has no text under prepend" },
  { part: { type: "Replace", pattern: { String: "a" } }, says: "normalizer has no text under content" },
  { part: { type: "Replace", pattern: "a", content: "" }, says: "normalizer has no pattern" },
  {
    part: { type: "Replace", pattern: { String: 5 }, content: "" },
    says: "has neither Regex nor String under pattern",
  },
  { part: { type: "Replace", pattern: { Regex: "[" }, content: "" }, says: "has a pattern that cannot be translated" },
  { part: { type: "Strip", strip_right: 1 }, says: "has a non-boolean strip_right" },
  { part: { type: "Precompiled" }, says: "normalizer has no text under precompiled_charsmap" },
  { part: { type: "Sequence", normalizers: {} }, says: "normalizer has no list under normalizers" },
  {
    part: sequence({ type: "NFC" }, sequence("NFD" as never)),
    says: "normalizer.normalizers[1].normalizers[0] is not",
  },
])("$part is refused: $says", ({ part, says }) => {
  expect(() => readNormalizer(part)).toThrow(says);
});
