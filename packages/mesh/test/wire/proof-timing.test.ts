import { expect, test, vi } from "vitest";
import { encodeProof, maxSecrets, provedSecret, type Transcript } from "../../src/wire/link-frames.ts";

let comparisons = 0;

vi.mock(import("node:crypto"), async (original) => {
  const crypto = await original();
  return {
    ...crypto,
    timingSafeEqual(one, other) {
      comparisons += 1;
      return crypto.timingSafeEqual(one, other);
    },
  };
});

const transcript: Transcript = { dialerHello: Uint8Array.of(1), acceptorHello: Uint8Array.of(2), version: 1 };
const known = ["one", "two", "three", "four"];

test.each([
  ["the first secret", ["one", "a", "b", "c"], "one"],
  ["the last secret", ["a", "b", "c", "four"], "four"],
  ["all of them", known, "one"],
  ["none", ["a", "b", "c", "d"], undefined],
])("a proof of %s is compared with every secret in constant time", (_, proved, expected) => {
  comparisons = 0;
  const frame = encodeProof(proved, "dialer", transcript);
  expect(provedSecret(frame, known, "dialer", transcript)).toBe(expected);
  expect(comparisons).toBe(maxSecrets * maxSecrets);
});
