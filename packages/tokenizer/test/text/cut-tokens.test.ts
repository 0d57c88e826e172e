import { createSeededRandom } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { type AddedToken, findCutTokens } from "../../src/text/added-tokens.ts";

const token = (content: string, flags: Partial<AddedToken> = {}): AddedToken => ({
  content,
  id: 1,
  singleWord: false,
  lstrip: false,
  rstrip: false,
  normalized: false,
  special: true,
  ...flags,
});

const cuts = (text: string, ...tokens: readonly (AddedToken | string)[]): readonly number[] =>
  findCutTokens(
    tokens.map((one) => (typeof one === "string" ? token(one) : one)),
    false,
  )(text);

describe("cuts are the ends of special tokens", () => {
  test.each<{ name: string; tokens: readonly string[]; text: string; wanted: readonly number[] }>([
    { name: "none of none", tokens: [], text: "<a>", wanted: [] },
    { name: "that start alike", tokens: ["<|a|>", "<|b|>"], text: "<|b|>x<|a|>", wanted: [5, 11] },
    { name: "that have nothing in common", tokens: ["[x]", "<y>"], text: "<y>[x]", wanted: [3, 6] },
    { name: "of one character", tokens: ["\u0001"], text: "a\u0001\u0001", wanted: [2, 3] },
    { name: "with the signs of patterns", tokens: ["(.*)", "[+]", "$^"], text: "$^(.*)[+]abc", wanted: [2, 6, 9] },
    { name: "that share all but the end", tokens: ["<x1>", "<x2>"], text: "<x1<x2>", wanted: [7] },
    { name: "behind a beginning that goes on otherwise", tokens: ["<|a|>"], text: "<|<|a|>", wanted: [7] },
    { name: "beyond the basic plane", tokens: ["🙂!", "🙃!"], text: "🙃🙂!", wanted: [5] },
    { name: "in a text of nothing", tokens: ["<a>"], text: "", wanted: [] },
  ])("$name", ({ tokens, text, wanted }) => {
    expect(cuts(text, ...tokens)).toEqual(wanted);
  });

  test("and the same text has the same ones when it is asked again", () => {
    for (const tokens of [["<a>"], ["[x]", "<a>"]]) {
      const find = findCutTokens(
        tokens.map((content) => token(content)),
        false,
      );
      expect([find("1<a>2<a>"), find("<a>"), find("1<a>2<a>")]).toEqual([[4, 8], [3], [4, 8]]);
    }
  });
});

describe("a token that others could hide or lengthen is no cut", () => {
  test.each<{ name: string; tokens: readonly (AddedToken | string)[]; text: string; wanted: readonly number[] }>([
    { name: "one that starts as the other ends", tokens: ["ab", "bc"], text: "abc bc", wanted: [2] },
    {
      name: "the same by way of a third that is none itself",
      tokens: ["<a>", token("><", { special: false })],
      text: "<a>",
      wanted: [],
    },
    { name: "a suffix of another, which is a cut", tokens: ["<a>", "b<a>"], text: "b<a><a>", wanted: [4, 7] },
    {
      name: "a suffix of another, which is none",
      tokens: ["<a>", token("b<a>", { rstrip: true })],
      text: "b<a><a>",
      wanted: [],
    },
    {
      name: "a suffix of a suffix of one that is none",
      tokens: ["<a>", "b<a>", token("cb<a>", { special: false })],
      text: "cb<a>",
      wanted: [],
    },
    { name: "a prefix of another", tokens: ["<a>", "<a>b"], text: "<a><a>b", wanted: [7] },
    {
      name: "one beside a normalized one",
      tokens: ["<a>", token("a", { normalized: true })],
      text: "<a>a",
      wanted: [3],
    },
    { name: "one that takes space on its left", tokens: [token("<a>", { lstrip: true })], text: " <a>", wanted: [4] },
    {
      name: "a word beside one that stands alone",
      tokens: ["<a>w", token("x", { singleWord: true })],
      text: "<a>w",
      wanted: [],
    },
    {
      name: "a sign beside one that stands alone",
      tokens: ["<a>", token("x", { singleWord: true })],
      text: "<a>",
      wanted: [3],
    },
    { name: "one that repeats", tokens: ["aba"], text: "aba", wanted: [] },
    { name: "one of equal characters", tokens: ["=="], text: "==", wanted: [] },
  ])("$name", ({ tokens, text, wanted }) => {
    expect(cuts(text, ...tokens)).toEqual(wanted);
  });

  test("where special tokens are split, no text has cuts", () => {
    expect(findCutTokens([token("<a>")], true)("<a><a>")).toEqual([]);
  });
});

test("of more than 1,024 special tokens the first ones make cuts", () => {
  const tokens = Array.from({ length: 1_025 }, (_, index) => token(`<|${index}|>`));
  const find = findCutTokens(tokens, false);
  expect(find("<|0|><|1023|>")).toEqual([5, 13]);
  expect(find("<|1024|>")).toEqual([]);
  expect(find(`<|1024|>${"x".repeat(10)}<|7|>`)).toEqual([23]);
});

test("1,025 tokens that have nothing in common are bounded alike", () => {
  const tokens = Array.from({ length: 1_025 }, (_, index) => token(`${String.fromCharCode(0x4e00 + index)}!`));
  const find = findCutTokens(tokens, false);
  expect(find("\u4e00!")).toEqual([2]);
  expect(find(`${String.fromCharCode(0x4e00 + 1_023)}!`)).toEqual([2]);
  expect(find(`${String.fromCharCode(0x4e00 + 1_024)}!`)).toEqual([]);
});

/**
 * Symptom: a model with 4,096 special tokens took three seconds to load. Mechanism: each special token was compared with
 * each other one, so that time grew with the square of their number.
 */
test("32,768 special tokens that start alike are looked through at once", () => {
  const tokens = Array.from({ length: 32_768 }, (_, index) => token(`<|audio_${index}|>`));
  const find = findCutTokens([...tokens, token("x<|audio_3|>y", { special: false })], false);
  expect(find("<|audio_2|><|audio_3|><|audio_4|>")).toEqual([11, 33]);
});

test("cuts of a beginning are those of the whole text up to there", () => {
  const random = createSeededRandom(93);
  const tokens = ["<|a|>", "<|b|>", "[/x]"];
  const units = [...tokens, "<", "|", "<|", "a|>", "x", " ", "[/"];
  for (let round = 0; round < 300; round++) {
    const text = Array.from({ length: random.integer(20) }, () => units[random.integer(units.length)]!).join("");
    const length = random.integer(text.length + 1);
    const all = cuts(text, ...tokens);
    expect(cuts(text.slice(0, length), ...tokens)).toEqual(all.filter((cut) => cut <= length));
    const wanted = [...text.matchAll(/<\|a\|>|<\|b\|>|\[\/x\]/g)].map(({ index, 0: match }) => index + match.length);
    expect(all).toEqual(wanted);
  }
});
