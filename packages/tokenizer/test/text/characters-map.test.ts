import { createSeededRandom } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { readNormalizer } from "../../src/text/normalizer.ts";
import { charactersMap, type Rewritings } from "../support/characters-map.ts";
import { referenceNormalizer } from "../support/reference.ts";

const partOf = (precompiled_charsmap: string): object => ({ type: "Precompiled", precompiled_charsmap });

function normalizerOf(rewritings: Rewritings): (text: string) => string {
  const normalize = readNormalizer(partOf(charactersMap(rewritings)));
  if (!normalize) throw new Error("no normalizer");
  return normalize;
}

test.each<{ name: string; rewritings: Rewritings; from: string; to: string }>([
  { name: "a character", rewritings: { a: "bb" }, from: "aca", to: "bbcbb" },
  { name: "to nothing", rewritings: { a: "" }, from: "aca", to: "c" },
  { name: "nothing that is listed", rewritings: { a: "b" }, from: "xyz", to: "xyz" },
  { name: "a ligature", rewritings: { ﬁ: "fi" }, from: "ﬁne", to: "fine" },
  { name: "beyond the basic plane", rewritings: { 𝐀: "A" }, from: "x𝐀", to: "xA" },
  { name: "a grapheme cluster as a whole", rewritings: { "e\u0301": "é", e: "E" }, from: "e\u0301", to: "E" },
  { name: "a cluster with its own mark", rewritings: { "\u0301": "'" }, from: "e\u0301", to: "e'" },
  { name: "two characters that are no cluster", rewritings: { ab: "X" }, from: "ab", to: "ab" },
  { name: "the end of a line as one", rewritings: { "\r\n": "\n" }, from: "a\r\nb\rc", to: "a\nb\rc" },
  { name: "what was rewritten is not looked up again", rewritings: { a: "b", b: "c" }, from: "ab", to: "bc" },
  { name: "a character that is cut off at its first byte", rewritings: { é: "e" }, from: "è", to: "è" },
])("$name", ({ rewritings, from, to }) => {
  const reference = referenceNormalizer(partOf(charactersMap(rewritings)));
  expect([normalizerOf(rewritings)(from), reference(from)]).toEqual([to, to]);
});

describe("maps of random rewritings rewrite random texts as the reference does", () => {
  const units = [
    "a",
    "b",
    "é",
    "e",
    "\u0301",
    "\u0323",
    "ﬁ",
    "好",
    "か",
    "\u3099",
    "🙂",
    "\u200d",
    "\ufe0f",
    " ",
    "\r\n",
  ];
  units.push("\u1112", "\u1161", "\u11ab", "🇩", "🇪", "क", "\u094d", "ष", "1", "\u20e3");

  test.each([71, 72, 73])("seed %d", (seed) => {
    const random = createSeededRandom(seed);
    const draw = (length: number): string =>
      Array.from({ length }, () => units[random.integer(units.length)]!).join("");
    for (let round = 0; round < 25; round++) {
      const rewritings: Record<string, string> = {};
      for (let count = 1 + random.integer(10); count > 0; count--) {
        rewritings[draw(1 + random.integer(3))] = draw(random.integer(3));
      }
      const ours = normalizerOf(rewritings);
      const reference = referenceNormalizer(partOf(charactersMap(rewritings)));
      for (let repeat = 0; repeat < 20; repeat++) {
        const text = draw(1 + random.integer(20));
        expect(ours(text), `${JSON.stringify(rewritings)} of ${JSON.stringify(text)}`).toBe(reference(text));
      }
    }
  });
});

test("clusters are the same however long the text around them is", () => {
  const rewritings = { "か\u3099": "が", "\u0301": "'", "\r\n": " " };
  const [ours, reference] = [normalizerOf(rewritings), referenceNormalizer(partOf(charactersMap(rewritings)))];
  for (const length of [250, 254, 255, 256, 257, 511, 512, 513]) {
    for (const unit of ["か\u3099", "\r\n", "\u0301", "好か\u3099\u0301"]) {
      const text = "\u3000".repeat(length) + unit.repeat(3);
      expect(ours(text), `${length} before ${JSON.stringify(unit)}`).toBe(reference(text));
    }
  }
  const cluster = `e${"\u0301".repeat(3_000)}`;
  expect(ours(cluster)).toBe(`e${"'".repeat(3_000)}`);
});

test("characters beyond the 4,096 that are remembered are rewritten all the same, again and again", () => {
  const rewritings: Record<string, string> = {};
  for (let point = 0x4e00; point < 0x4e00 + 40; point++) rewritings[String.fromCodePoint(point)] = `<${point}>`;
  const normalize = normalizerOf(rewritings);
  const text = Array.from({ length: 6_000 }, (_, index) => String.fromCodePoint(0x9fff - index)).join("");
  expect(normalize(text)).toBe(text);
  const late = "\u4e00\u4e01\u4e00";
  for (let round = 0; round < 2; round++) expect(normalize(late)).toBe("<19968><19969><19968>");
});

describe("a map that cannot be read", () => {
  /** A header that says so many bytes of trie, and so many bytes behind it. */
  const withHeader = (trieBytes: number, following: number): string => {
    const bytes = Buffer.alloc(4 + following);
    bytes.writeUInt32LE(trieBytes, 0);
    return bytes.toString("base64");
  };
  const problem = "normalizer has a precompiled_charsmap that is cut short or malformed";

  test.each([
    { name: "nothing", map: "" },
    { name: "less than a header", map: "AAA=" },
    { name: "no trie", map: withHeader(0, 8) },
    { name: "a trie of part of a unit", map: withHeader(6, 8) },
    { name: "a trie longer than the file", map: withHeader(12, 8) },
    { name: "no base64", map: "!!!!" },
  ])("$name", ({ map }) => {
    expect(() => readNormalizer(partOf(map))).toThrow(problem);
  });

  test("a trie and no texts behind it is read", () => {
    expect(readNormalizer(partOf(withHeader(8, 8)))?.("abc")).toBe("abc");
  });

  test("16 MiB are read, and one byte more is refused", () => {
    const maxBytes = 16 * 1024 * 1024;
    expect(readNormalizer(partOf(withHeader(4, maxBytes - 4)))?.("a")).toBe("a");
    expect(() => readNormalizer(partOf(withHeader(4, maxBytes - 3)))).toThrow(problem);
  });

  test("a trie that leads outside itself, or a value outside the texts, rewrites nothing", () => {
    const wild = Buffer.from(charactersMap({ a: "b" }), "base64");
    const [root, trieBytes] = [wild.readUInt32LE(4), wild.readUInt32LE(0)];
    for (const unit of [0xffff_ffff, root ^ 0x4000_0000, 0x7fff_fe00]) {
      wild.writeUInt32LE(unit >>> 0, 4);
      expect(readNormalizer(partOf(wild.toString("base64")))?.("aé🙂")).toBe("aé🙂");
    }
    wild.writeUInt32LE(root, 4);
    const value = 4 + 512 * 4;
    expect(wild.readUInt32LE(value)).toBe(0x8000_0000);
    wild.writeUInt32LE(0x8000_0100, value);
    expect(value).toBeLessThan(4 + trieBytes);
    expect(readNormalizer(partOf(wild.toString("base64")))?.("a")).toBe("a");
  });

  test("a text that has no zero byte behind it goes on to the end", () => {
    const map = Buffer.from(charactersMap({ a: "bc" }), "base64");
    expect(readNormalizer(partOf(map.subarray(0, map.length - 1).toString("base64")))?.("a")).toBe("bc");
  });
});
