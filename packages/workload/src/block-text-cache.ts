import { blockText } from "./block-text.ts";

/** Texts of blocks that are asked for again and again, the most recently used ones kept. */
export interface BlockTextCache {
  readonly size: number;
  /** The same as `blockText`. */
  text(id: number, wordCount: number): string;
}

/** @param capacity texts to keep, at least 1 */
export function createBlockTextCache(capacity: number): BlockTextCache {
  /** In the order of their last use. */
  const texts = new Map<string, string>();
  return {
    get size() {
      return texts.size;
    },
    text(id, wordCount) {
      const key = `${id}:${wordCount}`;
      const kept = texts.get(key);
      if (kept !== undefined) {
        texts.delete(key);
        texts.set(key, kept);
        return kept;
      }
      const [oldest] = texts.keys();
      if (texts.size >= capacity) texts.delete(oldest!);
      const text = blockText(id, wordCount);
      texts.set(key, text);
      return text;
    },
  };
}
