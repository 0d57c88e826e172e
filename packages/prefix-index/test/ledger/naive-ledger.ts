import type { Hash64 } from "@espalier/core";
import { hashAt, testDigests } from "./helpers.ts";

const tiers = [0, 1, 2, 3];

export interface NaiveBlock {
  readonly name: bigint;
  readonly tokens: readonly number[];
  readonly key: string | undefined;
}

/** A block in the tree of chains. Blocks of the same content below the same parent are the same node. */
interface Node {
  readonly parent: Node | undefined;
  readonly content: string;
  readonly block: NaiveBlock | undefined;
  readonly root: Hash64;
  readonly depth: number;
  readonly children: Map<string, Node>;
  /** Engine hashes that name it, with the tiers of each. */
  readonly names: Map<bigint, Set<number>>;
}

/** A block below an unknown one; without a block it is the unknown one itself. */
interface Floating {
  name: bigint | undefined;
  block: NaiveBlock | undefined;
  parent: Floating | undefined;
  readonly tiers: Set<number>;
  readonly children: Set<Floating>;
}

export interface NaiveOptions {
  readonly engine: number;
  readonly router: number;
  readonly maxFloating: number;
}

const contentOf = ({ tokens, key }: NaiveBlock): string => `${tokens.join()}/${key ?? ""}`;

/** What the ledger does, with maps and objects and no regard for cost: the whole outcome is worked out when asked for. */
export class NaiveLedger {
  readonly #options: NaiveOptions;
  readonly #roots = new Map<string, Node>();
  readonly #named = new Map<bigint, Node>();
  readonly #floatingNamed = new Map<bigint, Floating>();
  /** Unknown blocks above floating ones, the oldest first. */
  readonly #unknown = new Set<Floating>();

  constructor(options: NaiveOptions) {
    this.#options = options;
  }

  clear(): void {
    this.#roots.clear();
    this.#named.clear();
    this.#floatingNamed.clear();
    this.#unknown.clear();
  }

  store(blocks: readonly NaiveBlock[], parent: bigint | undefined, tier: number, adapter?: string): void {
    const node = parent === undefined ? this.#root(adapter) : this.#named.get(parent);
    if (node) this.#storeBelow(node, blocks, tier);
    else this.#float(blocks, parent!, tier);
  }

  /** Whether the name was known. */
  move(name: bigint, tier: number): boolean {
    const node = this.#named.get(name);
    node?.names.get(name)?.add(tier);
    const floating = this.#floatingNamed.get(name);
    if (floating?.block) floating.tiers.add(tier);
    return node !== undefined || floating?.block !== undefined;
  }

  /** Whether the name was in the tier. */
  remove(name: bigint, tier: number): boolean {
    const node = this.#named.get(name);
    const wasHeld = node?.names.get(name)?.delete(tier) ?? false;
    if (wasHeld) this.#tidy(node!);
    const floating = this.#floatingNamed.get(name);
    const wasWaiting = floating?.tiers.delete(tier) ?? false;
    if (wasWaiting) this.#tidyFloating(floating!);
    return wasHeld || wasWaiting;
  }

  /** Gives an unknown block its place: that of the last of these blocks. */
  attach(name: bigint, blocks: readonly NaiveBlock[]): void {
    let node = this.#root(undefined);
    for (const block of blocks) node = this.#child(node, block);
    if (node.names.size === 0) {
      node.names.set(name, new Set());
      this.#named.set(name, node);
    }
    this.#adopt(this.#floatingNamed.get(name)!, node);
  }

