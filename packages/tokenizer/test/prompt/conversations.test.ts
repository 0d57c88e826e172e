import { createSeededRandom, type Random } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { createBlockBuilder, createPromptHasher, noBlocks, type PromptBlocks } from "../../src/prompt/prompt-blocks.ts";
import {
  createPromptEncoder,
  type PromptEncoder,
  type PromptEncoderOptions,
  type PromptPlan,
  unknownPieces,
} from "../../src/prompt/prompt-encoder.ts";
import { createTextTokenizer, type TextTokenizer } from "../../src/text/text-tokenizer.ts";
import { readModel } from "../support/models.ts";

const hasher = createPromptHasher();
const tokenizer = createTextTokenizer({ tokenizer: readModel("espalier-tiny"), config: {} });
/** A tokenizer that puts tokens around a text. */
const surrounded: TextTokenizer = { ...tokenizer, surroundings: { before: [1, 2, 3], after: [4] } };

const encoderOf = (options: Partial<PromptEncoderOptions> = {}): PromptEncoder =>
  createPromptEncoder({ tokenizer, hasher, blockSize: 8, ...options });

/** What an encoder has to come to. */
function wholly(text: string, blockSize: number, around?: TextTokenizer["surroundings"]): PromptBlocks {
  const ids = [...tokenizer.encode(text, { addSpecialTokens: false })];
  const tokens = Uint32Array.from([...(around?.before ?? []), ...ids, ...(around?.after ?? [])]);
  const blocks = Math.floor(tokens.length / blockSize);
  const contents = new Uint32Array(2 * blocks);
  const chain = new Uint32Array(2 * blocks);
  hasher.blocks.hashTokens({ tokens, blockSize, parent: { low: 0, high: 0 }, chain, contents });
  return { tokenCount: tokens.length, contents, leftover: tokens.slice(blocks * blockSize) };
}

const words = "one two three größer 好 🙂 12 and\nsome more".split(" ");
const sentence = (random: Random, length: number): string =>
  Array.from({ length }, () => words[random.integer(words.length)]!).join(" ");

/** Messages that are edited at random, as chats of many users and their retries are. */
function edited(messages: readonly string[], random: Random): readonly string[] {
  const changed = [...messages];
  const at = random.integer(changed.length + 1);
  switch (random.integer(6)) {
    case 0:
      return [...changed, sentence(random, 1 + random.integer(30)), sentence(random, random.integer(20))];
    case 1:
      return changed.slice(0, at);
    case 2:
      return changed.map((message, index) => (index === at ? `${message}!` : message));
    case 3:
      changed.splice(at, 0, sentence(random, random.integer(25)));
      return changed;
    case 4:
      changed.splice(at, 1);
      return changed;
    default:
      return changed.toReversed();
  }
}

const rendered = (messages: readonly string[]): string =>
  `${messages.map((message, index) => `<|im_start|>${index % 2 === 0 ? "user" : "assistant"}\n${message}<|im_end|>\n`).join("")}<|im_start|>assistant\n`;

describe("conversations that are edited at random have the blocks of their whole texts", () => {
  test.each([
    { seed: 101, blockSize: 1 },
    { seed: 102, blockSize: 7 },
    { seed: 103, blockSize: 16 },
    { seed: 104, blockSize: 64 },
  ])("seed $seed, blocks of $blockSize", ({ seed, blockSize }) => {
    const random = createSeededRandom(seed);
    for (const bytes of [0, 2_000, 100_000]) {
      const encoder = encoderOf({ tokenizer: surrounded, blockSize, stateBytes: bytes, pieceBytes: bytes });
      const kept: (readonly string[])[] = [[sentence(random, 20)]];
      for (let step = 0; step < 60; step++) {
        const messages = edited(kept[random.integer(kept.length)]!, random).slice(0, 12);
        if (kept.push(messages) > 6) kept.shift();
        const adds = random.integer(2) === 0;
        const plan = encoder.plan(rendered(messages), adds);
        const beginning = encoder.beginning(plan);
        const found = encoder.encode(plan);
        expect(found, `step ${step}`).toEqual(
          wholly(rendered(messages), blockSize, adds ? surrounded.surroundings : undefined),
        );
        expect(found.contents.slice(0, beginning.contents.length)).toEqual(beginning.contents);
        expect(beginning.tokenCount).toBeLessThanOrEqual(found.tokenCount);
        expect(encoder.cachedBytes).toBeLessThanOrEqual(2 * bytes);
      }
    }
  });
});

/** A plan with some of its unknown pieces tokenised, as when threads answer in any order. */
function fillSome(plan: PromptPlan, random: Random): void {
  for (const piece of unknownPieces(plan)) {
    if (random.integer(2) === 0) piece.tokens = tokenizer.encodePiece(piece.text, piece.isFirst);
  }
}

