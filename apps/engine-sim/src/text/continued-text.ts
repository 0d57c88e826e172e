import { createGeneratedText, type GeneratedText, hashTokens, type WordList } from "./generated-text.ts";

/** Greedy decoding: an answer that is sent back as the end of its own prompt goes on as it would have gone on. */
export interface ContinuedText {
  readonly text: GeneratedText;
  /** The prompt at which the answer began. */
  readonly prompt: Uint32Array;
  /** Words of the answer that the prompt has already. */
  readonly words: number;
}

interface Sampling {
  readonly words: WordList;
  /** The caller's seed, or 0. */
  readonly seed: number;
  readonly choice: number;
}

/**
 * The rest of the answer to a prompt, whose beginning is given. A last word without the white space at its end is
 * completed first.
 *
 * @param encode tokens of a text alone
 * @returns undefined when the answer to this prompt has another beginning
 */
export function continueText(
  prompt: Uint32Array,
  beginning: string,
  sampling: Sampling,
  encode: (text: string) => Uint32Array,
): ContinuedText | undefined {
  const whole = createGeneratedText({ ...sampling, promptHash: hashTokens(prompt) });
  let words = 0;
  let at = 0;
  while (at < beginning.length && beginning.startsWith(whole.word(words), at)) at += whole.word(words++).length;
  const left = beginning.slice(at);
  const rest = left === "" ? "" : whole.word(words).slice(left.length);
  if (left !== "" && (rest.trim() !== "" || whole.word(words) !== left + rest)) return undefined;
  return { text: startingAt(whole, words, rest === "" ? undefined : { text: rest, encode }), prompt, words };
}

/**
 * As `continueText`, where nothing says at which token of the prompt the answer begins: at the first one from which on
 * the prompt is the answer to what is before.
 */
export function findContinuedText(prompt: Uint32Array, sampling: Sampling): ContinuedText | undefined {
  const known = tokensOf(sampling.words);
  let first = prompt.length;
  while (first > 1 && known.has(prompt[first - 1]!)) first--;
  for (let begin = first; begin < prompt.length; begin++) {
    const whole = createGeneratedText({ ...sampling, promptHash: hashTokens(prompt.subarray(0, begin)) });
    let words = 0;
    while (begin + words < prompt.length && prompt[begin + words] === whole.token(words)) words++;
    if (begin + words < prompt.length) continue;
    return { text: startingAt(whole, words, undefined), prompt: prompt.subarray(0, begin), words };
  }
  return undefined;
}

const tokenSets = new WeakMap<WordList, ReadonlySet<number>>();

function tokensOf(words: WordList): ReadonlySet<number> {
  const tokens = tokenSets.get(words) ?? new Set([...words.first, ...words.next].map(({ token }) => token));
  tokenSets.set(words, tokens);
  return tokens;
}

interface Rest {
  readonly text: string;
  readonly encode: (text: string) => Uint32Array;
}

/** @param rest in place of the first word */
function startingAt(whole: GeneratedText, from: number, rest: Rest | undefined): GeneratedText {
  const word = (index: number): string => (index === 0 && rest ? rest.text : whole.word(from + index));
  const token = (index: number): number =>
    index === 0 && rest ? rest.encode(rest.text)[0]! : whole.token(from + index);
  const places = (count: number): readonly number[] => Array.from({ length: count }, (_, index) => index);
  return {
    word,
    inJson: (index) => JSON.stringify(word(index)).slice(1, -1),
    token,
    text: (count) => places(count).map(word).join(""),
    tokens: (count) => places(count).map(token),
  };
}
