import { RecencyMap } from "@espalier/core";

/** A span of bytes. */
export interface ByteSpan {
  readonly bytes: Buffer;
  readonly start: number;
  readonly end: number;
}

/** Several spans of bytes, read as one without a copy. */
export class ByteKey {
  readonly #spans: readonly ByteSpan[];
  readonly length: number;

  constructor(spans: readonly ByteSpan[]) {
    this.#spans = spans.filter(({ start, end }) => start < end);
    this.length = this.#spans.reduce((sum, { start, end }) => sum + end - start, 0);
  }

  byteAt(at: number): number {
    for (const { bytes, start, end } of this.#spans) {
      if (at < end - start) return bytes[start + at]!;
      at -= end - start;
    }
    throw new RangeError("invalid byte");
  }

  /** How many bytes from `at` on equal those of `other`, up to all of them. */
  sameFrom(at: number, other: Buffer): number {
    let same = 0;
    for (const { bytes, start, end } of this.#spans) {
      const length = end - start;
      if (at >= length) {
        at -= length;
        continue;
      }
      const compared = Math.min(length - at, other.length - same);
      const equal = equalBytes(bytes, start + at, other, same, compared);
      same += equal;
      if (equal < compared || same === other.length) break;
      at = 0;
    }
    return same;
  }

  /** Copies a part of the bytes. */
  copy(from: number, to: number): Buffer {
    const copied = Buffer.allocUnsafeSlow(to - from);
    let at = 0;
    let before = 0;
    for (const { bytes, start, end } of this.#spans) {
      const first = start + Math.max(0, from - before);
      const last = Math.min(end, start + to - before);
      if (first < last) at += bytes.copy(copied, at, first, last);
      before += end - start;
    }
    return copied;
  }
}

/** Length of the common prefix of two spans, by binary search. */
function equalBytes(one: Buffer, from: number, other: Buffer, start: number, length: number): number {
  let [same, rest] = [0, length];
  if (other.compare(one, from, from + length, start, start + length) === 0) return length;
  while (rest > 1) {
    const half = rest >> 1;
    const at = start + same;
    const isSame = other.compare(one, from + same, from + same + half, at, at + half) === 0;
    if (isSame) same += half;
    rest = isSame ? rest - half : half;
  }
  return same;
}

interface Node<Value> {
  /** Undefined only for the root. */
  parent: Node<Value> | undefined;
  /** The bytes after the parent's. */
  bytes: Buffer;
  /** Where it ends, counted from the root. */
  readonly end: number;
  /** Children by their first bytes. */
  readonly children: Map<number, Node<Value>>;
  value: Value | undefined;
  valueBytes: number;
}

/** What a key shares with the keys in the tree. */
export interface ByteMatch<Value> {
  /** The value of the longest wanted key in the tree that is a prefix of this key. */
  readonly value: Value | undefined;
  /** How many of its bytes it shares with keys in the tree. */
  readonly shared: number;
}

/** Estimated size of a node in addition to its bytes and its value, in bytes. */
export const nodeBytes = 640;
/** Most nodes on the path to a value. Deeper values are not kept. */
export const maxTreeDepth = 1_024;

/**
 * Values by byte keys, found by longer keys that begin with theirs. A radix tree: it stores common beginnings once and
 * compares every byte. Bounded in bytes; evicts the least recently used node first, and none before its descendants.
 */
export class ByteTree<Value> {
  readonly #maxBytes: number;
  /** A node is newer than its descendants, so the oldest node has none. */
  readonly #nodes = new RecencyMap<Node<Value>, Node<Value>>();
  readonly #root: Node<Value> = nodeOf(undefined, Buffer.alloc(0), 0);
  #sizeBytes = 0;
  /** The path of the last key, valid until something else is kept: that key is usually kept next. */
  #last: { readonly key: ByteKey; readonly walk: Walk<Value> } | undefined;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  /** @param isWanted of several values on the path, the deepest wanted one is found */
  find(key: ByteKey, isWanted: (value: Value) => boolean): ByteMatch<Value> {
    const walk = this.#walkFrom(this.#root, 0, key, key.length);
    this.#last = { key, walk };
    const { node, shared } = walk;
    let value: Value | undefined;
    for (let at: Node<Value> | undefined = node; at && value === undefined; at = at.parent) {
      if (at.value !== undefined && isWanted(at.value)) value = at.value;
    }
    this.#use(node);
    return { value, shared };
  }

