import { RecencyMap } from "@espalier/common";

/** A span of bytes. */
export interface ByteSpan {
  readonly bytes: Buffer;
  readonly start: number;
  readonly end: number;
}

/** Spans of bytes read as one, without a copy. */
export class ByteKey {
  readonly #spans: readonly ByteSpan[];
  readonly length: number;

  constructor(spans: readonly ByteSpan[]) {
    this.#spans = spans.filter(({ start, end }) => start < end);
    this.length = this.#spans.reduce((sum, { start, end }) => sum + end - start, 0);
  }

  /** One of its bytes. */
  byteAt(at: number): number {
    for (const { bytes, start, end } of this.#spans) {
      if (at < end - start) return bytes[start + at]!;
      at -= end - start;
    }
    throw new RangeError("there is no such byte");
  }

  /** How many bytes from `at` on are those of `other`, up to all of them. */
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

  /** A copy of some of it. */
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

/** How many bytes two spans have in common at their beginning, by binary search. */
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
  /** Undefined for the root only. */
  parent: Node<Value> | undefined;
  /** The bytes after the parent's. */
  bytes: Buffer;
  /** Where it ends, from the beginning of all. */
  readonly end: number;
  /** By their first bytes. */
  readonly children: Map<number, Node<Value>>;
  value: Value | undefined;
  valueBytes: number;
}

/** What a key has in common with those in the tree. */
export interface ByteMatch<Value> {
  /** That of the longest key in the tree which it begins with, of those that were wanted. */
  readonly value: Value | undefined;
  /** How many of its bytes it shares with keys in the tree. */
  readonly shared: number;
}

/** What a node takes in addition to its bytes and its value, in bytes. */
export const nodeBytes = 640;
/** Nodes on the path to a value. Deeper values are not kept. */
export const maxTreeDepth = 1_024;

/**
 * Values by bytes, found by longer bytes that begin with theirs: a radix tree, so that beginnings in common are there once
 * and every byte is compared. It is bounded in bytes; the least recently used goes first, and no node goes before its
 * descendants.
 */
export class ByteTree<Value> {
  readonly #maxBytes: number;
  /** A node is newer than its descendants, so the oldest one has none. */
  readonly #nodes = new RecencyMap<Node<Value>, Node<Value>>();
  readonly #root: Node<Value> = nodeOf(undefined, Buffer.alloc(0), 0);
  #sizeBytes = 0;
  /** How far the last key was walked, which lies in the tree as long as nothing else is kept: it is mostly kept next. */
  #last: { readonly key: ByteKey; readonly walk: Walk<Value> } | undefined;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  /** @param isWanted of several values on the path, the deepest that is wanted is found */
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
   * Keeps a value under the first bytes of a key, in the place of what was there.
   *
   * @param valueBytes what the value takes; one beyond the bound is not kept
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
   * The last node whose bytes a key begins with, the one behind it that it shares some bytes with, and how far: from where
   * an earlier walk with the same key has been.
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

  /** Has a node of its own for the first of another one's bytes. */
  #split(node: Node<Value>, at: number): Node<Value> {
    const { bytes, parent } = node;
    this.#sizeBytes -= at;
    const first = this.#add(parent!, copyOf(bytes.subarray(0, at)));
    node.bytes = copyOf(bytes.subarray(at));
    node.parent = first;
    first.children.set(node.bytes[0]!, node);
    return first;
  }

  /** Makes a node and those before it the newest, itself before them. */
  #use(node: Node<Value>): void {
    for (let at = node; at.parent; at = at.parent) this.#nodes.use(at);
  }

  /** Takes out a node, and those before it that are of no more use. */
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
  /** Nodes on the path to `node`. */
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

/** Without the memory around it. */
function copyOf(bytes: Buffer): Buffer {
  const copy = Buffer.allocUnsafeSlow(bytes.length);
  bytes.copy(copy);
  return copy;
}
