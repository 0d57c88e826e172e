import type { AddedToken } from "./added-token.ts";
import { createTextTrie, type TextTrie } from "./text-trie.ts";
import { textForPatterns } from "./unicode-age.ts";
import { isWhiteSpace } from "./white-space.ts";

/** A stretch of text between added tokens, or an added token. */
export interface TextRun {
  readonly start: number;
  readonly end: number;
  /** -1 for text. */
  readonly id: number;
}

export interface TokenFinder {
  /** Divides a text into runs, in order; they may leave out white space that a token takes with it. */
  find(text: string): readonly TextRun[];
}

export interface TokenFinderOptions {
  readonly tokens: readonly AddedToken[];
  /** How a token stands in the text that is searched. */
  readonly written: (token: AddedToken) => string;
  /** Special tokens in the text are text: `split_special_tokens` of tokenizer_config.json. */
  readonly splitSpecial: boolean;
}

/** Leftmost, longest match of every added token, with the conditions that a token sets on its surroundings. */
export function createTokenFinder({ tokens, written, splitSpecial }: TokenFinderOptions): TokenFinder {
  const trie = createTextTrie(tokens.reduce((sum, token) => sum + token.content.length, 0));
  for (const [index, token] of tokens.entries()) trie.add(written(token), index);
  return {
    find(text) {
      const runs: TextRun[] = [];
      let offset = 0;
      let at = 0;
      while (at < text.length) {
        const found = trie.starts(text.charCodeAt(at)) ? longestAt(trie, text, at) : undefined;
        if (!found) {
          at++;
          continue;
        }
        const token = tokens[found.index]!;
        const start = at;
        at = found.end;
        // As in the reference, a match that does not count still uses up its text for others.
        if ((splitSpecial && token.special) || (token.singleWord && !standsAlone(text, start, found.end))) continue;
        const from = token.lstrip ? Math.max(spaceBefore(text, start), offset) : start;
        const to = token.rstrip ? spaceAfter(text, found.end) : found.end;
        if (offset < from) runs.push({ start: offset, end: from, id: -1 });
        // What the token before has taken whole leaves nothing to stand for this one; the reference drops it too.
        if (from < to) runs.push({ start: from, end: to, id: token.id });
        offset = to;
      }
      if (offset !== text.length) runs.push({ start: offset, end: text.length, id: -1 });
      return runs;
    },
  };
}

function longestAt(
  trie: TextTrie,
  text: string,
  start: number,
): { readonly index: number; readonly end: number } | undefined {
  let node = 0;
  let index = -1;
  let end = start;
  for (let at = start; at < text.length; at++) {
    node = trie.child(node, text.charCodeAt(at));
    if (node < 0) break;
    if (trie.valueAt(node) < 0) continue;
    index = trie.valueAt(node);
    end = at + 1;
  }
  return index < 0 ? undefined : { index, end };
}

const wordAtStart = /^[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]/u;

/** Whether the text ends in a letter, digit or the like, which keeps a token that stands alone from matching. */
export const endsInWord = (text: string): boolean => wordAtStart.test(textForPatterns(lastCharacter(text)));

/** A pattern with `$` in place of this finds no pair of surrogates before it in V8 14.6 (Node 26). */
function lastCharacter(text: string): string {
  const pair = text.slice(-2);
  return (pair.codePointAt(0) ?? 0) > 0xffff ? pair : text.slice(-1);
}

function standsAlone(text: string, start: number, end: number): boolean {
  return !endsInWord(text.slice(0, start)) && !wordAtStart.test(textForPatterns(text.slice(end, end + 2)));
}

function spaceBefore(text: string, end: number): number {
  let at = end;
  while (at > 0 && isWhiteSpace(text.charCodeAt(at - 1))) at--;
  return at;
}

function spaceAfter(text: string, start: number): number {
  let at = start;
  while (at < text.length && isWhiteSpace(text.charCodeAt(at))) at++;
  return at;
}