describe("a beginning", () => {
  test("goes as far as pieces have tokens, and is a beginning of the whole", () => {
    const random = createSeededRandom(105);
    for (let round = 0; round < 60; round++) {
      const encoder = encoderOf();
      const messages = Array.from({ length: 1 + random.integer(6) }, () => sentence(random, 4 + random.integer(12)));
      const text = rendered(messages);
      const plan = encoder.plan(text, false);
      fillSome(plan, random);
      const untilPiece = plan.pieces.findIndex(({ tokens }) => !tokens);
      const known = plan.pieces.slice(0, untilPiece < 0 ? plan.pieces.length : untilPiece);
      const beginning = encoder.beginning(plan);
      expect(beginning).toEqual(wholly(known.map((piece) => piece.text).join(""), 8));
      if (unknownPieces(plan).length > 0) expect(() => encoder.finish(plan)).toThrow(TypeError);
      expect(encoder.encode(plan)).toEqual(wholly(text, 8));
    }
  });

  test("of a text without cuts has the tokens before it, and nothing else", () => {
    const encoder = encoderOf({ tokenizer: surrounded, blockSize: 2 });
    expect(encoder.beginning(encoder.plan("no cut at all", true))).toMatchObject({ tokenCount: 3 });
    expect(encoder.beginning(encoder.plan("no cut at all", false))).toEqual(noBlocks);
  });

  test("teaches the cache pieces that a thread has tokenised before the rest was there", () => {
    const encoder = encoderOf();
    const random = createSeededRandom(106);
    const text = rendered([sentence(random, 20), sentence(random, 20)]);
    const plan = encoder.plan(text, false);
    const [first] = plan.pieces;
    first!.tokens = tokenizer.encodePiece(first!.text, true);
    encoder.beginning(plan);
    expect(encoder.plan(text, false).pieces[0]?.tokens).toBe(first?.tokens);
  });
});

describe("a plan", () => {
  test("has the pieces of its text in order, the first of which starts it", () => {
    const random = createSeededRandom(107);
    const encoder = encoderOf();
    for (let round = 0; round < 50; round++) {
      const text = rendered(Array.from({ length: random.integer(6) }, () => sentence(random, random.integer(30))));
      const { pieces, tail } = encoder.plan(text, false);
      const all = tail ? [...pieces, tail] : pieces;
      expect(all.map((piece) => piece.text).join("")).toBe(text);
      expect(all.map(({ isFirst }) => isFirst)).toEqual(all.map((_, index) => index === 0));
      for (const piece of pieces) expect(piece.text.length).toBeGreaterThanOrEqual(32);
    }
  });

  test.each([
    { text: "", pieces: 0, tail: false },
    { text: "abc", pieces: 0, tail: true },
    { text: `${"x".repeat(22)}<|im_end|>`, pieces: 1, tail: false },
    { text: `${"x".repeat(21)}<|im_end|>`, pieces: 0, tail: true },
    { text: `${"x".repeat(22)}<|im_end|>y`, pieces: 1, tail: true },
    { text: `${"x".repeat(22)}<|im_end|><|im_end|>`, pieces: 1, tail: true },
    { text: "<|im_end|>".repeat(4), pieces: 1, tail: false },
    { text: "<|im_end|>".repeat(8), pieces: 2, tail: false },
  ])("of $text: $pieces pieces, a tail: $tail", ({ text, pieces, tail }) => {
    const encoder = encoderOf();
    const plan = encoder.plan(text, false);
    expect([plan.pieces.length, plan.tail !== undefined]).toEqual([pieces, tail]);
    expect(plan.lastCut === undefined).toBe(pieces === 0);
    expect(encoder.encode(plan)).toEqual(wholly(text, 8));
  });

  test("of a text that is a beginning of a known one starts from the deepest cut both have", () => {
    const encoder = encoderOf();
    const random = createSeededRandom(108);
    const messages = Array.from({ length: 4 }, () => sentence(random, 15));
    for (let count = 1; count <= 4; count++) encoder.encode(encoder.plan(rendered(messages.slice(0, count)), false));
    for (let count = 1; count <= 4; count++) {
      const text = rendered(messages.slice(0, count));
      const plan = encoder.plan(text, false);
      const until = text.length - (plan.tail?.text.length ?? 0);
      expect([plan.pieces.length, plan.known.tokenCount]).toEqual([0, wholly(text.slice(0, until), 8).tokenCount]);
    }
  });

  test("of a text takes tokens of pieces in the midst of others for its midst, and not for its start", () => {
    const encoder = encoderOf();
    const unit = `${"word ".repeat(8)}<|im_end|>`;
    encoder.encode(encoder.plan(`a${unit}${unit}`, false));
    expect(encoder.plan(unit, false).pieces[0]?.tokens).toBeUndefined();
    const other = encoder.plan(`b${unit}${unit}`, false);
    expect(other.pieces.map(({ tokens }) => tokens !== undefined)).toEqual([false, true]);
  });
});

