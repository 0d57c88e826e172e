import type { NodeMemory } from "./nodes.ts";

/** Words of a node, and where they are in it. */
const nodeWords = 4;
const [startWord, lastWord] = [1, 3];
const [objectKind, arrayKind] = [1, 2];
/** Keys that are compared with each other, which is quicker for so few than to look them up. */
const comparedKeys = 16;

const compared = new Int32Array(comparedKeys);
const signs = new Int32Array(comparedKeys);

/**
 * The first key that stands twice in one object, at any depth. It reads the nodes as they lie: it has to look at each key of
 * each body.
 *
 * @param textOf the text of a string by its node
 * @returns the node of its second place, or undefined
 */
export function findRepeatedKey(memory: NodeMemory, textOf: (node: number) => string): number | undefined {
  const { words, nodesAt, count } = memory;
  for (let node = 0; node < count; node++) {
    if (words[nodesAt + node * nodeWords] !== objectKind) continue;
    const key = repeatedIn(memory, node, textOf);
    if (key !== undefined) return key;
  }
  return undefined;
}

function repeatedIn(memory: NodeMemory, object: number, textOf: (node: number) => string): number | undefined {
  const { words, nodesAt } = memory;
  const behind = words[nodesAt + object * nodeWords + lastWord]!;
  let names: Set<string> | undefined;
  let keys = 0;
  for (let key = object + 1; key < behind; ) {
    if (keys < comparedKeys) {
      const sign = signOf(memory, key);
      for (let at = 0; at < keys; at++) {
        if (signs[at] !== sign || !isSameText(memory, compared[at]!, key)) continue;
        if (textOf(compared[at]!) === textOf(key)) return key;
      }
      signs[keys] = sign;
      compared[keys++] = key;
    } else {
      names ??= new Set([...compared].map(textOf));
      if (names.size === names.add(textOf(key)).size) return key;
    }
    const value = nodesAt + (key + 1) * nodeWords;
    key = words[value]! <= arrayKind ? words[value + lastWord]! : key + 2;
  }
  return undefined;
}

/** A number that strings which stand for the same bytes have in common, and others mostly do not. */
function signOf({ words, bytes, nodesAt, textsAt }: NodeMemory, node: number): number {
  const at = nodesAt + node * nodeWords;
  const length = words[at + lastWord]!;
  if (length === 0) return 0;
  const from = textsAt + words[at + startWord]! + 1;
  return (length << 16) ^ (bytes[from]! << 8) ^ bytes[from + length - 1]!;
}

/** Whether two strings stand for the same bytes. Halves of surrogate pairs all stand for the same ones, so it may err to yes. */
function isSameText({ words, bytes, nodesAt, textsAt }: NodeMemory, one: number, other: number): boolean {
  const [oneAt, otherAt] = [nodesAt + one * nodeWords, nodesAt + other * nodeWords];
  const length = words[oneAt + lastWord]!;
  if (words[otherAt + lastWord] !== length) return false;
  const from = textsAt + words[oneAt + startWord]! + 1;
  const otherFrom = textsAt + words[otherAt + startWord]! + 1;
  for (let at = 0; at < length; at++) if (bytes[from + at] !== bytes[otherFrom + at]) return false;
  return true;
}
