import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import { createPromptHasher, type PromptBlocks } from "../src/prompt/prompt-blocks.ts";
import { createPromptEncoder, maxCuts, type PromptEncoder, unknownPieces } from "../src/prompt/prompt-encoder.ts";
import { createTextTokenizer, type TextTokenizer } from "../src/text/text-tokenizer.ts";
import { hardTexts } from "../src/verify-tokenizer.ts";
import { readModel } from "./support/models.ts";

const hasher = createPromptHasher();
const blockSize = 16;

/** A tokenizer that notes what it is asked to tokenise. */
function watched(name: string): TextTokenizer & { readonly asked: string[] } {
  const tokenizer = createTextTokenizer({ tokenizer: readModel(name), config: {} });
  const asked: string[] = [];
  return {
    ...tokenizer,
    asked,
    encodePiece(piece, isFirst) {
      asked.push(piece);
      return tokenizer.encodePiece(piece, isFirst);
    },
  };
}

/** What the encoder has to come to: all tokens, cut into blocks, each hashed. */
function plainly(tokenizer: TextTokenizer, text: string, addSpecialTokens: boolean): PromptBlocks {
  const tokens = tokenizer.encode(text, { addSpecialTokens });
  const blocks = Math.floor(tokens.length / blockSize);
  const contents = new Uint32Array(2 * blocks);
  const chain = new Uint32Array(2 * blocks);
  hasher.blocks.hashTokens({ tokens, blockSize, parent: { low: 0, high: 0 }, chain, contents });
  return { tokenCount: tokens.length, contents, leftover: tokens.slice(blocks * blockSize) };
}

const encode = (encoder: PromptEncoder, text: string, addSpecialTokens = false): PromptBlocks =>
  encoder.encode(encoder.plan(text, addSpecialTokens));

const random = createSeededRandom(41);
const words = "the quick brown fox jumps over a lazy dog while größere Füchse 好 schlafen 12 345 🙂".split(" ");
const sentence = (length: number): string =>
  Array.from({ length }, () => words[random.integer(words.length)]!).join(" ");
const message = (role: string, length: number): string => `<|im_start|>${role}\n${sentence(length)}<|im_end|>\n`;
const opening = "<|im_start|>assistant\n";

test.each(["espalier-tiny", "spm-bpe", "unigram", "gpt2-like"])(
  "%s: blocks equal those of the whole text's tokens",
  (name) => {
    const tokenizer = watched(name);
    const encoder = createPromptEncoder({ tokenizer, hasher, blockSize });
    const tokens = ["<|im_start|>", "<|im_end|>", "</s>", "[INST]"];
    const texts = hardTexts({ tokens, mixtures: 150 }).map(({ text }) => text);
    for (let round = 0; round < 300; round++) {
      const text = Array.from({ length: random.integer(4) }, () => texts[random.integer(texts.length)]!).join("");
      const addSpecialTokens = random.integer(2) === 0;
      const found = encode(encoder, text, addSpecialTokens);
      expect(found, JSON.stringify(text)).toEqual(plainly(tokenizer, text, addSpecialTokens));
    }
  },
);

test("a conversation's next turn tokenises its new text only", () => {
  const tokenizer = watched("espalier-tiny");
  const encoder = createPromptEncoder({ tokenizer, hasher, blockSize });
  let text = message("system", 300);
  for (let turn = 0; turn < 20; turn++) {
    const question = message("user", 30);
    text += question;
    tokenizer.asked.length = 0;
    expect(encode(encoder, text + opening)).toEqual(plainly(tokenizer, text + opening, false));
    const asked = tokenizer.asked.join("").length;
    expect(asked).toBeLessThan(
      turn === 0 ? text.length + 100 : 100 + question.length + (text.length - question.length) / 4,
    );
    text += `${opening}${sentence(40)}<|im_end|>\n`;
  }
});

test("the same prompt again tokenises nothing, and shares its digests with the cache", () => {
  const tokenizer = watched("espalier-tiny");
  const encoder = createPromptEncoder({ tokenizer, hasher, blockSize });
  const text = message("system", 100) + message("user", 60) + opening;
  const first = encode(encoder, text);
  tokenizer.asked.length = 0;
  const plan = encoder.plan(text, false);
  expect(unknownPieces(plan)).toEqual([]);
  expect(encoder.encode(plan)).toEqual(first);
  expect(tokenizer.asked).toEqual([]);
});

test("pieces that other prompts had are not tokenised again: a system prompt, a document in the midst", () => {
  const tokenizer = watched("espalier-tiny");
  const encoder = createPromptEncoder({ tokenizer, hasher, blockSize });
  const [system, document] = [message("system", 200), message("user", 200)];
  encode(encoder, system + message("user", 20) + document + opening);
  tokenizer.asked.length = 0;
  const text = system + message("user", 21) + message("assistant", 5) + document + opening;
  expect(encode(encoder, text)).toEqual(plainly(tokenizer, text, false));
  const asked = tokenizer.asked.join("");
  expect(asked).not.toContain(system.slice(20, 200));
  expect(asked).not.toContain(document.slice(20, 200));
});

