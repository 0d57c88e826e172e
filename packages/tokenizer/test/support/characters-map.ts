/** Rewritings of a `Precompiled` normalizer by what they rewrite. */
export type Rewritings = Readonly<Record<string, string>>;

const leafFlag = 0x100;
const encoder = new TextEncoder();

interface Node {
  readonly children: Map<number, Node>;
  value: number | undefined;
}

/**
 * The table of SentencePiece in its binary form, in base64: the length of a double-array trie over UTF-8, its units,
 * then the rewritten texts with a zero byte behind each. Children of a node stand at its base xor their byte; the value
 * of a key stands at its node's base, where a zero byte would lead.
 */
export function charactersMap(rewritings: Rewritings): string {
  const texts: number[] = [];
  const root: Node = { children: new Map(), value: undefined };
  for (const [key, text] of Object.entries(rewritings)) {
    let node = root;
    for (const byte of encoder.encode(key)) {
      const next = node.children.get(byte) ?? { children: new Map(), value: undefined };
      node.children.set(byte, next);
      node = next;
    }
    node.value = texts.length;
    texts.push(...encoder.encode(text), 0);
  }
  const units = layOut(root);
  const bytes = Buffer.alloc(4 + units.length * 4 + texts.length);
  bytes.writeUInt32LE(units.length * 4, 0);
  for (const [index, unit] of units.entries()) bytes.writeUInt32LE(unit >>> 0, 4 + index * 4);
  bytes.set(texts, 4 + units.length * 4);
  return bytes.toString("base64");
}

/** Places nodes into blocks of 256 units, each of which starts at a base that nobody else has. */
function layOut(root: Node): readonly number[] {
  const units: number[] = Array<number>(256).fill(0);
  const place = (node: Node, index: number, label: number): void => {
    const base = units.length;
    for (let count = 0; count < 256; count++) units.push(0);
    units[index] = (((base ^ index) << 10) | label | (node.value === undefined ? 0 : leafFlag)) >>> 0;
    if (node.value !== undefined) units[base] = (0x8000_0000 | node.value) >>> 0;
    for (const [byte, child] of node.children) place(child, base ^ byte, byte);
  };
  place(root, 0, 0);
  return units;
}
