import { createSeededRandom, type Random } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { getItem, getSlice, lengthOf } from "../../src/template/access.ts";
import { codePointCount, compareText, replace, split, splitLines, strip } from "../../src/template/text.ts";

const alphabet = ["a", "b", ",", " ", "\n", "\t", "é", "日", "🙂", "\u{1f9d1}", "\ufeff", "\u00a0", "\x1c"];
const textOf = (random: Random, length: number): string =>
  Array.from({ length }, () => alphabet[random.integer(alphabet.length)]).join("");

const each = (rounds: number, seed: number, check: (random: Random, text: string) => void): void => {
  const random = createSeededRandom(seed);
  for (let round = 0; round < rounds; round++) check(random, textOf(random, random.integer(12)));
};

describe("code points", () => {
  test("lengths, elements and slices equal those of the list of code points", () => {
    each(2000, 1, (random, text) => {
      const points = Array.from(text);
      const bound = () => (random.integer(4) === 0 ? null : random.integer(31) - 15);
      const index = random.integer(31) - 15;
      const bounds = { start: bound(), stop: bound(), step: [null, 1, 2, -1, -3][random.integer(5)]! };
      expect(codePointCount(text)).toBe(points.length);
      expect(lengthOf(text)).toBe(points.length);
      expect(getItem(text, index)).toBe(points.at(index));
      expect(getSlice(text, bounds)).toBe(naiveSlice(points, bounds).join(""));
      expect(getSlice(points, bounds)).toEqual(naiveSlice(points, bounds));
    });
  });

  test("order is by code points", () => {
    const sorted = ["", "a", "ab", "b", "é", "日", "\ufeff", "\uffff", "🙂", "🙂a", "\u{10ffff}"];
    for (const [left, a] of sorted.entries()) {
      for (const [right, b] of sorted.entries()) expect(Math.sign(compareText(a, b))).toBe(Math.sign(left - right));
    }
  });
});

/** Python's rule for slices, one index at a time. */
function naiveSlice(
  items: readonly string[],
  bounds: { start: number | null; stop: number | null; step: number | null },
): string[] {
  const step = bounds.step ?? 1;
  const from = (value: number | null, otherwise: number): number =>
    value === null ? otherwise : value < 0 ? value + items.length : value;
  const start = from(bounds.start, step > 0 ? 0 : items.length - 1);
  const stop = bounds.stop === null ? (step > 0 ? items.length : -1) : from(bounds.stop, 0);
  const picked: string[] = [];
  const first = step > 0 ? Math.max(start, 0) : Math.min(start, items.length - 1);
  for (let index = first; step > 0 ? index < stop : index > stop && index >= 0; index += step) {
    if (index >= 0 && index < items.length) picked.push(items[index]!);
  }
  return picked;
}

describe("strip", () => {
  const isSpace = (point: string): boolean => /[\t-\r\x1c-\x20\x85\xa0]/.test(point);

  test("takes Python's white space or the given characters from the ends", () => {
    each(2000, 2, (random, text) => {
      const chars = random.integer(2) === 0 ? null : textOf(random, 3);
      const stripped = (point: string): boolean =>
        chars === null ? isSpace(point) : Array.from(chars).includes(point);
      const points = Array.from(text);
      const left = [...points];
      while (left.length > 0 && stripped(left[0]!)) left.shift();
      const right = [...points];
      while (right.length > 0 && stripped(right.at(-1)!)) right.pop();
      const both = [...left];
      while (both.length > 0 && stripped(both.at(-1)!)) both.pop();
      expect(strip(text, chars, "left")).toBe(left.join(""));
      expect(strip(text, chars, "right")).toBe(right.join(""));
      expect(strip(text, chars, "both")).toBe(both.join(""));
    });
  });

  test("a byte order mark is no white space, as in Python and unlike in JavaScript", () => {
    expect(strip("\ufeffa\ufeff", null, "both")).toBe("\ufeffa\ufeff");
    expect(strip("\u2003\u3000a\u205f", null, "both")).toBe("a");
  });
});

describe("split", () => {
  test("parts joined again are the text, and there are no more than asked for", () => {
    each(2000, 3, (random, text) => {
      const separator = [",", "a", "🙂", "ab"][random.integer(4)]!;
      const limit = random.integer(5) - 1;
      for (const fromRight of [false, true]) {
        const parts = split(text, separator, limit, fromRight);
        expect(parts.join(separator)).toBe(text);
        if (limit >= 0) expect(parts.length).toBeLessThanOrEqual(limit + 1);
        const kept = fromRight ? parts.slice(1) : parts.slice(0, -1);
        for (const part of kept) expect(part.includes(separator)).toBe(false);
      }
    });
  });

  test("at white space no word is empty and none is lost", () => {
    each(2000, 4, (random, text) => {
      const words = split(text, null, -1);
      expect(words.every((word) => word !== "" && !/[\t-\r\x1c-\x20\xa0]/.test(word))).toBe(true);
      expect(words.join("")).toBe(text.replace(/[\t-\r\x1c-\x20\xa0]/g, ""));
      const limit = random.integer(3);
      const first = split(text, null, limit);
      expect(first.slice(0, limit)).toEqual(words.slice(0, limit));
      expect(split(text, null, limit, true).slice(-limit || words.length + 1)).toEqual(
        words.slice(-limit || words.length + 1),
      );
    });
  });

  test("lines end where Python ends them", () => {
    const text = "a\nb\r\nc\rd\ve\ff\x1cg\x1dh\x1ei\x85j\u2028k\u2029l";
    expect(splitLines(text)).toEqual([..."abcdefghijkl"]);
    expect(splitLines(text, true).join("")).toBe(text);
    expect(splitLines("a\n")).toEqual(["a"]);
    expect(splitLines("\n\n")).toEqual(["", ""]);
    expect(splitLines("")).toEqual([]);
  });
});

describe("replace", () => {
  test("equals split and join, with a count too", () => {
    each(2000, 5, (random, text) => {
      const old = [",", "a", "🙂", "b,"][random.integer(4)]!;
      const fresh = ["", "$&", "aa", "🙂"][random.integer(4)]!;
      expect(replace(text, old, fresh, -1)).toBe(text.split(old).join(fresh));
      const count = random.integer(3);
      let expected = "";
      let rest = text;
      for (let done = 0; done < count && rest.includes(old); done++) {
        expected += rest.slice(0, rest.indexOf(old)) + fresh;
        rest = rest.slice(rest.indexOf(old) + old.length);
      }
      expect(replace(text, old, fresh, count)).toBe(expected + rest);
    });
  });

  test("nothing is found between any two code points", () => {
    expect(replace("a🙂", "", "-", -1)).toBe("-a-🙂-");
    expect(replace("a🙂", "", "-", 2)).toBe("-a-🙂");
    expect(replace("", "", "-", -1)).toBe("-");
  });
});
