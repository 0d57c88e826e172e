import type { Word, WordList } from "./generated-text.ts";

/** What is asked of a model to find out what it can say. */
export interface WordProbe {
  /** The tokens of a text alone. */
  text(text: string): Uint32Array;
  /**
   * The tokens of a chat of these turns, the user's first; with the next turn opened when the user's is the last.
   *
   * @throws ApiError when the model cannot take chats
   */
  chat(...turns: readonly string[]): Uint32Array;
  decode(tokens: Iterable<number>): string;
}

export interface ChosenWords {
  readonly words: WordList;
  /** Whether an answer made of them, when it comes back as the assistant's turn, gives the very tokens that were generated. */
  readonly comesBack: boolean;
}

/** Words that are tried. */
const maxCandidates = 512;

/** Words in either list. */
const maxWords = 256;

/** With fewer words than this answers would hardly differ. */
const minWords = 8;

/** A small word with the mark of a space before it, in byte-level and in SentencePiece vocabularies. */
const wordPattern = /^[\u0120\u2581]([a-z]{2,12})$/;

/**
 * Chooses words that are one token each with the space before them. With what an answer may start (some templates trim it)
 * is found out by rendering.
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
  // Where a template writes a space before what the assistant said, the text has to be without the one of its first token.
  for (const isExact of [true, false]) {
    for (const space of [" ", ""]) {
      const first = firstWords(candidates, { space, isExact, next, probe }).slice(0, maxWords);
      if (first.length >= minWords) return { words: { first, next }, comesBack: true };
    }
  }
  return { words: { first: next, next }, comesBack: false };
}

/** Words that are one token of their own after another word. */
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
  /** What stands before the first word of an answer. */
  readonly space: string;
  /** Whether the token of the first word must say what its text says. */
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
    // Some templates put up with the user's turns only.
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
  // What comes after the answer is the same however long it is, so the last word took nothing of it.
  const rest = short.subarray(prompt.length + 1);
  const fits = long.length === prompt.length + 3 + rest.length && endsWith(long, rest);
  return fits ? { text, token } : undefined;
}

const startsWith = (tokens: Uint32Array, beginning: readonly number[]): boolean =>
  beginning.every((token, at) => tokens[at] === token);

const endsWith = (tokens: Uint32Array, end: Uint32Array): boolean =>
  end.every((token, at) => tokens[tokens.length - end.length + at] === token);
