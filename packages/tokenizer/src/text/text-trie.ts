import { createPairTable, type PairTable } from "./pair-table.ts";

/** A trie over UTF-16 code units. Node 0 is the root. */
export interface TextTrie {
  add(text: string, value: number): void;
  /** The child of `node` by a code unit, or -1. */
  child(node: number, codeUnit: number): number;
  /** What was added with the text that leads to `node`, or -1. */
  valueAt(node: number): number;
  /** Whether any text that was added starts with this code unit. */
  starts(codeUnit: number): boolean;
}

/** @param expected about how many code units the texts have in all */
export function createTextTrie(expected: number): TextTrie {
  const edges: PairTable = createPairTable(expected);
  const firsts = new Uint8Array(0x10000);
  const values: number[] = [-1];
  const child = (node: number, codeUnit: number): number => {
    const slot = edges.find(node, codeUnit);
    return slot < 0 ? -1 : edges.valueAt(slot);
  };
  return {
    add(text, value) {
      let node = 0;
      for (let at = 0; at < text.length; at++) {
        const unit = text.charCodeAt(at);
        let next = child(node, unit);
        if (next < 0) {
          next = values.push(-1) - 1;
          edges.set(node, unit, next, 0);
        }
        node = next;
      }
      if (text.length > 0) firsts[text.charCodeAt(0)] = 1;
      values[node] = value;
    },
    child,
    valueAt: (node) => values[node]!,
    starts: (codeUnit) => firsts[codeUnit] === 1,
  };
}
