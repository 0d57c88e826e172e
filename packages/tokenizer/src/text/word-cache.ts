/** Words of a generation. Two generations of them take some 15 MB. */
const maxWords = 32_768;
/** Longer words come too seldom twice. */
export const maxCachedWordLength = 48;

/** V8 keeps a piece of this length or more as a reference into the text it was cut from, all of which it keeps alive. */
const minSliceLength = 13;

/** What a model made of words that it has seen lately: an id, or several. */
export interface WordCache {
  get(word: string): number | readonly number[] | undefined;
  set(word: string, tokens: number | readonly number[]): void;
  /** How many words it holds. */
  readonly size: number;
}

/** Two generations: what is not used while one fills up is forgotten with the next. */
export function createWordCache(limit = maxWords): WordCache {
  let young = new Map<string, number | readonly number[]>();
  let old = new Map<string, number | readonly number[]>();
  const put = (word: string, tokens: number | readonly number[]): void => {
    if (young.size >= limit) {
      old = young;
      young = new Map();
    }
    young.set(word, tokens);
  };
  return {
    get(word) {
      const found = young.get(word);
      if (found !== undefined) return found;
      const before = old.get(word);
      if (before !== undefined) put(word, before);
      return before;
    },
    set(word, tokens) {
      put(word.length < minSliceLength ? word : Buffer.from(word, "utf16le").toString("utf16le"), tokens);
    },
    get size() {
      return young.size + old.size;
    },
  };
}
