import { hashTokens, mixBits, unitDraw } from "./token-hash.ts";

const commonWords =
  "the and for are but not you all any can had her was one our out day get has him his how man new now old see two way " +
  "who boy did its let put say she too use air arm art ask bad bag bed big bit box bus buy car cat cut dog dry ear " +
  "eat egg end eye far few fit fly fun gas got gun guy hat hit hot ice job key kid law lay led leg lie lot low map may " +
  "men met mix net nor off oil own pay per red run sea set sit six sky son sun tax tea ten top try war wet win won yes yet";

/** Three letters and a space each: one token of four bytes. */
const words = commonWords.split(" ").map((word) => `${word} `);
const wordTokens = Uint32Array.from(words, (word) => Buffer.from(word, "latin1").readUInt32BE(0));

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

/**
 * @param seed the caller's seed, or 0
 * @param choice which of the `n` answers to one prompt
 */
export function createGeneratedText(promptHash: number, seed: number, choice: number): GeneratedText {
  const key = mixBits(promptHash ^ mixBits(seed)) ^ mixBits(choice);
  const at = (index: number): number => mixBits(key + Math.imul(index, 0x9e3779b9)) % words.length;
  const word = (index: number): string => words[at(index)] as string;
  const token = (index: number): number => wordTokens[at(index)] as number;
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
