import type { AddedToken } from "./added-token.ts";
import { endsInWord } from "./token-finder.ts";

/**
 * Each is compared with every added token, and more alternatives make the search slow; models have a few hundred special
 * tokens, most of them reserved.
 */
const maxCutTokens = 1_024;

/**
 * Finds where a text can be cut without changing its tokens, whatever text follows: at the end of a special token that
 * is looked for in the text as it is, takes no white space on its right, needs no word boundary, and neither overlaps
 * nor is part of another added token, so that every place where it is written is a match. Between special tokens a text
 * is normalized and divided on its own, so nothing composes or merges across such a cut.
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
  // A token that another one ends with is fine only as long as the end of that one is a cut too.
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

/** Most models' special tokens start alike (`<|`), and looking for that is faster. None of them starts another one. */
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
 * Contents of candidates that finding one of `tokens` may hide, or go on beyond their ends. Tokens are many and start
 * alike, but few have that start again further on, so only those are compared with candidates one by one.
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

/** Whether the end of one is the beginning of the other, by less than all of either. */
function overlaps(first: string, second: string): boolean {
  const start = second.charAt(0);
  for (let at = first.indexOf(start, 1); at > 0; at = first.indexOf(start, at + 1)) {
    if (first.length - at < second.length && second.startsWith(first.slice(at))) return true;
  }
  return false;
}

const escaped = (text: string): string => text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&");
