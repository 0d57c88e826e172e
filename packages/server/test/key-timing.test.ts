import { createHash } from "node:crypto";
import { expect, test, vi } from "vitest";
import { authenticate } from "../src/data-plane/data-plane-app.ts";

/** Lengths of what was compared, in bytes. */
const compared: number[] = [];

vi.mock(import("node:crypto"), async (original) => {
  const crypto = await original();
  return {
    ...crypto,
    timingSafeEqual(one, other) {
      compared.push(one.byteLength);
      return crypto.timingSafeEqual(one, other);
    },
  };
});

const texts = Array.from({ length: 50 }, (_, index) => `key-of-tenant-${index}`);
const keys = texts.map((text) => ({ name: text, sha256: createHash("sha256").update(text).digest() }));

test.each([
  ["the first key", texts[0]!],
  ["the last key", texts.at(-1)!],
  ["nearly a key", `${texts[0]!.slice(0, -1)}x`],
  ["the beginning of a key", "key-of-tenant-"],
  ["nothing like a key", "x".repeat(4_000)],
])("%s is compared with every key, digest by digest, in constant time", (_, presented) => {
  compared.length = 0;
  let name: string | undefined;
  try {
    name = authenticate(keys, { authorization: `Bearer ${presented}` });
  } catch {}
  expect(name).toBe(texts.includes(presented) ? presented : undefined);
  expect(compared).toEqual(keys.map(() => 32));
});
