import { createSeededRandom } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { hardTexts } from "../src/verify-tokenizer.ts";
import { mismatches, modelFolders, pairOf, readModel } from "./support/models.ts";

/** Planes in which characters are assigned, apart from those for private use. */
const planes = [0, 1, 2, 3, 14];

/** Their code points once each, in texts of 512, alone and between letters and marks. */
function everyCodePoint(): { readonly name: string; readonly text: string }[] {
  const random = createSeededRandom(3);
  const around = ["", "", "a", " ", "\u0301", "1"];
  const texts: { name: string; text: string }[] = [];
  for (let first = 0; first < 0xf_0000; first += 512) {
    if (!planes.includes(first >> 16)) continue;
    let text = "";
    for (let point = first; point < first + 512; point++) {
      if (point >= 0xd800 && point < 0xe000) continue;
      text += String.fromCodePoint(point) + around[random.integer(around.length)]!;
    }
    texts.push({ name: `code points from ${first.toString(16)}`, text });
  }
  return texts;
}

/** Texts of letters, marks and signs from anywhere. */
function randomTexts(count: number, seed: number): { readonly name: string; readonly text: string }[] {
  const random = createSeededRandom(seed);
  return Array.from({ length: count }, (_, index) => {
    let text = "";
    for (let length = random.integer(24); length >= 0; length--) {
      const point = random.integer(random.integer(3) === 0 ? 0x2_0000 : 0x3000);
      text += point >= 0xd800 && point < 0xe000 ? " " : String.fromCodePoint(point);
    }
    return { name: `random text ${index} of seed ${seed}`, text };
  });
}

describe.each(Object.keys(modelFolders))("%s makes the reference's tokens", (name) => {
  const pair = pairOf(readModel(name));

  test("of hard texts, with and without tokens around them", async () => {
    const texts = hardTexts({ tokens: pair.tokens.slice(0, 12), mixtures: 250 });
    expect(await mismatches(pair, texts, false)).toEqual([]);
    expect(await mismatches(pair, texts, true)).toEqual([]);
  });

  test("of random texts", async () => {
    expect(await mismatches(pair, randomTexts(300, 11))).toEqual([]);
  });

  test("of a word of 100,000 letters, and of other runs without end", async () => {
    const texts = ["a", "Ab", " ", "\n", "好", "🙂", "e\u0301", "=", "1", "\u200d"].map((unit) => ({
      name: JSON.stringify(unit),
      text: unit.repeat(Math.ceil(100_000 / unit.length)),
    }));
    expect(await mismatches(pair, texts)).toEqual([]);
  });
});

// Normalization and patterns differ from those of the JavaScript engine in characters that later versions of Unicode
// added; what differs does so for every model of the same kind.
test("a difference would be seen", async () => {
  const { reference } = pairOf(readModel("espalier-tiny"));
  const { ours, tokens } = pairOf({ ...readModel("espalier-tiny"), normalizer: null });
  const texts = [
    { name: "differs", text: "e\u0301" },
    { name: "does not", text: "e" },
  ];
  expect(await mismatches({ ours, reference, tokens }, texts)).toEqual([
    expect.stringMatching(/^differs: at 0 wanted/),
  ]);
});

test.each(["espalier-tiny", "spm-bpe", "unigram"])(
  "%s makes the reference's tokens of every code point",
  { timeout: 60_000 },
  async (name) => {
    expect(await mismatches(pairOf(readModel(name)), everyCodePoint())).toEqual([]);
  },
);