  /** The chain hashes of a prompt whose blocks these are, two words each. */
  pathOf(blocks: readonly NaiveBlock[]): number[] {
    let node: Node = { ...this.#root(undefined) };
    return blocks.flatMap((block) => {
      node = { ...node, parent: node, block, depth: node.depth + 1 };
      return [...this.#chain(node)];
    });
  }

  names(): bigint[] {
    return [...this.#named.keys(), ...this.#floatingNamed.keys()];
  }

  unknownNames(): bigint[] {
    return [...this.#unknown].map((floating) => floating.name!);
  }

  floatingCount(): number {
    const count = (record: Floating): number => [...record.children].reduce((sum, child) => sum + count(child), 1);
    return [...this.#unknown].reduce((sum, record) => sum + count(record), 0);
  }

  /** The router's blocks per tier, and the holes with their depths. */
  outcome(): { blocks: Set<bigint>[]; holes: Map<bigint, number>[] } {
    const blocks = tiers.map(() => new Set<bigint>());
    const holes = tiers.map(() => new Map<bigint, number>());
    const places = new Map<bigint, { parent: bigint | undefined; depth: number }>();
    const visit = (node: Node, above: bigint | undefined): void => {
      const hashes = this.#hashesOf(node);
      let parent = above;
      for (const hash of hashes) {
        places.set(hash, { parent, depth: parent === undefined ? 0 : places.get(parent)!.depth + 1 });
        for (const tier of tiers) if (this.#isWhole(node, tier)) blocks[tier]!.add(hash);
        parent = hash;
      }
      for (const child of node.children.values()) visit(child, parent);
    };
    for (const root of this.#roots.values()) for (const node of root.children.values()) visit(node, undefined);
    for (const tier of tiers) {
      for (const hash of blocks[tier]!) {
        let above = places.get(hash)!.parent;
        for (; above !== undefined; above = places.get(above)!.parent) {
          if (!blocks[tier]!.has(above)) holes[tier]!.set(above, places.get(above)!.depth);
        }
      }
    }
    return { blocks, holes };
  }

  #root(adapter: string | undefined): Node {
    const content = adapter ?? "";
    let root = this.#roots.get(content);
    if (!root) {
      const hash = testDigests.root(adapter, undefined);
      root = {
        parent: undefined,
        content,
        block: undefined,
        root: hash,
        depth: -1,
        children: new Map(),
        names: new Map(),
      };
      this.#roots.set(content, root);
    }
    return root;
  }

  #child(parent: Node, block: NaiveBlock): Node {
    const content = contentOf(block);
    let node = parent.children.get(content);
    if (!node) {
      node = {
        parent,
        content,
        block,
        root: parent.root,
        depth: parent.depth + 1,
        children: new Map(),
        names: new Map(),
      };
      parent.children.set(content, node);
    }
    return node;
  }

  #storeBelow(parent: Node, blocks: readonly NaiveBlock[], tier: number): void {
    let above = parent;
    for (const block of blocks) {
      const node = this.#storeOne(above, block, [tier]);
      const floating = this.#floatingNamed.get(block.name);
      if (floating) {
        if (!floating.block || contentOf(floating.block) === contentOf(block)) {
          for (const more of floating.tiers) node.names.get(block.name)!.add(more);
          this.#adopt(floating, node);
        } else this.#forgetFloating(floating);
      }
      above = node;
    }
  }

  #storeOne(parent: Node, block: NaiveBlock, added: Iterable<number>): Node {
    const node = this.#child(parent, block);
    const before = this.#named.get(block.name);
    if (before !== node) {
      // A ghost has one name at most, which a new one replaces.
      for (const [name, held] of node.names) {
        if (held.size > 0) continue;
        node.names.delete(name);
        this.#named.delete(name);
      }
      node.names.set(block.name, new Set());
      this.#named.set(block.name, node);
    }
    for (const tier of added) node.names.get(block.name)!.add(tier);
    if (before && before !== node) {
      before.names.delete(block.name);
      this.#tidy(before);
    }
    return node;
  }

  /** Takes names without tiers from a node, all but the last, then the node if it is for nothing, then its parent. */
  #tidy(node: Node): void {
    for (const [name, held] of node.names) {
      if (held.size > 0 || (node.names.size === 1 && node.children.size > 0)) continue;
      node.names.delete(name);
      this.#named.delete(name);
    }
    if (node.parent === undefined || node.children.size > 0 || node.names.size > 0) return;
    node.parent.children.delete(node.content);
    if ([...node.parent.names.values()].every((held) => held.size === 0)) this.#tidy(node.parent);
  }

  #float(blocks: readonly NaiveBlock[], parent: bigint, tier: number): void {
    const { maxFloating } = this.#options;
    if (blocks.length + 1 > maxFloating) return;
    for (const oldest of this.#unknown) {
      if (this.floatingCount() + blocks.length + 1 <= maxFloating) break;
      this.#dropFloating(oldest);
    }
    let above = this.#floatingNamed.get(parent);
    const first = above;
    if (!above) {
      above = { name: parent, block: undefined, parent: undefined, tiers: new Set(), children: new Set() };
      this.#floatingNamed.set(parent, above);
      this.#unknown.add(above);
    }
    const begun = above;
    for (const [index, block] of blocks.entries()) {
      const known = this.#named.get(block.name);
      if (known) {
        known.names.get(block.name)!.add(tier);
        this.#storeBelow(known, blocks.slice(index + 1), tier);
        break;
      }
      const next = this.#floatOne(above, block, tier);
      if (!next) break;
      above = next;
    }
    if (!first && begun.children.size === 0 && this.#unknown.has(begun)) this.#forgetFloating(begun);
  }

  #floatOne(parent: Floating, block: NaiveBlock, tier: number): Floating | undefined {
    const before = this.#floatingNamed.get(block.name);
    if (before && !before.block) {
      for (let above: Floating | undefined = parent; above; above = above.parent)
        if (above === before) return undefined;
      this.#unknown.delete(before);
      before.block = block;
      before.parent = parent;
      parent.children.add(before);
      before.tiers.add(tier);
      return before;
    }
    if (before?.block && before.parent === parent && contentOf(before.block) === contentOf(block)) {
      before.tiers.add(tier);
      return before;
    }
    const floating: Floating = { name: block.name, block, parent, tiers: new Set([tier]), children: new Set() };
    parent.children.add(floating);
    this.#floatingNamed.set(block.name, floating);
    if (before) {
      before.name = undefined;
      this.#forgetFloating(before);
    }
    return floating;
  }

  /** Moves what is below a floating block to below a node. */
  #adopt(floating: Floating, node: Node): void {
    for (const child of floating.children) {
      let placed: Node;
      if (child.tiers.size > 0) placed = this.#storeOne(node, { ...child.block!, name: child.name! }, child.tiers);
      else {
        placed = this.#child(node, child.block!);
        if (child.name !== undefined && placed.names.size === 0) {
          placed.names.set(child.name, new Set());
          this.#named.set(child.name, placed);
        }
      }
      this.#adopt(child, placed);
    }
    this.#dropFloating(floating);
  }

