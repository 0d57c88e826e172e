import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import { createTextTokenizer } from "../src/text/text-tokenizer.ts";
import { mismatches, pairOf, readModel } from "./support/models.ts";

const firstFreeId = Object.keys((readModel("espalier-tiny").model as { vocab: object }).vocab).length;
const random = createSeededRandom(31);
const alphabet = ["a", "b", "_", "<", ">", " ", "  ", "\n", "é", "e\u0301", "E", "好", "9", "\u00a0", "\u200d", "Σ"];
const draw = (length: number): string =>
  Array.from({ length }, () => alphabet[random.integer(alphabet.length)]!).join("");

test.each([
  { normalizer: null },
  { normalizer: { type: "NFC" } },
  { normalizer: { type: "Sequence", normalizers: [{ type: "NFD" }, { type: "Lowercase" }] } },
  { normalizer: { type: "Prepend", prepend: "b" } },
])("random added tokens match where the reference's do, with $normalizer.type", async ({ normalizer }) => {
  for (let round = 0; round < 60; round++) {
    const contents = new Set(Array.from({ length: 1 + random.integer(5) }, () => draw(1 + random.integer(3))));
    const flag = (oneIn: number): boolean => random.integer(oneIn) === 0;
    const added = [...contents].map((content, index) => ({
      id: firstFreeId + index,
      content,
      single_word: flag(3),
      lstrip: flag(3),
      rstrip: flag(3),
      normalized: flag(2),
      special: flag(2),
    }));
    const pair = pairOf({ ...readModel("espalier-tiny"), normalizer, added_tokens: added });
    const texts = Array.from({ length: 15 }, (_, index) => ({
      name: `round ${round}, text ${index}, tokens ${JSON.stringify(added)}`,
      text: Array.from({ length: random.integer(8) }, () =>
        flag(2) ? draw(random.integer(4)) : [...contents][random.integer(contents.size)]!,
      ).join(""),
    }));
    expect(await mismatches(pair, texts)).toEqual([]);
  }
});

test("a token that the vocabulary has keeps its id there, others get the next free ones", async () => {
  const definition = readModel("espalier-tiny");
  const plain = { single_word: false, lstrip: false, rstrip: false, normalized: false, special: true };
  const added = [
    { ...plain, id: firstFreeId, content: "<x>" },
    { ...plain, id: 64, content: "a" },
    { ...plain, id: firstFreeId + 1, content: "<y>" },
  ];
  const pair = pairOf({ ...definition, added_tokens: added });
  expect(await mismatches(pair, [{ name: "all", text: "banana <x><y> a" }])).toEqual([]);
  expect([...pair.ours.encode("<y>a<x>", { addSpecialTokens: false })]).toEqual([firstFreeId + 1, 64, firstFreeId]);
});

test("tokenizer_config.json adds tokens, and its flags come before those of tokenizer.json", async () => {
  const definition = { ...readModel("espalier-tiny") };
  const flags = { single_word: false, lstrip: true, rstrip: true, normalized: false, special: true };
  const config = {
    added_tokens_decoder: {
      [firstFreeId + 9]: { content: "<|new|>", ...flags },
      [firstFreeId + 1]: { content: "<|im_start|>", ...flags },
    },
  };
  const ours = createTextTokenizer({ tokenizer: definition, config });
  const added = (definition.added_tokens as { content: string }[]).map((token) =>
    token.content === "<|im_start|>" ? { ...token, ...flags } : token,
  );
  const { reference } = pairOf({
    ...definition,
    added_tokens: [...added, { id: firstFreeId + 9, content: "<|new|>", ...flags }],
  });
  const texts = ["a  <|im_start|>  b", "x <|new|> y", " <|new|><|im_start|> "].map((text) => ({ name: text, text }));
  expect(await mismatches({ ours, reference, tokens: [] }, texts)).toEqual([]);
});

test("an empty added token is left out", () => {
  const added = [{ id: firstFreeId, content: "", special: true }];
  const tokenizer = createTextTokenizer({
    tokenizer: { ...readModel("espalier-tiny"), added_tokens: added },
    config: {},
  });
  expect(tokenizer.encode("", { addSpecialTokens: true })).toHaveLength(0);
  expect(tokenizer.cuts("abc")).toEqual([]);
});
