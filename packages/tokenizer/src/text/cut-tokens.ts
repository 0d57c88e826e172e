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
    const kept: ReadonlySet<AddedToken> = new Set(suitable);
    suitable = suitable.filter((token) =>
      inText.every((other) => other === token || !interferes(other.content, token.content, kept.has(other))),
    );
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

/** Whether finding `other` may hide `content`, or go on beyond its end. */
function interferes(other: string, content: string, endsInCut: boolean): boolean {
  if (overlaps(other, content)) return true;
  const at = other.indexOf(content);
  return at >= 0 && !(endsInCut && at + content.length === other.length);
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
