import { createSeededRandom } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { type AddedToken, createTokenFinder, readAddedTokens } from "../../src/text/added-tokens.ts";
import { isWhiteSpace } from "../../src/text/unicode.ts";

type Flags = Partial<Omit<AddedToken, "content" | "id">>;

const token = (content: string, flags: Flags = {}, id = 0): AddedToken => ({
  content,
  id,
  singleWord: false,
  lstrip: false,
  rstrip: false,
  normalized: false,
  special: true,
  ...flags,
});

/** The runs of a text as readable pieces: tokens in brackets. */
function runs(text: string, tokens: readonly AddedToken[], splitSpecial = false): readonly string[] {
  const finder = createTokenFinder({ tokens, written: ({ content }) => content, splitSpecial });
  return finder
    .find(text)
    .map(({ start, end, id }) => (id < 0 ? text.slice(start, end) : `[${text.slice(start, end)}]`));
}

describe("a token is found", () => {
  test.each<{ name: string; tokens: readonly AddedToken[]; text: string; wanted: readonly string[] }>([
    { name: "in the midst", tokens: [token("<s>")], text: "a<s>b", wanted: ["a", "[<s>]", "b"] },
    { name: "alone", tokens: [token("<s>")], text: "<s>", wanted: ["[<s>]"] },
    { name: "nowhere", tokens: [token("<s>")], text: "<s", wanted: ["<s"] },
    { name: "in nothing", tokens: [token("<s>")], text: "", wanted: [] },
    { name: "twice in a row", tokens: [token("x")], text: "xx", wanted: ["[x]", "[x]"] },
    { name: "as the longest", tokens: [token("<a"), token("<a>b")], text: "<a>b<a>", wanted: ["[<a>b]", "[<a]", ">"] },
    { name: "leftmost before longest", tokens: [token("ab"), token("bcd")], text: "abcd", wanted: ["[ab]", "cd"] },
    {
      name: "with the space before it",
      tokens: [token("x", { lstrip: true })],
      text: "a \n\u3000xb",
      wanted: ["a", "[ \n\u3000x]", "b"],
    },
    {
      name: "with the space behind it",
      tokens: [token("x", { rstrip: true })],
      text: "ax \tb",
      wanted: ["a", "[x \t]", "b"],
    },
    {
      name: "with all space of the text",
      tokens: [token("x", { lstrip: true, rstrip: true })],
      text: " x ",
      wanted: ["[ x ]"],
    },
    {
      name: "without space that the one before took",
      tokens: [token("x", { lstrip: true, rstrip: true })],
      text: "x x",
      wanted: ["[x ]", "[x]"],
    },
    {
      name: "alone as a word",
      tokens: [token("cat", { singleWord: true })],
      text: "cat concat cats",
      wanted: ["[cat]", " concat cats"],
    },
    {
      name: "beside signs as a word",
      tokens: [token("cat", { singleWord: true })],
      text: "(cat)-cat",
      wanted: ["(", "[cat]", ")-", "[cat]"],
    },
    {
      name: "not beside a digit",
      tokens: [token("cat", { singleWord: true })],
      text: "cat1 2cat _cat",
      wanted: ["cat1 2cat _cat"],
    },
    {
      name: "not beside a mark",
      tokens: [token("cat", { singleWord: true })],
      text: "cat\u0301",
      wanted: ["cat\u0301"],
    },
    {
      name: "not beside a letter beyond the basic plane",
      tokens: [token("-", { singleWord: true })],
      text: "-𝐀-",
      wanted: ["-𝐀-"],
    },
    {
      name: "beside an emoji",
      tokens: [token("cat", { singleWord: true })],
      text: "🙂cat🙂",
      wanted: ["🙂", "[cat]", "🙂"],
    },
  ])("$name", ({ tokens, text, wanted }) => {
    expect(runs(text, tokens)).toEqual(wanted);
  });

  test("but a match that does not count uses up its text", () => {
    const tokens = [token("ab", { singleWord: true }), token("b")];
    expect(runs("abx b", tokens)).toEqual(["abx ", "[b]"]);
  });

  test("unless it is special and those are split, which leaves the others", () => {
    const tokens = [token("<s>"), token("<t>", { special: false })];
    expect(runs("<s><t>", tokens, true)).toEqual(["<s>", "[<t>]"]);
  });
});

/** The definition of finding: at each place the longest token that is written there, if its conditions hold. */
function naiveRuns(text: string, tokens: readonly AddedToken[], splitSpecial: boolean): readonly string[] {
  const found: string[] = [];
  let offset = 0;
  const isWord = (at: number, step: -1 | 1): boolean => {
    const near = step < 0 ? [...text.slice(0, at)].at(-1) : [...text.slice(at)][0];
    return near !== undefined && /^[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]$/u.test(near);
  };
  for (let at = 0; at < text.length; ) {
    const fitting = tokens.filter(({ content }) => text.startsWith(content, at));
    const longest = fitting.toSorted((one, other) => other.content.length - one.content.length)[0];
    if (!longest) {
      at++;
      continue;
    }
    let [start, end] = [at, at + longest.content.length];
    at = end;
    if (splitSpecial && longest.special) continue;
    if (longest.singleWord && (isWord(start, -1) || isWord(end, 1))) continue;
    if (longest.lstrip) while (start > offset && isWhiteSpace(text.charCodeAt(start - 1))) start--;
    if (longest.rstrip) while (end < text.length && isWhiteSpace(text.charCodeAt(end))) end++;
    if (offset < start) found.push(text.slice(offset, start));
    if (start < end) found.push(`[${text.slice(start, end)}]`);
    offset = end;
  }
  if (offset < text.length) found.push(text.slice(offset));
  return found;
}

