import { createSeededRandom } from "@espalier/core";
import { createTextTokenizer, hardTexts, loadTokenizerFiles, shippedModelFolder } from "@espalier/tokenizer";
import { expect, test } from "vitest";
import { createPieceCache } from "../src/text/tokenizer-text.ts";

const tokenizer = createTextTokenizer(await loadTokenizerFiles(shippedModelFolder()));

/** Counts what is really tokenized. */
function countingTokenizer() {
  const encoded: string[] = [];
  return {
    ...tokenizer,
    encoded,
    encodePiece(piece: string, isFirst: boolean) {
      encoded.push(piece);
      return tokenizer.encodePiece(piece, isFirst);
    },
  };
}

const whole = (text: string): number[] => Array.from(tokenizer.encode(text, { addSpecialTokens: false }));

test("whatever is kept, the tokens are those of the whole text", () => {
  const random = createSeededRandom(3);
  const texts = hardTexts({ tokens: ["<|im_start|>", "<|im_end|>"], mixtures: 40 }).map(({ text }) => text);
  for (const capacityBytes of [1, 5_000, 1_000_000]) {
    const cache = createPieceCache(tokenizer, capacityBytes);
    for (let round = 0; round < 150; round++) {
      const parts = Array.from({ length: random.integer(6) }, () => texts[random.integer(texts.length)] as string);
      const text = parts.join(random.integer(2) === 0 ? "<|im_end|>\n<|im_start|>user\n" : "");
      expect(Array.from(cache.encode(text)), `capacity ${capacityBytes}, round ${round}`).toEqual(whole(text));
      expect(cache.sizeBytes).toBeLessThanOrEqual(capacityBytes);
    }
  }
});

test("of a conversation that goes on only the new turn is tokenized", () => {
  const counting = countingTokenizer();
  const cache = createPieceCache(counting);
  let text = "<|im_start|>system\nBe brief.<|im_end|>\n";
  for (let turn = 0; turn < 20; turn++) {
    text += `<|im_start|>user\nquestion ${turn}<|im_end|>\n`;
    counting.encoded.length = 0;
    cache.encode(text);
    const known = turn === 0 ? 0 : text.lastIndexOf("<|im_start|>");
    expect(counting.encoded.join("").length).toBeLessThanOrEqual(text.length - known + "\n<|im_start|>".length);
  }
  counting.encoded.length = 0;
  expect(Array.from(cache.encode(text))).toEqual(whole(text));
  expect(counting.encoded).toEqual([]);
});

test("the piece that was not used for longest gives way, and one that is too large is not kept", () => {
  const counting = countingTokenizer();
  const cache = createPieceCache(counting, 650);
  const piece = (name: string): string => `${name.repeat(20)}<|im_end|>`;
  // Each takes 2 bytes for its characters, 4 for its tokens, and 160, from 230 to 306: two fit, three do not.
  for (const name of ["a", "b"]) cache.encode(piece(name));
  cache.encode(piece("a"));
  expect(counting.encoded).toHaveLength(2);
  cache.encode(piece("c"));
  cache.encode(piece("a"));
  expect(counting.encoded).toHaveLength(3);
  cache.encode(piece("b"));
  expect(counting.encoded).toHaveLength(4);
  const { sizeBytes } = cache;
  cache.encode("d ".repeat(1_000));
  expect(cache.sizeBytes).toBe(sizeBytes);
  cache.encode(piece("b"));
  expect(counting.encoded).toHaveLength(5);
});