describe("what caches drop", () => {
  const random = createSeededRandom(109);
  const systems = Array.from({ length: 12 }, () => `<|im_start|>${sentence(random, 60)}<|im_end|>`);

  test("is what was not used for longest: a system prompt that is asked for stays", () => {
    const encoder = encoderOf({ stateBytes: 3_600, pieceBytes: 0 });
    const used = systems[0]!;
    encoder.encode(encoder.plan(used, false));
    for (const other of systems.slice(1)) {
      encoder.encode(encoder.plan(other, false));
      expect(encoder.plan(used, false).pieces).toEqual([]);
    }
    expect(encoder.plan(systems[1]!, false).pieces).toHaveLength(1);
  });

  test("costs no state when pieces are dropped, and no piece when states are", () => {
    const states = encoderOf({ pieceBytes: 0 });
    const pieces = encoderOf({ stateBytes: 0 });
    const [first, second] = [systems[0]!, systems[1]!];
    for (const encoder of [states, pieces]) {
      encoder.encode(encoder.plan(first + second, false));
      encoder.encode(encoder.plan(first, false));
    }
    expect(states.plan(first, false).pieces).toEqual([]);
    expect(states.plan(second, false).pieces[0]?.tokens).toBeUndefined();
    expect(pieces.plan(first, false).pieces[0]?.tokens).toBeDefined();
    expect(pieces.plan(second + first, false).pieces.map(({ tokens }) => tokens !== undefined)).toEqual([false, false]);
  });

  test("is bounded in the bytes of tokens and digests, with what an entry costs", () => {
    const encoder = encoderOf({ blockSize: 8 });
    expect(encoder.cachedBytes).toBe(0);
    const text = systems[0]!;
    const { tokenCount, contents, leftover } = encoder.encode(encoder.plan(text, false));
    expect(encoder.cachedBytes).toBe(4 * tokenCount + 400 + contents.byteLength + leftover.byteLength + 640);
    encoder.encode(encoder.plan(text, false));
    expect(encoder.cachedBytes).toBe(4 * tokenCount + 400 + contents.byteLength + leftover.byteLength + 640);
  });
});

describe("blocks", () => {
  const builder = createBlockBuilder({ hasher, blockSize: 4 });

  test("are the same however their tokens come", () => {
    const random = createSeededRandom(110);
    for (let round = 0; round < 100; round++) {
      const tokens = Uint32Array.from({ length: random.integer(60) }, () => random.integer(2 ** 32));
      const whole = builder.append(noBlocks, [tokens]);
      let built = noBlocks;
      for (let at = 0; at < tokens.length; ) {
        const parts = Array.from({ length: random.integer(4) }, () => {
          const length = random.integer(9);
          const part = tokens.subarray(at, at + length);
          at += part.length;
          return part;
        });
        built = builder.append(built, parts);
      }
      expect(built).toEqual(whole);
      expect(whole.contents).toHaveLength(2 * Math.floor(tokens.length / 4));
      expect([...whole.leftover]).toEqual([...tokens.slice(tokens.length - (tokens.length % 4))]);
    }
  });

  test("that are appended to are left as they were, and appending nothing gives the same", () => {
    const before = builder.append(noBlocks, [Uint32Array.of(1, 2, 3, 4, 5)]);
    const copy = structuredClone(before);
    builder.append(before, [Uint32Array.of(6, 7, 8, 9)]);
    expect(before).toEqual(copy);
    expect(builder.append(before, [])).toBe(before);
    expect(builder.append(before, [new Uint32Array(0)])).toBe(before);
  });

  test("chain on: the chain of a prompt's beginning is the beginning of its chain, from every root", () => {
    const random = createSeededRandom(111);
    const tokens = Uint32Array.from({ length: 41 }, () => random.integer(1_000));
    for (const root of [
      { low: 0, high: 0 },
      { low: 7, high: 0xffff_ffff },
    ]) {
      const chain = builder.chain(builder.append(noBlocks, [tokens]), root);
      for (let length = 0; length <= tokens.length; length++) {
        const part = builder.chain(builder.append(noBlocks, [tokens.slice(0, length)]), root);
        expect(part).toEqual(chain.slice(0, part.length));
        expect(part).toHaveLength(2 * Math.floor(length / 4));
      }
    }
  });
});

test("the last cut within a length never reaches beyond it, and cuts exactly", () => {
  const encoder = encoderOf();
  const text = rendered(["first message", "second", "third"]);
  for (let length = 0; length <= text.length; length++) {
    const cut = encoder.cutWithin(text, length);
    expect(cut).toBeLessThanOrEqual(length);
    const tokens = [...tokenizer.encode(text.slice(0, cut), { addSpecialTokens: false })];
    expect([...tokenizer.encode(text, { addSpecialTokens: false })].slice(0, tokens.length)).toEqual(tokens);
  }
  expect(encoder.cutWithin(text, text.length)).toBe(text.length - "assistant\n".length);
});
