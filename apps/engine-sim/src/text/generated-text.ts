import { hashTokens, mixBits, unitDraw } from "./token-hash.ts";

const commonWords =
  "the and for are but not you all any can had her was one our out day get has him his how man new now old see two way " +
  "who boy did its let put say she too use air arm art ask bad bag bed big bit box bus buy car cat cut dog dry ear " +
  "eat egg end eye far few fit fly fun gas got gun guy hat hit hot ice job key kid law lay led leg lie lot low map may " +
  "men met mix net nor off oil own pay per red run sea set sit six sky son sun tax tea ten top try war wet win won yes yet";

/** A word as it is generated, and the one token that it is. The text is letters and spaces, which JSON takes as they are. */
export interface Word {
  readonly text: string;
  readonly token: number;
}

/** What an engine has to say; neither list is empty. */
export interface WordList {
  /** Words that may start an answer. */
  readonly first: readonly Word[];
  /** Words that may follow another one. */
  readonly next: readonly Word[];
}

/** Three letters and a space each: one token of four bytes. */
const fourByteWords = commonWords.split(" ").map((word): Word => {
  const text = `${word} `;
  return { text, token: Buffer.from(text, "latin1").readUInt32BE(0) };
});

export const byteWords: WordList = { first: fourByteWords, next: fourByteWords };

/** What a simulated engine answers: a word for each position, always the same for the same prompt and seed. */
export interface GeneratedText {
  word(index: number): string;
  /** The token of that word. */
  token(index: number): number;
  /** The first `count` words. */
  text(count: number): string;
  /** The first `count` tokens. */
  tokens(count: number): number[];
}

interface GeneratedTextOptions {
  readonly words: WordList;
  readonly promptHash: number;
  /** The caller's seed, or 0. */
  readonly seed: number;
  /** Which of the `n` answers to one prompt. */
  readonly choice: number;
}

export function createGeneratedText({ words, promptHash, seed, choice }: GeneratedTextOptions): GeneratedText {
  const key = mixBits(promptHash ^ mixBits(seed)) ^ mixBits(choice);
  const at = (index: number): Word => {
    const list = index === 0 ? words.first : words.next;
    return list[mixBits(key + Math.imul(index, 0x9e3779b9)) % list.length] as Word;
  };
  const word = (index: number): string => at(index).text;
  const token = (index: number): number => at(index).token;
  return {
    word,
    token,
    text(count) {
      let text = "";
      for (let index = 0; index < count; index++) text += word(index);
      return text;
    },
    tokens: (count) => Array.from({ length: count }, (_, index) => token(index)),
  };
}

const lengthPurpose = 1;

/**
 * How many tokens an answer would have if nothing limited it: geometric around `meanTokens`, drawn from the prompt.
 *
 * @returns at least 1
 */
export function naturalLength(prompt: Uint32Array, meanTokens: number): number {
  return Math.max(1, Math.ceil(-meanTokens * Math.log(1 - unitDraw(hashTokens(prompt), lengthPurpose))));
}
