import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import { createPromptHasher } from "../src/prompt/prompt-blocks.ts";

const { text: hasher } = createPromptHasher();

function hashOf(...pieces: string[]): string {
  hasher.reset();
  for (const piece of pieces) hasher.update(piece);
  return `${hasher.high} ${hasher.low}`;
}

test("the hash of a text does not depend on where it was cut", () => {
  const random = createSeededRandom(61);
  const text = Array.from({ length: 60_000 }, () => String.fromCharCode(random.integer(0x1_0000))).join("");
  const whole = hashOf(text);
  for (let round = 0; round < 20; round++) {
    const pieces: string[] = [];
    for (let at = 0; at < text.length; ) {
      const length = 1 + random.integer(round < 10 ? 200 : 40_000);
      pieces.push(text.slice(at, at + length));
      at += length;
    }
    expect(hashOf(...pieces)).toBe(whole);
  }
});

test("texts that differ in one code unit, in order or in length differ, lone surrogates included", () => {
  const texts = [
    "",
    "a",
    "b",
    "ab",
    "ba",
    "a\0",
    "\ud800",
    "\udc00",
    "\ufffd",
    "é",
    "e\u0301",
    "a".repeat(32_768),
    "a".repeat(32_769),
  ];
  expect(new Set(texts.map((text) => hashOf(text))).size).toBe(texts.length);
});
