import { isJsonObject, type JsonObject } from "@espalier/core";
import { createTextTrie, type TextTrie } from "./pair-table.ts";
import { type TokenizerPart, tokenizerPart } from "./tokenizer-part.ts";
import { isWhiteSpace, textForPatterns } from "./unicode.ts";

/** A token that is searched in the text itself, before the model sees the rest. */
export interface AddedToken {
  readonly content: string;
  readonly id: number;
  /** Matches only without a word character next to it. */
  readonly singleWord: boolean;
  /** Includes the white space on its left or right. */
  readonly lstrip: boolean;
  readonly rstrip: boolean;
  /** Searched in the normalized text, in normalized form. */
  readonly normalized: boolean;
  readonly special: boolean;
}

/** One added token costs a few hundred bytes; no tokenizer has more than some ten thousand. */
const maxAddedTokens = 262_144;

interface AddedTokenSources {
  /** `tokenizer.json`. */
  readonly tokenizer: JsonObject;
  /** `tokenizer_config.json`; its `added_tokens_decoder` takes precedence over the other file. */
  readonly config: JsonObject;
  /** Ids of the model's own vocabulary. */
  readonly idOf: (content: string) => number | undefined;
  readonly vocabularySize: number;
}

/**
 * The added tokens of both files. As in the reference, a token's id is that of the model's vocabulary if it is there,
 * else the next free one, in the files' order.
 *
 * @throws EspalierError `config_invalid`
 */
export function readAddedTokens({ tokenizer, config, idOf, vocabularySize }: AddedTokenSources): readonly AddedToken[] {
  const listed = tokenizer.added_tokens ?? [];
  if (!Array.isArray(listed)) throw tokenizerPart(tokenizer, "the file").wrong("has no list under added_tokens");
  const inFile = listed.map((entry, index) => writtenToken(tokenizerPart(entry, `added_tokens[${index}]`)));
  const inConfig = Object.entries(isJsonObject(config.added_tokens_decoder) ? config.added_tokens_decoder : {}).map(
    ([id, entry]) => writtenToken(tokenizerPart(entry, `added_tokens_decoder of tokenizer_config.json, ${id}`), id),
  );
  const byContent = new Map<string, Written>();
  for (const group of [inFile, inConfig]) {
    for (const token of group.sort((a, b) => a.writtenId - b.writtenId)) {
      if (token.content !== "") byContent.set(token.content, token);
    }
  }
  if (byContent.size > maxAddedTokens) {
    throw tokenizerPart(tokenizer, "added_tokens").wrong(`has more than ${maxAddedTokens} entries`);
  }
  let nextId = vocabularySize;
  return [...byContent.values()].map(({ writtenId: _, ...token }) => ({
    ...token,
    id: idOf(token.content) ?? nextId++,
  }));
}

type Written = Omit<AddedToken, "id"> & { readonly writtenId: number };

function writtenToken(part: TokenizerPart, key?: string): Written {
  const special = part.flag("special", false);
  return {
    content: part.text("content"),
    singleWord: part.flag("single_word", false),
    lstrip: part.flag("lstrip", false),
    rstrip: part.flag("rstrip", false),
    normalized: part.flag("normalized", !special),
    special,
    writtenId: Number(key ?? part.raw.id),
  };
}

/** A stretch of text between added tokens, or an added token. */
interface TextRun {
  readonly start: number;
  readonly end: number;
  /** -1 for text. */
  readonly id: number;
}

interface TokenFinder {
  /** Divides a text into runs, in order. Runs may omit white space that a token includes. */
  find(text: string): readonly TextRun[];
}

interface TokenFinderOptions {
  readonly tokens: readonly AddedToken[];
  /** The form of a token in the searched text. */
  readonly written: (token: AddedToken) => string;
  /** Treats special tokens in the text as text: `split_special_tokens` of tokenizer_config.json. */
  readonly splitSpecial: boolean;
}

/** Finds the leftmost, longest match of every added token that meets the token's conditions on its surroundings. */
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
        // As in the reference, a match that does not count still uses up its text.
        if ((splitSpecial && token.special) || (token.singleWord && !standsAlone(text, start, found.end))) continue;
        const from = token.lstrip ? Math.max(spaceBefore(text, start), offset) : start;
        const to = token.rstrip ? spaceAfter(text, found.end) : found.end;
        if (offset < from) runs.push({ start: offset, end: from, id: -1 });
        // As in the reference, a token inside the previous one's white space is dropped.
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

/** Whether the text ends in a letter, digit or the like, which prevents a match of a single-word token. */
const endsInWord = (text: string): boolean => wordAtStart.test(textForPatterns(lastCharacter(text)));

/** With `$` instead, a pattern finds no surrogate pair before it in V8 14.6 (Node 26). */
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

