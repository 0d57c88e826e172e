import { createSeededRandom, type Random } from "@espalier/core";
import { expect, test } from "vitest";
import type { BlockTarget } from "../../src/hash/block-hasher.ts";
import { type BlockHasher, createBlockHasher } from "../../src/hash/block-hasher.ts";
import { createTextHasher } from "../../src/hash/text-hasher.ts";

const wasm = createBlockHasher({ kernel: "wasm" });
const js = createBlockHasher({ kernel: "js" });

type Run = (hasher: BlockHasher, target: BlockTarget) => number;

/** Text of all widths of UTF-8, with surrogates torn apart here and there. */
function randomText(random: Random, length: number): string {
  const ceilings = [0x80, 0x800, 0x1_0000, 0x11_0000];
  const ceiling = ceilings[random.integer(ceilings.length)] ?? 0x80;
  let text = "";
  while (text.length < length) {
    const mayBeWide = random.integer(3) === 0 ? ceiling : 0x80;
    text += String.fromCodePoint(random.integer(mayBeWide));
  }
  return text.slice(random.integer(2), length);
}

function randomRun(random: Random): { readonly what: string; readonly run: Run } {
  const kind = random.integer(3);
  const start = random.integer(70);
  if (kind === 0) {
    const blockSize = 1 + random.integer(600);
    const tokens = Uint32Array.from({ length: start + random.integer(3 * blockSize) }, () => random.integer(2 ** 32));
    const end = tokens.length - random.integer(Math.min(4, tokens.length - start + 1));
    return {
      what: `tokens ${start} to ${end} in blocks of ${blockSize}`,
      run: (hasher, target) => hasher.hashTokens({ tokens, start, end, blockSize, ...target }),
    };
  }
  const blockBytes = 1 + random.integer(random.integer(2) === 0 ? 80 : 2_400);
  if (kind === 1) {
    // A view that starts at any byte, as a part of a request body does.
    const bytes = Uint8Array.from({ length: start + random.integer(3 * blockBytes) }, () => random.integer(256));
    return {
      what: `bytes from ${start} to ${bytes.length} in blocks of ${blockBytes}`,
      run: (hasher, target) => hasher.hashBytes({ bytes: bytes.subarray(start), blockBytes, ...target }),
    };
  }
  const text = randomText(random, random.integer(3 * blockBytes));
  return {
    what: `text of ${text.length} in blocks of ${blockBytes}`,
    run: (hasher, target) => hasher.hashText({ text, blockBytes, ...target }),
  };
}

test("both kernels give the same results for any run of blocks", () => {
  const random = createSeededRandom(77);
  for (let round = 0; round < 800; round++) {
    const { what, run } = randomRun(random);
    const words = 2 * random.integer(random.integer(4) === 0 ? 4 : 300);
    const parent = { low: random.integer(2 ** 32), high: random.integer(2 ** 32) };
    const [ofWasm, ofJs] = [wasm, js].map((hasher) => {
      const target = { parent, chain: new Uint32Array(words), contents: new Uint32Array(words) };
      return { count: run(hasher, target), ...target };
    });
    expect(ofWasm, `round ${round} of seed 77: ${what}`).toEqual(ofJs);
  }
});

test("both kernels give the same results for any contents and any pieces", () => {
  const random = createSeededRandom(78);
  for (let round = 0; round < 300; round++) {
    const contents = Uint32Array.from({ length: 2 * random.integer(50) }, () => random.integer(2 ** 32));
    const parent = { low: random.integer(2 ** 32), high: random.integer(2 ** 32) };
    const [ofWasm, ofJs] = [wasm, js].map((hasher) => {
      const chain = new Uint32Array(contents.length);
      return { count: hasher.mixContents({ parent, contents, blocks: contents.length / 2, chain }), chain };
    });
    expect(ofWasm, `round ${round} of seed 78`).toEqual(ofJs);

    const hashers = [createTextHasher({ kernel: "wasm" }), createTextHasher({ kernel: "js" })] as const;
    for (let piece = 0; piece < 8; piece++) {
      const text = randomText(random, random.integer(200));
      for (const hasher of hashers) hasher.update(text);
      const [{ low, high }, other] = hashers;
      expect({ low, high }, `round ${round} of seed 78`).toEqual({ low: other.low, high: other.high });
    }
  }
});
