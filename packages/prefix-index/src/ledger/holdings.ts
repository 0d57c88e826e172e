import type { Hash64 } from "@espalier/core";
import { GrowableWords } from "../table/word-pool.ts";
import { tierNames } from "../tiers.ts";
import type { BlockTree } from "./block-tree.ts";
import { TierCounts, type TierPresence } from "./tier-presence.ts";

/** What an engine holds, node by node, and what follows for the router's blocks. */
export interface Holdings {
  readonly byteLength: number;
  /** The tiers in which the engine has a node, one bit each. */
  tiersOf(id: number): number;
  /** A node without tiers was added to the tree. */
  enter(id: number, parent: number): void;
  /** A node without tiers and children is about to leave the tree. */
  leave(id: number): void;
  /** The engine stored a node in a tier. */
  add(id: number, tier: number): void;
  /** The engine removed a node from a tier. */
  remove(id: number, tier: number): void;
}

/** Holdings if the engine's block size equals the router's. */
export function createWholeHoldings(presence: TierPresence): Holdings {
  return {
    byteLength: 0,
    tiersOf: (id) => presence.tiersOf(id),
    enter() {},
    leave() {},
    add: (id, tier) => presence.gain(id, tier),
    remove: (id, tier) => presence.lose(id, tier),
  };
}

interface PartHoldingsOptions {
  readonly tree: BlockTree;
  readonly presence: TierPresence;
  readonly maxNodes: number;
  /** Nodes per block of the engine, two or more. */
  readonly partsPerBlock: number;
}

/**
 * Holdings if an engine block is several nodes of a path and has its name at the last. Blocks with a common beginning
 * share nodes, so an earlier node is present while any block through it is.
 */
export function createPartHoldings({ tree, presence, maxNodes, partsPerBlock }: PartHoldingsOptions): Holdings {
  const counts = tierNames.map(() => new TierCounts(maxNodes));
  return {
    get byteLength() {
      return counts.reduce((total, count) => total + count.byteLength, 0);
    },
    tiersOf: (id) => presence.tiersOf(id),
    enter() {},
    leave() {},
    add(id, tier) {
      const blocks = counts[tier]!;
      const path = [id];
      for (let node = tree.parentOf(id); path.length < partsPerBlock; node = tree.parentOf(node)) path.push(node);
      for (let node = path.pop(); node !== undefined; node = path.pop()) {
        if (node === id || blocks.of(node) === 0) presence.gain(node, tier);
        if (node !== id) blocks.change(node, 1);
      }
    },
    remove(id, tier) {
      const blocks = counts[tier]!;
      presence.lose(id, tier);
      let node = id;
      for (let part = 1; part < partsPerBlock; part++) {
        node = tree.parentOf(node);
        blocks.change(node, -1);
        if (blocks.of(node) === 0) presence.lose(node, tier);
      }
    },
  };
}

const allTiers = (1 << tierNames.length) - 1;
const wholeShift = 4;
const keyedBit = 0x100;
/**
 * Words of a node: tiers and flags, position in its span, first child, next and previous sibling, the chain hash before
 * its span (low, high), then the tokens.
 */
const field = { tiers: 0, place: 1, child: 2, next: 3, previous: 4, base: 5, tokens: 7 } as const;
const minNodes = 256;

interface SpanOptions {
  readonly tree: BlockTree;
  readonly maxNodes: number;
  readonly tokensPerNode: number;
  /** Nodes per block of the router, two or more. */
  readonly nodesPerBlock: number;
}

interface NodeContent {
  readonly tokens: Uint32Array;
  readonly start: number;
  readonly base: Hash64;
  readonly keyed: boolean;
}

/**
 * Holdings if a router block is several nodes of a path, a span. The block is in a tier if all of them are. Its last
 * node reports it; changes of a node propagate down to the last nodes of its span.
 */
export class SpanHoldings implements Holdings {
  readonly #options: SpanOptions;
  readonly #stride: number;
  readonly #memory: GrowableWords;
  #words: Uint32Array;
  #presence: TierPresence | undefined;
  readonly #stack: number[] = [];

  constructor(options: SpanOptions) {
    this.#options = options;
    this.#stride = field.tokens + options.tokensPerNode;
    this.#memory = new GrowableWords((options.maxNodes + 1) * this.#stride, minNodes * this.#stride);
    this.#words = this.#memory.words;
  }

  /** Sets where changes are reported; the presence needs these holdings first. */
  attach(presence: TierPresence): void {
    this.#presence = presence;
  }

  get byteLength(): number {
    return this.#words.byteLength;
  }

  isLast(id: number): boolean {
    return this.placeOf(id) === this.#options.nodesPerBlock - 1;
  }

  /** Number of nodes before a node in its span. */
  placeOf(id: number): number {
    return this.#words[id * this.#stride + field.place]!;
  }