test("random tokens are found where the definition finds them", () => {
  const random = createSeededRandom(91);
  const alphabet = ["a", "b", "<", ">", " ", "_", "é", "𝐀"];
  const draw = (length: number): string =>
    Array.from({ length }, () => alphabet[random.integer(alphabet.length)]!).join("");
  const flag = (): boolean => random.integer(3) === 0;
  for (let round = 0; round < 400; round++) {
    const contents = new Set(Array.from({ length: 1 + random.integer(5) }, () => `${draw(random.integer(3))}<`));
    // White space in a token meets white space that another one takes: what happens then is compared with the reference.
    const tokens = [...contents]
      .filter((content) => !content.includes(" "))
      .map((content) => token(content, { singleWord: flag(), lstrip: flag(), rstrip: flag(), special: flag() }));
    const splitSpecial = flag();
    const text = draw(random.integer(8)) + [...contents].map((content) => content + draw(random.integer(4))).join("");
    const wanted = naiveRuns(text, tokens, splitSpecial);
    expect(runs(text, tokens, splitSpecial), JSON.stringify({ text, tokens })).toEqual(wanted);
  }
});

describe("the list of added tokens", () => {
  const read = (added_tokens: unknown, decoder?: object, known: Readonly<Record<string, number>> = {}) =>
    readAddedTokens({
      tokenizer: { added_tokens },
      config: decoder ? { added_tokens_decoder: decoder } : {},
      idOf: (content) => known[content],
      vocabularySize: 100,
    });
  const ids = (tokens: readonly AddedToken[]): readonly (readonly [string, number])[] =>
    tokens.map(({ content, id }) => [content, id] as const);

  test.each([undefined, null, []])("%s is none", (list) => {
    expect(read(list)).toEqual([]);
  });

  test("defaults: not special, and normalized unless special", () => {
    const [plain, special] = read([
      { id: 100, content: "a" },
      { id: 101, content: "b", special: true },
    ]);
    expect(plain).toEqual(token("a", { normalized: true, special: false }, 100));
    expect(special).toEqual(token("b", {}, 101));
  });

  test("is in order of the ids written, and takes the next free id for what the vocabulary lacks", () => {
    const tokens = read(
      [
        { id: 105, content: "late" },
        { id: 3, content: "known" },
        { id: 102, content: "early" },
      ],
      undefined,
      { known: 3 },
    );
    expect(ids(tokens)).toEqual([
      ["known", 3],
      ["early", 100],
      ["late", 101],
    ]);
  });

  test("takes those of the configuration behind its own, whose flags it takes over", () => {
    const tokens = read([{ id: 100, content: "a" }], {
      "200": { content: "z", special: true },
      "100": { content: "a", lstrip: true, special: true },
    });
    expect(ids(tokens)).toEqual([
      ["a", 100],
      ["z", 101],
    ]);
    expect(tokens[0]).toMatchObject({ lstrip: true, special: true, normalized: false });
  });

  test.each([null, [], "text"])("a decoder that is %s adds none", (decoder) => {
    expect(read([{ id: 100, content: "a" }], decoder as never)).toHaveLength(1);
  });

  test("a content that stands twice is one token, as the later one says", () => {
    const tokens = read([
      { id: 100, content: "a", lstrip: true },
      { id: 101, content: "a", rstrip: true },
    ]);
    expect(tokens).toHaveLength(1);
    expect(tokens[0]).toMatchObject({ id: 100, lstrip: false, rstrip: true });
  });

  test.each([
    { entry: 5, says: "added_tokens[0] is not an object" },
    { entry: { content: null }, says: "added_tokens[0] has no text under content" },
    {
      entry: { content: "a", special: "yes" },
      says: "added_tokens[0] has a non-boolean special",
    },
    { entry: { content: "a", lstrip: 1 }, says: "a non-boolean lstrip" },
    { entry: { content: "a", rstrip: 1 }, says: "a non-boolean rstrip" },
    { entry: { content: "a", single_word: 1 }, says: "a non-boolean single_word" },
    { entry: { content: "a", normalized: 1 }, says: "a non-boolean normalized" },
  ])("$entry is refused: $says", ({ entry, says }) => {
    expect(() => read([entry])).toThrow(says);
    expect(() => read([], { "7": entry })).toThrow(says.replace("added_tokens[0]", "tokenizer_config.json, 7"));
  });

  test("262,144 of them are read, and one more is refused", () => {
    const list = Array.from({ length: 262_144 }, (_, index) => ({ id: index, content: `<${index}>` }));
    expect(read(list)).toHaveLength(262_144);
    list.push({ id: 262_144, content: "<one more>" });
    expect(() => read(list)).toThrow("added_tokens has more than 262144 entries");
  });
});