/**
 * Each is compared with every added token, and more alternatives slow the search; models have a few hundred special
 * tokens, most of them reserved.
 */
const maxCutTokens = 1_024;

/**
 * Finds where a text can be cut without changing its tokens, whatever text follows: at the end of a special token whose
 * every occurrence is a match. Such a token is searched in the raw text, includes no white space on its right, needs no
 * word boundary, and neither overlaps nor is part of another added token. Text between special tokens is normalized and
 * divided by itself, so nothing composes or merges across such a cut.
 */
export function findCutTokens(
  tokens: readonly AddedToken[],
  splitSpecial: boolean,
): (text: string) => readonly number[] {
  const inText = tokens.filter(({ normalized }) => !normalized);
  const needsWordEnds = tokens.some(({ singleWord }) => singleWord);
  let suitable = inText
    .filter(
      (token) =>
        !splitSpecial &&
        token.special &&
        !token.rstrip &&
        !token.singleWord &&
        !(needsWordEnds && endsInWord(token.content)),
    )
    .slice(0, maxCutTokens);
  // A token at the end of another one is suitable only while that one's end is a cut too.
  for (let before = -1; before !== suitable.length; ) {
    before = suitable.length;
    const disturbed = disturbedContents(inText, suitable);
    suitable = suitable.filter(({ content }) => !disturbed.has(content));
  }
  suitable = suitable.filter(({ content }) => !overlaps(content, content));
  const contents = suitable.map(({ content }) => content);
  if (contents.length === 0) return () => [];
  const prefix = commonPrefix(contents);
  return prefix === "" || contents.includes(prefix) ? searchByPattern(contents) : searchByPrefix(contents, prefix);
}

function searchByPattern(contents: readonly string[]): (text: string) => readonly number[] {
  const pattern = new RegExp(contents.map(escaped).join("|"), "g");
  return (text) => {
    const ends: number[] = [];
    pattern.lastIndex = 0;
    while (pattern.test(text)) ends.push(pattern.lastIndex);
    return ends;
  };
}

/**
 * Most models' special tokens share a prefix (`<|`), and searching for it is faster. None of them is a prefix of
 * another.
 */
function searchByPrefix(contents: readonly string[], prefix: string): (text: string) => readonly number[] {
  const byNext = new Map<number, string[]>();
  for (const content of contents) {
    const next = content.charCodeAt(prefix.length);
    byNext.set(next, [...(byNext.get(next) ?? []), content]);
  }
  return (text) => {
    const ends: number[] = [];
    for (let at = text.indexOf(prefix); at >= 0; at = text.indexOf(prefix, at)) {
      const found = byNext.get(text.charCodeAt(at + prefix.length))?.find((content) => text.startsWith(content, at));
      at += found?.length ?? 1;
      if (found !== undefined) ends.push(at);
    }
    return ends;
  };
}

function commonPrefix(contents: readonly string[]): string {
  let prefix = contents[0] ?? "";
  for (const content of contents) while (!content.startsWith(prefix)) prefix = prefix.slice(0, -1);
  return prefix;
}

/**
 * Contents of candidates that a match of one of `tokens` may hide or extend beyond. Tokens are many and share a prefix,
 * but few contain it again, so only those are compared with candidates one by one.
 */
function disturbedContents(tokens: readonly AddedToken[], candidates: readonly AddedToken[]): ReadonlySet<string> {
  const kept = new Set(candidates.map(({ content }) => content));
  const byStart = new Map<string, string[]>();
  for (const content of kept) {
    const start = content.charAt(0);
    const alike = byStart.get(start);
    if (alike) alike.push(content);
    else byStart.set(start, [content]);
  }
  const disturbed = new Set<string>();
  for (const { content: other } of tokens) {
    for (let length = 1; length < other.length; length++) {
      if (kept.has(other.slice(0, length))) disturbed.add(other.slice(0, length));
    }
    const endsInCut = kept.has(other);
    for (let at = 1; at < other.length; at++) {
      const rest = other.slice(at);
      for (const content of byStart.get(rest.charAt(0)) ?? []) {
        const goesOn = content.length > rest.length && content.startsWith(rest);
        const isWithin = rest.startsWith(content) && !(endsInCut && content === rest);
        if (content !== other && (goesOn || isWithin)) disturbed.add(content);
      }
    }
  }
  return disturbed;
}

/** Whether the end of one is the beginning of the other, without covering all of either. */
function overlaps(first: string, second: string): boolean {
  const start = second.charAt(0);
  for (let at = first.indexOf(start, 1); at > 0; at = first.indexOf(start, at + 1)) {
    if (first.length - at < second.length && second.startsWith(first.slice(at))) return true;
  }
  return false;
}

const escaped = (text: string): string => text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&");