  #dropFloating(floating: Floating): void {
    for (const child of floating.children) this.#dropFloating(child);
    this.#forgetFloating(floating);
  }

  #forgetFloating(floating: Floating): void {
    if (floating.name !== undefined) this.#floatingNamed.delete(floating.name);
    floating.name = undefined;
    floating.tiers.clear();
    this.#tidyFloating(floating);
  }

  #tidyFloating(floating: Floating): void {
    if (floating.tiers.size > 0 || floating.children.size > 0) return;
    if (floating.name !== undefined) this.#floatingNamed.delete(floating.name);
    this.#unknown.delete(floating);
    floating.parent?.children.delete(floating);
    if (floating.parent) this.#tidyFloating(floating.parent);
    floating.parent = undefined;
  }

  #nodesPerBlock(): number {
    return Math.max(1, this.#options.router / this.#options.engine);
  }

  #isHeld(node: Node, tier: number): boolean {
    return [...node.names.values()].some((held) => held.has(tier));
  }

  #isWhole(node: Node, tier: number): boolean {
    return this.#span(node).every((part) => this.#isHeld(part, tier));
  }

  /** The nodes of a node's router block up to itself. */
  #span(node: Node): Node[] {
    const place = node.depth % this.#nodesPerBlock();
    return place === 0 ? [node] : [...this.#span(node.parent!), node];
  }

  /** The chain hashes that a node stands for: none while its router block is not complete. */
  #hashesOf(node: Node): bigint[] {
    if (node.depth % this.#nodesPerBlock() !== this.#nodesPerBlock() - 1) return [];
    const chain = this.#chain(node);
    return Array.from({ length: chain.length / 2 }, (_, at) => hashAt(chain, at));
  }

  #chain(node: Node): Uint32Array {
    const { engine, router } = this.#options;
    const span = this.#span(node);
    const isLast = span.length === this.#nodesPerBlock();
    const isPlain = isLast && span.every((part) => part.block!.key === undefined);
    const tokens = Uint32Array.from((isPlain ? span : [node]).flatMap((part) => part.block!.tokens));
    const before = isPlain ? span[0]!.parent! : node.parent!;
    const parent = before.depth < 0 ? before.root : lastHash(this.#chain(before));
    const size = isPlain ? router : Math.min(engine, router);
    const contents = new Uint32Array((2 * tokens.length) / size);
    testDigests.contents(tokens, 0, tokens.length, size, contents);
    const { key } = node.block!;
    if (key !== undefined) for (let at = 0; at < contents.length / 2; at++) testDigests.keyed(contents, at, key);
    const chain = new Uint32Array(contents.length);
    testDigests.mix(parent, contents, 0, contents.length / 2, chain);
    return chain;
  }
}

const lastHash = (chain: Uint32Array): Hash64 => ({ low: chain.at(-2)!, high: chain.at(-1)! });
