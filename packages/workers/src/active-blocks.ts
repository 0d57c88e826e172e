/** The prompt of a request in flight, in blocks. */
export interface ActivePrompt {
  /** Chain hashes of its full blocks, two words each, low word first. Kept until the request ends: must not change. */
  readonly chain: Uint32Array;
  readonly blockCount: number;
  /** Tokens of a block. */
  readonly blockSize: number;
}

/**
 * Different blocks of one target that are told apart. Beyond it the further blocks of a prompt count as nobody else's, which they
 * mostly are. At 16 tokens a block it is more than the KV memory of any engine, and some 20 MB.
 */
export const maxActiveBlocks = 262_144;

/** The part of the account that one request makes up. */
export interface ActiveShare {
  /** The request is over. Safe to repeat. */
  release(): void;
}

/** Prompt blocks of the requests in flight at one target. A block that several of them have counts once. */
export class ActiveBlocks {
  /** Tokens in them. */
  tokens = 0;
  readonly #maxBlocks: number;
  /** How many requests have each block that is told apart. With a block all those before it in the chain are in it. */
  readonly #counts = new Map<number, number>();

  constructor(maxBlocks: number = maxActiveBlocks) {
    this.#maxBlocks = maxBlocks;
  }

  /** A request is being sent. */
  add(prompt: ActivePrompt): ActiveShare {
    const { chain, blockCount, blockSize } = prompt;
    let block = 0;
    for (; block < blockCount; block++) {
      const key = keyOf(chain, block);
      const count = this.#counts.get(key) ?? 0;
      if (count === 0 && this.#counts.size >= this.#maxBlocks) break;
      if (count === 0) this.tokens += blockSize;
      this.#counts.set(key, count + 1);
    }
    const apart = block;
    this.tokens += (blockCount - apart) * blockSize;
    let isHeld = true;
    return {
      release: () => {
        if (isHeld) this.#remove(prompt, apart);
        isHeld = false;
      },
    };
  }

  /** Tokens of a prompt's blocks that no request in flight has. */
  newTokens({ chain, blockCount, blockSize }: ActivePrompt): number {
    // Where a block is there, all before it are, so that the first one that is not can be found by halving.
    let [low, high] = [0, blockCount];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.#counts.has(keyOf(chain, middle))) low = middle + 1;
      else high = middle;
    }
    return (blockCount - low) * blockSize;
  }

  #remove({ chain, blockCount, blockSize }: ActivePrompt, apart: number): void {
    for (let block = 0; block < apart; block++) {
      const key = keyOf(chain, block);
      const count = this.#counts.get(key)!;
      if (count > 1) {
        this.#counts.set(key, count - 1);
      } else {
        this.#counts.delete(key);
        this.tokens -= blockSize;
      }
    }
    this.tokens -= (blockCount - apart) * blockSize;
  }
}

/** 53 of the hash's 64 bits, which is what a number holds. Two of as many blocks as are told apart share one in 1 of 260,000 cases. */
function keyOf(chain: Uint32Array, block: number): number {
  return (chain[2 * block + 1]! & 0x1f_ffff) * 2 ** 32 + chain[2 * block]!;
}
