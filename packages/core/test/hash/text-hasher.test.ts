import { createSeededRandom } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { createBlockHasher } from "../../src/hash/block-hasher.ts";
import { createTextHasher, hashOf } from "../../src/hash/text-hasher.ts";
import { fromInteger, naiveDigest, toInteger } from "./naive-hash.ts";

const encode = (text: string): Uint8Array => new TextEncoder().encode(text);
const alphabets = ["abc xyz.", "aé漢😀", "\u0000\u007f\u0080\u07ff\u0800\uffff"];

describe.each(["wasm", "js"] as const)("text hasher, %s kernel", (kernel) => {
  test("after each piece it has the hash of all bytes so far", () => {
    const random = createSeededRandom(4);
    const hasher = createTextHasher({ kernel });
    for (let round = 0; round < 60; round++) {
      hasher.reset();
      let text = "";
      for (let piece = 0; piece < 12; piece++) {
        const letters = [...(alphabets[random.integer(alphabets.length)] ?? "")];
        const length = random.integer(random.integer(4) === 0 ? 300 : 40);
        const added = Array.from({ length }, () => letters[random.integer(letters.length)]).join("");
        hasher.update(random.integer(2) === 0 ? added : encode(added));
        text += added;
        expect(toInteger(hasher)).toBe(naiveDigest(encode(text)));
      }
    }
  });

  test.each([31, 32, 65_504, 65_505, 200_000])("a piece of %i characters", (length) => {
    for (const unit of ["x", "漢", "😀"]) {
      const text = unit.repeat(length).slice(0, length);
      const whole = createTextHasher({ kernel });
      whole.update(text);
      const ofBytes = createTextHasher({ kernel });
      ofBytes.update("");
      ofBytes.update(encode(text));
      expect(toInteger(ofBytes)).toBe(toInteger(whole));
      // The definition takes its time, so only one of the alphabets goes through it.
      if (unit === "漢" && length < 100_000) expect(toInteger(whole)).toBe(naiveDigest(encode(text)));
    }
  });

  test("it does not matter where a content was cut", () => {
    const random = createSeededRandom(5);
    const bytes = Uint8Array.from({ length: 70_000 }, () => random.integer(256));
    const whole = createTextHasher({ kernel });
    whole.update(bytes);
    for (let round = 0; round < 20; round++) {
      const hasher = createTextHasher({ kernel });
      for (let at = 0; at < bytes.length; ) {
        const length = random.integer(round < 10 ? 10_000 : 60) + 1;
        hasher.update(bytes.subarray(at, at + length));
        at += length;
      }
      expect(hasher).toMatchObject({ low: whole.low, high: whole.high });
    }
  });

  test("several hashers may be fed in turn, with blocks hashed in between", () => {
    const hashers = [createTextHasher({ kernel }), createTextHasher({ kernel }), createTextHasher({ kernel })];
    const blocks = createBlockHasher({ kernel });
    const texts = hashers.map(() => "");
    for (let round = 0; round < 30; round++) {
      for (const [index, hasher] of hashers.entries()) {
        const piece = `${round} of ${index}; `.repeat(index + 1);
        hasher.update(piece);
        texts[index] += piece;
        const chain = new Uint32Array(8);
        blocks.hashTokens({ tokens: new Uint32Array(60).fill(round), blockSize: 7, parent: hasher, chain });
      }
    }
    for (const [index, hasher] of hashers.entries()) {
      expect(toInteger(hasher)).toBe(naiveDigest(encode(texts[index] ?? "")));
    }
  });

  test("a surrogate pair that is split between pieces counts as two characters U+FFFD", () => {
    const split = createTextHasher({ kernel });
    split.update("a\ud83d");
    split.update("\ude00b");
    expect(toInteger(split)).toBe(naiveDigest(encode("a\ufffd\ufffdb")));
  });

  test("reset forgets everything, and nothing is a content too", () => {
    const hasher = createTextHasher({ kernel });
    const empty = toInteger(hasher);
    expect(empty).toBe(naiveDigest(new Uint8Array()));
    expect(empty).not.toBe(0n);
    hasher.update("something of more than thirty-two bytes, and a rest");
    hasher.reset();
    expect(toInteger(hasher)).toBe(empty);
    hasher.update("x");
    expect(toInteger(hasher)).toBe(naiveDigest(encode("x")));
  });
});

test("hashOf gives the hash of a string or of its bytes, the same in every process", () => {
  const text = "The trellis carries the tree.";
  expect(hashOf(text)).toEqual(fromInteger(naiveDigest(encode(text))));
  expect(hashOf(encode(text))).toEqual(hashOf(text));
  expect(hashOf(text)).toEqual({ low: 0xa94f5f03, high: 0xea92a1ca });
  expect(hashOf("")).toEqual({ low: 0xaa70258e, high: 0x103f57ec });
});
