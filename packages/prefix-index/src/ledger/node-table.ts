import { GrowableWords } from "../table/word-pool.ts";

/** Node numbers have 24 bits, so that a word also has a byte of flags. */
const maxNodes = 0xff_ffff;
/** Marks a released node, in the word of its children. */
const releasedFlag = 0x80;
/** Memory grows by this share, so that little is idle. */
const growthShare = 1 / 64;
const minGrowthNodes = 256;

/**
 * Words of a node: the engine's hash (low, high), the parent's number with the tiers, the children with the flags, and
 * the chain hash (low, high).
 */
export const nodeField = { engine: 0, link: 2, kids: 3, chain: 4 } as const;

/**
 * Nodes as records of words in one array, addressed by number. Node 0 always exists and is never allocated: it is the
 * root, and as a reference it means "none". Numbers of released nodes are reused, the latest first.
 */
export class NodeTable {
  /** Growing replaces it: read it again after `allocate`. */
  words: Uint32Array;
  readonly stride: number;
  /** Number of allocated nodes. */
  live = 0;
  readonly #maxLive: number;
  #memory: GrowableWords;
  /** Numbers from here on were never allocated. */
  #fresh = 1;
  #free = 0;

  /**
   * @param stride words of a record, at least five
   * @param maxLive bound on nodes, at most 2^24 - 2
   */
  constructor(stride: number, maxLive: number) {
    if (maxLive >= maxNodes) throw new RangeError(`A table has at most ${maxNodes - 1} nodes, not ${maxLive}`);
    this.stride = stride;
    this.#maxLive = maxLive;
    this.#memory = new GrowableWords((maxLive + 1) * stride, minGrowthNodes * stride);
    this.words = this.#memory.words;
  }

  get byteLength(): number {
    return this.words.byteLength;
  }

  /** Numbers in use are below this. */
  get end(): number {
    return this.#fresh;
  }

  /** Whether a number below `end` is in use. */
  isLive(id: number): boolean {
    return this.words[id * this.stride + nodeField.kids] !== releasedFlag;
  }

  hasRoomFor(nodes: number): boolean {
    return this.live + nodes <= this.#maxLive;
  }

  /** @returns the number of a node whose words are zero; the caller has checked that there is space */
  allocate(): number {
    this.live++;
    const { stride } = this;
    const id = this.#free;
    if (id !== 0) {
      const at = id * stride;
      this.#free = this.words[at + nodeField.link]!;
      this.words[at + nodeField.link] = 0;
      this.words[at + nodeField.kids] = 0;
      return id;
    }
    const fresh = this.#fresh++;
    if ((fresh + 1) * stride > this.words.length) {
      const grown = fresh + 1 + Math.max(minGrowthNodes, Math.ceil(fresh * growthShare));
      this.#memory.ensure(Math.min(grown * stride, this.#memory.maxWords));
      this.words = this.#memory.words;
    }
    return fresh;
  }

  release(id: number): void {
    const { words, stride } = this;
    const at = id * stride;
    for (let word = at; word < at + stride; word++) words[word] = 0;
    words[at + nodeField.link] = this.#free;
    words[at + nodeField.kids] = releasedFlag;
    this.#free = id;
    this.live--;
  }
}
