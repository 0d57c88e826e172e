import type { HashChain } from "./hash-chain.ts";

interface TokenChainOptions {
  readonly hashSeed: number;
  readonly blockSize: number;
  readonly promptTokens: Uint32Array;
  /** Tokens that will be generated; room for them is made at once. */
  readonly outputTokens: number;
  readonly adapter: string | undefined;
  readonly cacheSalt: string | undefined;
}

const MULTIPLIER_A = 0x85ebca6b;
const MULTIPLIER_B = 0xc2b2ae35;

/** The tokens of one request with the hashes of their full blocks. */
export class TokenChain implements HashChain {
  readonly promptTokens: number;
  readonly totalTokens: number;
  readonly blockSize: number;
  /** The prompt, then the generated tokens as they come. */
  readonly tokens: Uint32Array;
  readonly lanes: Uint32Array;
  readonly adapter: string | undefined;
  readonly cacheSalt: string | undefined;
  readonly #rootA: number;
  readonly #rootB: number;
  #hashedBlocks = 0;

  /** Copies the prompt, so that the caller may reuse its array. */
  constructor({ hashSeed, blockSize, promptTokens, outputTokens, adapter, cacheSalt }: TokenChainOptions) {
    this.promptTokens = promptTokens.length;
    this.totalTokens = promptTokens.length + outputTokens;
    this.blockSize = blockSize;
    this.tokens = new Uint32Array(this.totalTokens);
    this.tokens.set(promptTokens);
    this.lanes = new Uint32Array(2 * Math.floor(this.totalTokens / blockSize));
    this.adapter = adapter;
    this.cacheSalt = cacheSalt;
    let rootA = finish(hashSeed ^ 0x9e3779b9);
    let rootB = finish(Math.imul(hashSeed, MULTIPLIER_B) + 0x7f4a7c15);
    if (adapter !== undefined || cacheSalt !== undefined) {
      const name = `${adapter?.length ?? -1}:${adapter ?? ""}${cacheSalt === undefined ? "" : `/${cacheSalt}`}`;
      for (let at = 0; at < name.length; at++) {
        rootA = stepA(rootA, name.charCodeAt(at));
        rootB = stepB(rootB, name.charCodeAt(at));
      }
      rootA = finish(rootA ^ rootB);
      rootB = finish(rootB);
    }
    this.#rootA = rootA;
    this.#rootB = rootB;
  }

  hashBlocks(blocks: number): void {
    const { lanes, tokens, blockSize } = this;
    let block = this.#hashedBlocks;
    if (block >= blocks) return;
    let a = block === 0 ? this.#rootA : lanes[2 * block - 2]!;
    let b = block === 0 ? this.#rootB : lanes[2 * block - 1]!;
    let at = block * blockSize;
    for (; block < blocks; block++) {
      for (const end = at + blockSize; at < end; at++) {
        const token = tokens[at]!;
        a = stepA(a, token);
        b = stepB(b, token);
      }
      // Crossing the lanes makes the pair one 64-bit hash instead of two of 32 bits.
      const crossed = finish(a ^ Math.imul(b, MULTIPLIER_A));
      b = finish(b + a);
      a = crossed;
      lanes[2 * block] = a;
      lanes[2 * block + 1] = b;
    }
    this.#hashedBlocks = blocks;
  }
}

function stepA(lane: number, token: number): number {
  const mixed = Math.imul(lane ^ token, MULTIPLIER_A);
  return mixed ^ (mixed >>> 15);
}

function stepB(lane: number, token: number): number {
  const mixed = Math.imul(lane + token, MULTIPLIER_B);
  return mixed ^ (mixed >>> 13);
}

/** The finaliser of MurmurHash3 (Appleby), 32 bits. */
function finish(lane: number): number {
  let mixed = lane ^ (lane >>> 16);
  mixed = Math.imul(mixed, MULTIPLIER_A);
  mixed ^= mixed >>> 13;
  mixed = Math.imul(mixed, MULTIPLIER_B);
  return (mixed ^ (mixed >>> 16)) >>> 0;
}
