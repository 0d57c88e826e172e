import { expect, test } from "vitest";
import { chooseWords, type WordProbe } from "../src/text/generated-text.ts";

const letters = "abcdefghijklmnopqrstuvwxyz";

/** Words of two letters, as a vocabulary spells them with a space before. */
const names = (count: number, mark = "\u0120"): string[] =>
  Array.from({ length: count }, (_, at) => `${mark}${letters[Math.floor(at / 26)]}${letters[at % 26]}`);

/**
 * A model whose tokens are words with the space before them; a word without a space has a number of its own, and so has
 * every other character.
 */
function wordModel(render: (turns: readonly string[]) => string): WordProbe {
  const known: string[] = [];
  const text = (source: string): Uint32Array =>
    Uint32Array.from(source.match(/ ?[a-z]+|[^a-z]/g) ?? [], (piece) => {
      if (!known.includes(piece)) known.push(piece);
      return known.indexOf(piece);
    });
  return {
    text,
    chat: (...turns) => text(render(turns)),
    decode: (tokens) => Array.from(tokens, (token) => known[token]).join(""),
  };
}

const chatOf = (turns: readonly string[], turn: (text: string) => string): string =>
  turns.map((text) => `[${turn(text)}]\n`).join("") + (turns.length % 2 === 1 ? "[" : "");

test("words keep the space before them where the template leaves answers alone", () => {
  const { words, isRoundTrip } = chooseWords(
    names(50),
    wordModel((turns) => chatOf(turns, (text) => text)),
  );
  expect(isRoundTrip).toBe(true);
  expect(words.next.map(({ text }) => text)).toEqual(names(50).map((name) => name.replace("\u0120", " ")));
  expect(words.first).toEqual(words.next);
});

test("the first word has no space where the template trims answers", () => {
  const { words, isRoundTrip } = chooseWords(
    names(50),
    wordModel((turns) => chatOf(turns, (text) => text.trim())),
  );
  expect(isRoundTrip).toBe(true);
  expect(words.first.map(({ text }) => text)).toEqual(names(50).map((name) => name.slice(1)));
  expect(words.next[0]?.text).toBe(" aa");
});

test("the first word's text has no space where the template writes one, its token has", () => {
  const render = (turns: readonly string[]): string =>
    turns.map((text) => `[: ${text}]\n`).join("") + (turns.length % 2 === 1 ? "[:" : "");
  const model = wordModel(render);
  const { words, isRoundTrip } = chooseWords(names(50), model);
  expect(isRoundTrip).toBe(true);
  expect(words.first[0]?.text).toBe("aa");
  expect(model.decode([words.first[0]?.token ?? 0])).toBe(" aa");
});

test.each([
  ["puts something before answers", (turns: readonly string[]) => chatOf(turns, (text) => `-${text}`)],
  [
    "leaves answers out",
    (turns: readonly string[]) =>
      chatOf(
        turns.filter((_, at) => at % 2 === 0),
        (text) => text,
      ),
  ],
  ["writes answers backwards", (turns: readonly string[]) => chatOf(turns, (text) => [...text].reverse().join(""))],
  ["joins what follows to the last word", (turns: readonly string[]) => `${turns.join("z")}z`],
])("a template that %s gives words all the same", (_what, render) => {
  const { words, isRoundTrip } = chooseWords(names(50), wordModel(render));
  expect(isRoundTrip).toBe(false);
  expect(words.first).toBe(words.next);
  expect(words.next).toHaveLength(50);
});

test("a model without chats gives words all the same", () => {
  const model = wordModel(() => {
    throw new Error("no template");
  });
  expect(chooseWords(names(50), model)).toMatchObject({ isRoundTrip: false });
});

test("at most 512 names are tried and 256 words taken", () => {
  const plain = wordModel((turns) => chatOf(turns, (text) => text));
  const { words } = chooseWords(names(600), plain);
  expect([words.first.length, words.next.length]).toEqual([256, 256]);
  // Of 513 names that look like words, the last one is not looked at.
  const split = wordModel((turns) => chatOf(turns, (text) => text));
  const onlyLast: WordProbe = {
    ...split,
    text: (source) => (source.includes("tt") ? split.text(source) : split.text(`${source}!`)),
  };
  expect(() => chooseWords([...names(505), ...Array<string>(8).fill("\u0120tt")], onlyLast)).toThrow("too few");
});

test("both marks of a space are known, other names are passed over", () => {
  const model = wordModel((turns) => chatOf(turns, (text) => text));
  const spelled = ["the", "\u0120The", "\u0120a", "\u0120it's", "<s>", ...names(10, "\u2581")];
  expect(chooseWords(spelled, model).words.next.map(({ text }) => text)).toEqual(
    names(10).map((name) => name.replace("\u0120", " ")),
  );
});

test("seven words are too few", () => {
  const model = wordModel((turns) => chatOf(turns, (text) => text));
  expect(() => chooseWords(names(7), model)).toThrow(RangeError);
  expect(chooseWords(names(8), model).words.next).toHaveLength(8);
});