  /**
   * Keeps a value under the first bytes of a key, replacing an earlier one.
   *
   * @param valueBytes size of the value; one beyond the bound is not kept
   */
  set(key: ByteKey, length: number, value: Value, valueBytes: number): void {
    const { node: above, child, shared, depth } = this.#walk(key, length);
    if (depth + 2 > maxTreeDepth || length - shared + valueBytes + 2 * nodeBytes > this.#maxBytes) return;
    const isSplit = child !== undefined && shared > above.end;
    let node = isSplit ? this.#split(child, shared - above.end) : above;
    if (shared < length) node = this.#add(node, key.copy(shared, length));
    this.#sizeBytes += valueBytes - node.valueBytes;
    node.value = value;
    node.valueBytes = valueBytes;
    this.#use(node);
    while (this.#sizeBytes > this.#maxBytes) this.#drop(this.#nodes.oldest()![0]);
    const walk = { node, child: undefined, shared: length, depth: depth + Number(isSplit) + Number(shared < length) };
    this.#last = this.#nodes.get(node) ? { key, walk } : undefined;
  }

  /**
   * The last node whose bytes are a prefix of the key, the next node with some bytes in common, and how many. Continues
   * an earlier walk with the same key.
   */
  #walk(key: ByteKey, length: number): Walk<Value> {
    const known = this.#last?.key === key && this.#last.walk.node.end <= length ? this.#last.walk : undefined;
    if (known?.child) return { ...known, shared: Math.min(length, known.shared) };
    return this.#walkFrom(known?.node ?? this.#root, known?.depth ?? 0, key, length);
  }

  #walkFrom(from: Node<Value>, steps: number, key: ByteKey, length: number): Walk<Value> {
    let node = from;
    let depth = steps;
    for (; node.end < length && depth < maxTreeDepth; depth++) {
      const child = node.children.get(key.byteAt(node.end));
      if (!child) break;
      const shared = Math.min(length, node.end + key.sameFrom(node.end, child.bytes));
      if (shared < child.end) return { node, child, shared, depth };
      node = child;
    }
    return { node, child: undefined, shared: node.end, depth };
  }

  #add(parent: Node<Value>, bytes: Buffer): Node<Value> {
    const node = nodeOf(parent, bytes, parent.end + bytes.length);
    parent.children.set(bytes[0]!, node);
    this.#nodes.set(node, node);
    this.#sizeBytes += nodeBytes + bytes.length;
    return node;
  }

  /** Splits a node, so that its first bytes get a node of their own. */
  #split(node: Node<Value>, at: number): Node<Value> {
    const { bytes, parent } = node;
    this.#sizeBytes -= at;
    const first = this.#add(parent!, copyOf(bytes.subarray(0, at)));
    node.bytes = copyOf(bytes.subarray(at));
    node.parent = first;
    first.children.set(node.bytes[0]!, node);
    return first;
  }

  /** Makes a node and then its ancestors the newest. */
  #use(node: Node<Value>): void {
    for (let at = node; at.parent; at = at.parent) this.#nodes.use(at);
  }

  /** Removes a node, and its ancestors that became useless. */
  #drop(node: Node<Value>): void {
    for (let at = node; at.parent; at = at.parent) {
      this.#nodes.delete(at);
      this.#sizeBytes -= nodeBytes + at.bytes.length + at.valueBytes;
      at.parent.children.delete(at.bytes[0]!);
      if (at.parent.children.size > 0 || at.parent.value !== undefined) break;
    }
  }
}

interface Walk<Value> {
  readonly node: Node<Value>;
  readonly child: Node<Value> | undefined;
  readonly shared: number;
  /** Number of nodes on the path to `node`. */
  readonly depth: number;
}

const nodeOf = <Value>(parent: Node<Value> | undefined, bytes: Buffer, end: number): Node<Value> => ({
  parent,
  bytes,
  end,
  children: new Map(),
  value: undefined,
  valueBytes: 0,
});

/** Copies the bytes without the surrounding memory. */
function copyOf(bytes: Buffer): Buffer {
  const copy = Buffer.allocUnsafeSlow(bytes.length);
  bytes.copy(copy);
  return copy;
}
