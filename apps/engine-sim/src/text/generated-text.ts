import { fnv1aOf, mixWord } from "@espalier/core";
import type { ToolCall } from "./written-text.ts";

/** A generated word and its token. The text is letters and spaces, which JSON does not escape. */
interface Word {
  readonly text: string;
  readonly token: number;
}

/** The words that an engine generates; neither list is empty. */
export interface WordList {
  /** Words that may start an answer. */
  readonly first: readonly Word[];
  /** Words that may follow another word. */
  readonly next: readonly Word[];
}

/** The answer of a simulated engine: one word per position, the same for the same prompt and seed. */
export interface GeneratedText {
  /** The call of a tool whose arguments the text is; absent for content. */
  readonly call?: ToolCall;
  word(index: number): string;
  /** The word as it stands in a JSON string. */
  inJson(index: number): string;
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
  const key = mixWord(promptHash ^ mixWord(seed)) ^ mixWord(choice);
  const at = (index: number): Word => {
    const list = index === 0 ? words.first : words.next;
    return list[mixWord(key + Math.imul(index, 0x9e3779b9)) % list.length] as Word;
  };
  const word = (index: number): string => at(index).text;
  const token = (index: number): number => at(index).token;
  return {
    word,
    inJson: word,
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
 * Number of tokens of an answer without limits: geometric around `meanTokens`, drawn from the prompt.
 *
 * @returns at least 1
 */
export function naturalLength(prompt: Uint32Array, meanTokens: number): number {
  return Math.max(1, Math.ceil(-meanTokens * Math.log(1 - unitDraw(hashTokens(prompt), lengthPurpose))));
}

const commonWords =
  "the and for are but not you all any can had her was one our out day get has him his how man new now old see two way " +
  "who boy did its let put say she too use air arm art ask bad bag bed big bit box bus buy car cat cut dog dry ear " +
  "eat egg end eye far few fit fly fun gas got gun guy hat hit hot ice job key kid law lay led leg lie lot low map may " +
  "men met mix net nor off oil own pay per red run sea set sit six sky son sun tax tea ten top try war wet win won yes yet";

/** Three letters and a space each: one token of four bytes. */
const fourByteWords = commonWords.split(" ").map((word): Word => {
  const text = `${word} `;
  return { text, token: Buffer.from(text, "latin1").readUInt32BE(0) };
});

export const byteWords: WordList = { first: fourByteWords, next: fourByteWords };

/** The functions of a model that the choice of words needs. */
export interface WordProbe {
  /** The tokens of a text alone. */
  text(text: string): Uint32Array;
  /**
   * The tokens of a chat of these turns, the user's first; with the next turn opened when the user's is the last.
   *
   * @throws ApiError when the model has no chat template
   */
  chat(...turns: readonly string[]): Uint32Array;
  decode(tokens: Iterable<number>): string;
}

interface ChosenWords {
  readonly words: WordList;
  /**
   * Whether the tokens of an answer made of these words are the generated ones when it returns as the assistant's turn.
   */
  readonly isRoundTrip: boolean;
}

/** Maximum words tried. */
const maxCandidates = 512;

/** Words in either list. */
const maxWords = 256;

/** With fewer words, answers would hardly differ. */
const minWords = 8;

/** A small word with the mark of a space before it, in byte-level and in SentencePiece vocabularies. */
const wordPattern = /^[\u0120\u2581]([a-z]{2,12})$/;

/**
 * Chooses words that are one token each, with the space before them. The words that may start an answer are found by
 * rendering, because some templates trim it.
 *
 * @param names of the vocabulary, in order of preference
 * @throws RangeError when the vocabulary has too few such words
 */
export function chooseWords(names: Iterable<string>, probe: WordProbe): ChosenWords {
  const candidates: string[] = [];
  for (const name of names) {
    const [, word] = wordPattern.exec(name) ?? [];
    if (word !== undefined) candidates.push(word);
    if (candidates.length === maxCandidates) break;
  }
  const next = followingWords(candidates, probe).slice(0, maxWords);
  if (next.length < minWords) throw new RangeError("tokenizer: the vocabulary has too few words of one token");
  // If a template writes a space before the assistant's text, the text must omit the space of its first token.
  for (const isExact of [true, false]) {
    for (const space of [" ", ""]) {
      const first = firstWords(candidates, { space, isExact, next, probe }).slice(0, maxWords);
      if (first.length >= minWords) return { words: { first, next }, isRoundTrip: true };
    }
  }
  return { words: { first: next, next }, isRoundTrip: false };
}

/** Words that are a single token after another word. */
function followingWords(candidates: readonly string[], probe: WordProbe): Word[] {
  const found: Word[] = [];
  const before = probe.text("so");
  for (const word of candidates) {
    const text = ` ${word}`;
    const tokens = probe.text(`so${text}${text}`);
    const token = tokens[before.length];
    if (token === undefined || tokens.length !== before.length + 2) continue;
    if (startsWith(tokens, [...before, token, token])) found.push({ text, token });
  }
  return found;
}

interface FirstWordOptions {
  /** The text before the first word of an answer. */
  readonly space: string;
  /** Whether the token of the first word must decode to its text. */
  readonly isExact: boolean;
  readonly next: readonly Word[];
  readonly probe: WordProbe;
}

/** Words with which an answer can start so that it is one token, alone and before others. */
function firstWords(candidates: readonly string[], options: FirstWordOptions): Word[] {
  const question = "so it is";
  let prompt: Uint32Array;
  try {
    prompt = options.probe.chat(question);
    // Some templates accept turns of the user only.
    options.probe.chat(question, "so", question);
  } catch {
    return [];
  }
  return candidates
    .map((word, at) => firstWord(options.space + word, { ...options, question, prompt, at }))
    .filter((word) => word !== undefined);
}

function firstWord(
  text: string,
  {
    isExact,
    next,
    probe,
    question,
    prompt,
    at,
  }: FirstWordOptions & { question: string; prompt: Uint32Array; at: number },
): Word | undefined {
  const [second, third] = [next[at % next.length] as Word, next[(at + 1) % next.length] as Word];
  const short = probe.chat(question, text, question);
  const token = short[prompt.length];
  if (token === undefined || !startsWith(short, [...prompt, token])) return undefined;
  if (isExact && probe.decode([second.token, token]) !== probe.decode([second.token]) + text) return undefined;
  const long = probe.chat(question, text + second.text + third.text, question);
  if (!startsWith(long, [...prompt, token, second.token, third.token])) return undefined;
  // The text after the answer has the same tokens for both lengths, so the last word merged with none of it.
  const rest = short.subarray(prompt.length + 1);
  const fits = long.length === prompt.length + 3 + rest.length && endsWith(long, rest);
  return fits ? { text, token } : undefined;
}

const startsWith = (tokens: Uint32Array, beginning: readonly number[]): boolean =>
  beginning.every((token, at) => tokens[at] === token);

const endsWith = (tokens: Uint32Array, end: Uint32Array): boolean =>
  end.every((token, at) => tokens[tokens.length - end.length + at] === token);

/** 32 bits that depend on every token and its place. */
export function hashTokens(tokens: Uint32Array): number {
  return mixWord(fnv1aOf(tokens));
}

/** A number in [0, 1) drawn from a hash, different for each `purpose`. */
export function unitDraw(hash: number, purpose: number): number {
  return mixWord(hash ^ mixWord(purpose)) / 0x1_0000_0000;
}
