import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import { createTextTokenizer, type TextTokenizer } from "../src/text/text-tokenizer.ts";
import { hardTexts } from "../src/verify-tokenizer.ts";
import { modelFolders, readModel, type TokenizerJson } from "./support/models.ts";

const random = createSeededRandom(21);

/** Ids of added tokens start here. */
const firstAddedId = Object.keys((readModel("espalier-tiny").model as { vocab: object }).vocab).length;

function tokenizerWith(
  tokens: readonly object[],
  changes: TokenizerJson = {},
  config: TokenizerJson = {},
): TextTokenizer {
  const definition = readModel("espalier-tiny");
  const added = tokens.map((token, index) => ({
    id: firstAddedId + index,
    single_word: false,
    lstrip: false,
    rstrip: false,
    normalized: false,
    special: true,
    ...token,
  }));
  return createTextTokenizer({ tokenizer: { ...definition, ...changes, added_tokens: added }, config });
}

/** The tokens of a text by way of its pieces. */
function inPieces(tokenizer: TextTokenizer, text: string, cuts: readonly number[]): number[] {
  const ends = [0, ...cuts, text.length];
  return ends.slice(1).flatMap((end, index) => {
    const start = ends[index]!;
    return end === start ? [] : [...tokenizer.encodePiece(text.slice(start, end), start === 0)];
  });
}

function expectExact(tokenizer: TextTokenizer, text: string): void {
  const whole = [...tokenizer.encode(text, { addSpecialTokens: false })];
  const cuts = tokenizer.cuts(text);
  expect(inPieces(tokenizer, text, cuts), JSON.stringify(text)).toEqual(whole);
  // No text that follows may change the tokens before a cut.
  const cut = cuts[random.integer(Math.max(1, cuts.length))];
  if (cut === undefined) return;
  const before = [...tokenizer.encode(text.slice(0, cut), { addSpecialTokens: false })];
  expect(whole.slice(0, before.length), JSON.stringify(text)).toEqual(before);
}

test.each(Object.keys(modelFolders))("%s: a text has the tokens of its pieces", (name) => {
  const definition = readModel(name);
  const tokenizer = createTextTokenizer({ tokenizer: definition, config: {} });
  const tokens = (definition.added_tokens as readonly { content: string; special: boolean }[]).map(
    ({ content }) => content,
  );
  for (const { text } of hardTexts({ tokens: tokens.slice(0, 10), mixtures: 400 })) expectExact(tokenizer, text);
});

test("a chat is cut behind each of its special tokens", () => {
  const tokenizer = tokenizerWith([{ content: "<|im_start|>" }, { content: "<|im_end|>" }]);
  const text = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
  const cutTexts = tokenizer.cuts(text).map((cut) => text.slice(0, cut));
  expect(cutTexts).toEqual([
    "<|im_start|>",
    "<|im_start|>user\nHi<|im_end|>",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>",
  ]);
  expect(tokenizer.cuts("no special token, <|im_ start|>")).toEqual([]);
});

test.each([
  { name: "takes the space on its right", tokens: [{ content: "<a>", rstrip: true }] },
  { name: "needs a word boundary", tokens: [{ content: "<a>", single_word: true }] },
  { name: "is looked for in normalized text", tokens: [{ content: "<a>", normalized: true }] },
  { name: "is not special", tokens: [{ content: "<a>", special: false }] },
  { name: "starts a longer one", tokens: [{ content: "<a>" }, { content: "<a>b", special: false }] },
  { name: "is in the midst of a longer one", tokens: [{ content: "<a>" }, { content: "x<a>b", special: false }] },
  { name: "starts as another one ends", tokens: [{ content: "<a>" }, { content: "x<", special: false }] },
  { name: "starts as it ends itself", tokens: [{ content: "<a><" }] },
  {
    name: "may be a word beside one that stands alone",
    tokens: [{ content: "<a>z" }, { content: "w", single_word: true }],
  },
])("there is no cut at a token that $name", ({ tokens }) => {
  const tokenizer = tokenizerWith(tokens);
  const [content] = tokens.map((token) => token.content);
  const texts = [`one ${content} two`, `${content}b x${content}b`, `${content}${content}`, `x${content} ${content}\n`];
  for (const text of texts) {
    expect(tokenizer.cuts(text)).toEqual([]);
    expectExact(tokenizer, text);
  }
});

test("the end of a longer token is a cut although a shorter one ends there too", () => {
  const tokenizer = tokenizerWith([{ content: "<a>" }, { content: "x<a>" }]);
  const text = "1<a>2x<a>3";
  expect(tokenizer.cuts(text)).toEqual([4, 9]);
  expectExact(tokenizer, text);
});

test("special tokens that the configuration splits are text: no cuts, other tokens", () => {
  const tokens = [{ content: "<|im_start|>" }];
  const text = "a<|im_start|>b";
  const split = tokenizerWith(tokens, {}, { split_special_tokens: true });
  expect(split.cuts(text)).toEqual([]);
  expect(split.encode(text, { addSpecialTokens: false })).not.toContain(firstAddedId);
  expect([...tokenizerWith(tokens).encode(text, { addSpecialTokens: false })]).toContain(firstAddedId);
});

test("cuts are exact for any flags of any tokens", () => {
  const alphabet = ["a", "<", ">", " ", "b", "\n", "e", "\u0301"];
  const draw = (length: number): string =>
    Array.from({ length }, () => alphabet[random.integer(alphabet.length)]!).join("");
  for (let round = 0; round < 150; round++) {
    const contents = new Set(Array.from({ length: 1 + random.integer(4) }, () => draw(1 + random.integer(4))));
    const tokenizer = tokenizerWith(
      [...contents].map((content) => ({
        content,
        lstrip: random.integer(4) === 0,
        rstrip: random.integer(4) === 0,
        single_word: random.integer(5) === 0,
        normalized: random.integer(4) === 0,
        special: random.integer(5) > 0,
      })),
    );
    for (let repeat = 0; repeat < 20; repeat++) {
      const parts = Array.from({ length: random.integer(8) }, () =>
        random.integer(2) === 0 ? draw(random.integer(6)) : [...contents][random.integer(contents.size)]!,
      );
      expectExact(tokenizer, parts.join(""));
    }
  }
});
