import fc from "fast-check";
import { expect, test } from "vitest";
import { blockText, wordTokenIds } from "../../src/workload/index.ts";

test("a text has an id for each word, the same word the same id", () => {
  expect(wordTokenIds("")).toEqual([]);
  expect(wordTokenIds("aaa aab aba baa zzz aaa ")).toEqual([512, 513, 538, 1_188, 18_087, 512]);
});

test("texts of different blocks have different ids, and the beginning of a text has the beginning of its ids", () => {
  fc.assert(
    fc.property(fc.maxSafeNat(), fc.maxSafeNat(), (one, other) => {
      fc.pre(one !== other);
      const ids = wordTokenIds(blockText(one, 32));
      expect(ids).toHaveLength(32);
      expect(wordTokenIds(blockText(one, 9))).toEqual(ids.slice(0, 9));
      expect(wordTokenIds(blockText(other, 32))).not.toEqual(ids);
    }),
  );
});

test.each(["Aaa ", "aa", "a b c ", "äaa "])("the text %j is refused", (text) => {
  expect(() => wordTokenIds(text)).toThrow(RangeError);
});
