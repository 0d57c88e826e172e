import { createSeededRandom } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { readPattern, type SplitPattern } from "../../src/text/split-pattern.ts";
import { tokenizerPart } from "../../src/text/tokenizer-part.ts";
import { referenceNormalizer, referencePieces } from "../support/reference.ts";

const patternOf = (pattern: unknown): SplitPattern => readPattern(tokenizerPart({ pattern }, "part"));

/** Pieces with their kind, as `find` tells them. */
function found(pattern: SplitPattern, text: string): readonly string[] {
  let at = 0;
  return pattern.find(text).map((end) => {
    const piece = text.slice(at, Math.abs(end));
    at = Math.abs(end);
    return end <= 0 ? `<${piece}>` : piece;
  });
}

test.each<{ pattern: object; text: string; wanted: readonly string[] }>([
  { pattern: { String: "ab" }, text: "abcabab", wanted: ["<ab>", "c", "<ab>", "<ab>"] },
  { pattern: { String: "aa" }, text: "aaa", wanted: ["<aa>", "a"] },
  { pattern: { String: ".*" }, text: "a.*", wanted: ["a", "<.*>"] },
  { pattern: { String: "x" }, text: "abc", wanted: ["abc"] },
  { pattern: { String: "x" }, text: "", wanted: [] },
  { pattern: { String: "" }, text: "ab", wanted: ["ab"] },
  { pattern: { Regex: "b+" }, text: "abba", wanted: ["a", "<bb>", "a"] },
  { pattern: { Regex: "b+" }, text: "", wanted: [] },
  { pattern: { Regex: "b*" }, text: "abb", wanted: ["<>", "a", "<bb>"] },
  { pattern: { Regex: "b*" }, text: "bba", wanted: ["<bb>", "a", "<>"] },
  { pattern: { Regex: "(?=b)" }, text: "abb", wanted: ["a", "<>", "b", "<>", "b"] },
  { pattern: { Regex: "." }, text: "🙂\n", wanted: ["<🙂>", "\n"] },
  { pattern: { Regex: "(?i:'s)" }, text: "'S'ſ", wanted: ["<'S>", "<'ſ>"] },
  { pattern: { Regex: "(?i:[a-k])" }, text: "K\u212Al", wanted: ["<K>", "<\u212A>", "l"] },
  { pattern: { Regex: "\\p{Lu}" }, text: "aBÀ", wanted: ["a", "<B>", "<À>"] },
])("$pattern finds $wanted in $text", ({ pattern, text, wanted }) => {
  const made = patternOf(pattern);
  expect(found(made, text)).toEqual(wanted);
  const pieces = wanted.map((piece) => (piece.startsWith("<") ? piece.slice(1, -1) : piece));
  expect(made.isolate(text)).toEqual(pieces.filter((piece) => piece !== ""));
});

/**
 * Symptom: `a*` split "aab" into one match more than the reference, and replacing gave "xxbx". Mechanism: JavaScript
 * finds a match of nothing right behind another match, Oniguruma does not.
 */
test.each([
  { regex: "a*", text: "aab", wanted: "xbx" },
  { regex: "a*", text: "baa", wanted: "xbx" },
  { regex: "a*", text: "", wanted: "" },
  { regex: "$|a", text: "ba", wanted: "bx" },
  { regex: "^", text: "ab", wanted: "xab" },
  { regex: "^", text: "\u088fa", wanted: "x\u088fa" },
  { regex: "\\b", text: "a b", wanted: "xax xbx" },
  { regex: "a?", text: "🙂a", wanted: "x🙂x" },
])("replacing $regex in $text gives $wanted, as the reference does", ({ regex, text, wanted }) => {
  const reference = referenceNormalizer({ type: "Replace", pattern: { Regex: regex }, content: "x" });
  expect([patternOf({ Regex: regex }).replace(text, "x"), reference(text)]).toEqual([wanted, wanted]);
});

describe("what a pattern finds", () => {
  const regexes = ["a+", "a*", "[ab]{2}", "\\s+(?!\\S)|\\s+", "\\p{L}+", "\\w", "(?i:k|s)", "[^a]", "\\d{1,3}", "a|"];
  const units = ["a", "b", "k", "\u212A", "S", " ", "\n", "1", "é", "\u0301", "\u088f", "🙂", "\u{1FAEA}"];
  const random = createSeededRandom(61);
  const draw = (): string =>
    Array.from({ length: random.integer(14) }, () => units[random.integer(units.length)]!).join("");

  test.each(regexes)("%s: covers the text in order, and isolating is cutting there", (regex) => {
    const pattern = patternOf({ Regex: regex });
    for (let round = 0; round < 150; round++) {
      const text = draw();
      const pieces = found(pattern, text).map((piece) => (/^<.*>$/s.test(piece) ? piece.slice(1, -1) : piece));
      expect(pieces.join("")).toBe(text);
      expect(pattern.isolate(text)).toEqual(pieces.filter((piece) => piece !== ""));
      const ends = pattern.find(text).map(Math.abs);
      expect(ends).toEqual(ends.toSorted((one, other) => one - other));
      expect(ends.at(-1) ?? 0).toBe(text.length);
    }
  });

  test.each(regexes)("%s: is replaced as the reference replaces it", (regex) => {
    const pattern = patternOf({ Regex: regex });
    const reference = referenceNormalizer({ type: "Replace", pattern: { Regex: regex }, content: "$0" });
    for (let round = 0; round < 150; round++) {
      const text = draw();
      expect(pattern.replace(text, "$0"), JSON.stringify(text)).toBe(reference(text));
    }
  });

  test("a literal is found where the reference finds it", () => {
    for (let round = 0; round < 60; round++) {
      const literal = `${units[random.integer(units.length)]!}${random.integer(2) === 0 ? "a" : ""}`;
      const text = draw() + literal + draw();
      const part = { type: "Split", pattern: { String: literal }, behavior: "Isolated", invert: false };
      expect(patternOf({ String: literal }).isolate(text)).toEqual(referencePieces(part)(text));
    }
  });
});

test.each([
  { pattern: { Regex: "(?<!" }, says: "part has a pattern that cannot be translated" },
  { pattern: { Regex: "a{2,1}" }, says: "part has a pattern that cannot be translated" },
  { pattern: { Regex: null }, says: "part has neither Regex nor String under pattern" },
  { pattern: {}, says: "part has neither Regex nor String under pattern" },
  { pattern: null, says: "part has no pattern" },
  { pattern: undefined, says: "part has no pattern" },
  { pattern: "a", says: "part has no pattern" },
])("$pattern is refused: $says", ({ pattern, says }) => {
  expect(() => patternOf(pattern)).toThrow(says);
});