test("with and without tokens around them, texts do not share states", () => {
  const tokenizer = watched("spm-bpe");
  const encoder = createPromptEncoder({ tokenizer, hasher, blockSize });
  const text = `${sentence(40)}[INST]${sentence(40)}[/INST] and more`;
  for (const addSpecialTokens of [true, false, true, false]) {
    expect(encode(encoder, text, addSpecialTokens)).toEqual(plainly(tokenizer, text, addSpecialTokens));
  }
});

test("what is known of a plan is a beginning of the prompt up to what nobody has seen", () => {
  const tokenizer = watched("espalier-tiny");
  const encoder = createPromptEncoder({ tokenizer, hasher, blockSize });
  const [system, question] = [message("system", 100), message("user", 50)];
  encode(encoder, system + message("user", 4) + opening);
  const plan = encoder.plan(system + question + opening, false);
  const beginning = encoder.beginning(plan);
  expect(beginning).toEqual(plainly(tokenizer, system.trimEnd(), false));
  expect(() => encoder.finish(plan)).toThrow(TypeError);
  const whole = encoder.encode(plan);
  expect(whole.contents.slice(0, beginning.contents.length)).toEqual(beginning.contents);
  expect(encoder.beginning(encoder.plan("never seen", true)).tokenCount).toBe(0);
});

test("tokens that somebody else found finish a plan", () => {
  const tokenizer = watched("espalier-tiny");
  const encoder = createPromptEncoder({ tokenizer, hasher, blockSize });
  const text = message("system", 100) + message("user", 50) + opening;
  const plan = encoder.plan(text, false);
  for (const piece of unknownPieces(plan)) piece.tokens = tokenizer.encodePiece(piece.text, piece.isFirst);
  expect(encoder.finish(plan)).toEqual(plainly(tokenizer, text, false));
  expect(unknownPieces(encoder.plan(text, false))).toEqual([]);
});

test("a prompt of tokens has the blocks of those tokens", () => {
  const tokenizer = watched("espalier-tiny");
  const encoder = createPromptEncoder({ tokenizer, hasher, blockSize });
  const text = sentence(90);
  const tokens = tokenizer.encode(text, { addSpecialTokens: false });
  expect(encoder.fromTokens(tokens)).toEqual(plainly(tokenizer, text, false));
  expect(encoder.fromTokens(new Uint32Array(0)).tokenCount).toBe(0);
});

test("a chain depends on its root and is the chain of the tokens", () => {
  const tokenizer = watched("espalier-tiny");
  const encoder = createPromptEncoder({ tokenizer, hasher, blockSize });
  const text = sentence(200);
  const blocks = encode(encoder, text);
  const tokens = tokenizer.encode(text, { addSpecialTokens: false });
  for (const parent of [
    { low: 1, high: 2 },
    { low: 3, high: 4 },
  ]) {
    const chain = new Uint32Array(blocks.contents.length);
    hasher.blocks.hashTokens({ tokens, blockSize, parent, chain });
    expect(encoder.chain(blocks, parent)).toEqual(chain);
  }
});

test("caches stay within their bounds, and results are right however little they hold", () => {
  const tokenizer = watched("espalier-tiny");
  for (const bytes of [0, 500, 4_000]) {
    const encoder = createPromptEncoder({ tokenizer, hasher, blockSize, stateBytes: bytes, pieceBytes: bytes });
    for (let round = 0; round < 40; round++) {
      const text = message("user", 5 + random.integer(60)) + message("user", 5) + opening;
      expect(encode(encoder, text)).toEqual(plainly(tokenizer, text, false));
      expect(encoder.cachedBytes).toBeLessThanOrEqual(2 * bytes);
    }
  }
});

test("cuts beyond the bound do not count, and the text is still right", () => {
  const tokenizer = watched("espalier-tiny");
  const encoder = createPromptEncoder({ tokenizer, hasher, blockSize });
  const unit = `${"x".repeat(24)}<|im_end|>`;
  const countOf = (times: number): number => encoder.plan(unit.repeat(times), false).pieces.length;
  expect(countOf(maxCuts)).toBe(maxCuts);
  const plan = encoder.plan(unit.repeat(maxCuts + 3), false);
  expect([plan.pieces.length, plan.tail?.text]).toEqual([maxCuts, unit.repeat(3)]);
  expect(encoder.encode(plan)).toEqual(plainly(tokenizer, unit.repeat(maxCuts + 3), false));
});

test("a block size that is no positive whole number is refused", () => {
  const tokenizer = watched("espalier-tiny");
  for (const wrong of [0, -1, 1.5, Number.NaN]) {
    expect(() => createPromptEncoder({ tokenizer, hasher, blockSize: wrong })).toThrow(RangeError);
  }
});