  /** The position of a child of this node. */
  placeBelow(parent: number): number {
    return parent === 0 ? 0 : (this.placeOf(parent) + 1) % this.#options.nodesPerBlock;
  }

  /** Whether a node or an earlier one in its span has an extra key. */
  isKeyed(id: number): boolean {
    return (this.#words[id * this.#stride + field.tiers]! & keyedBit) !== 0;
  }

  /** The chain hash before the span of a node. */
  baseOf(id: number): Hash64 {
    const at = id * this.#stride + field.base;
    return { low: this.#words[at]!, high: this.#words[at + 1]! };
  }

  /**
   * Records the content of a node: its tokens from `start`, the chain hash before its span, and whether it has a key.
   */
  describe(id: number, { tokens, start, base, keyed }: NodeContent): void {
    const at = id * this.#stride;
    const words = this.#words;
    const { tokensPerNode, tree } = this.#options;
    words[at + field.base] = base.low;
    words[at + field.base + 1] = base.high;
    for (let token = 0; token < tokensPerNode; token++) words[at + field.tokens + token] = tokens[start + token]!;
    const inherits = words[at + field.place] !== 0 && this.isKeyed(tree.parentOf(id));
    if (keyed || inherits) words[at + field.tiers]! |= keyedBit;
  }

  /** Writes the tokens of a node and of the earlier ones in its span to `out`, so that they end at `end`. */
  copyTokens(id: number, out: Uint32Array, end: number): void {
    const { tokensPerNode, tree } = this.#options;
    let node = id;
    for (let to = end - tokensPerNode; ; to -= tokensPerNode) {
      const at = node * this.#stride;
      for (let token = 0; token < tokensPerNode; token++) {
        out[to + token] = this.#words[at + field.tokens + token]!;
      }
      if (this.#words[at + field.place] === 0) return;
      node = tree.parentOf(node);
    }
  }

  tiersOf(id: number): number {
    return this.#words[id * this.#stride + field.tiers]! & allTiers;
  }

  enter(id: number, parent: number): void {
    const stride = this.#stride;
    if ((id + 1) * stride > this.#words.length) {
      this.#memory.ensure(Math.min(this.#memory.maxWords, (id + minNodes + (id >> 6)) * stride));
      this.#words = this.#memory.words;
    }
    const words = this.#words;
    const at = id * stride;
    words[at + field.place] = this.placeBelow(parent);
    const childAt = parent * stride + field.child;
    const next = words[childAt]!;
    words[at + field.next] = next;
    if (next !== 0) words[next * stride + field.previous] = id;
    words[childAt] = id;
  }

  leave(id: number): void {
    const words = this.#words;
    const stride = this.#stride;
    const at = id * stride;
    const next = words[at + field.next]!;
    const previous = words[at + field.previous]!;
    if (next !== 0) words[next * stride + field.previous] = previous;
    if (previous !== 0) words[previous * stride + field.next] = next;
    else words[this.#options.tree.parentOf(id) * stride + field.child] = next;
    words.fill(0, at, at + stride);
  }

  add(id: number, tier: number): void {
    this.#words[id * this.#stride + field.tiers]! |= 1 << tier;
    this.#carryDown(id);
  }

  remove(id: number, tier: number): void {
    this.#words[id * this.#stride + field.tiers]! &= ~(1 << tier);
    this.#carryDown(id);
  }

  /** Updates the tiers in which the span is complete up to a node, and up to its descendants in the same span. */
  #carryDown(from: number): void {
    const words = this.#words;
    const stride = this.#stride;
    const stack = this.#stack;
    stack.push(from);
    for (let id = stack.pop(); id !== undefined; id = stack.pop()) {
      const at = id * stride;
      const state = words[at + field.tiers]!;
      const place = words[at + field.place]!;
      const before =
        place === 0 ? allTiers : words[this.#options.tree.parentOf(id) * stride + field.tiers]! >>> wholeShift;
      const whole = state & before & allTiers;
      const was = (state >>> wholeShift) & allTiers;
      if (whole === was) continue;
      words[at + field.tiers] = (state & ~(allTiers << wholeShift)) | (whole << wholeShift);
      if (place === this.#options.nodesPerBlock - 1) this.#report(id, was, whole);
      else
        for (let child = words[at + field.child]!; child !== 0; ) {
          stack.push(child);
          child = words[child * stride + field.next]!;
        }
    }
  }

  #report(id: number, was: number, is: number): void {
    for (let tier = 0; tier < tierNames.length; tier++) {
      const bit = 1 << tier;
      if ((is & ~was & bit) !== 0) this.#presence?.gain(id, tier);
      else if ((was & ~is & bit) !== 0) this.#presence?.lose(id, tier);
    }
  }
}
