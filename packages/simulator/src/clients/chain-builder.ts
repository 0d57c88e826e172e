import { blockTokens } from "./workload.ts";

/** The longest segment, in tokens: a place in it and a length up to a block's are mixed as one 32-bit word. */
export const maxSegmentTokens = 2 ** 28;

/** The first room of a buffer, in blocks, where nothing is said about the length. */
const firstBlocks = 32;

export interface ChainBuilderOptions {
  /** Chains of different seeds have nothing in common. The low 32 bits count. */
  readonly seed: number;
  /** Makes room for so many tokens at once; the chain may become longer. */
  readonly expectedTokens?: number;
}

/** A growing text as the chain hashes of its full blocks. */
export interface ChainBuilder {
  readonly tokens: number;
  /** Full blocks. */
  readonly blocks: number;
  /**
   * Adds the first `tokens` tokens of the text that `segment` names. Two chains of one seed that begin with the same
   * segments have the same first hashes, block for block, as far as their contents are the same.
   *
   * @param segment any safe integer
   * @throws RangeError for another number, or for a length that is not a whole number up to `maxSegmentTokens`
   */
  append(segment: number, tokens: number): void;
  /**
   * Forgets all but the first `blocks` full blocks. Costs a copy of them.
   *
   * @throws RangeError when there are fewer
   */
  cut(blocks: number): void;
  /**
   * The hashes of all full blocks so far, two words each, low word first. A view: what it shows never changes, however
   * the chain grows.
   */
  view(): Uint32Array;
}

/** A chain of no tokens yet. Adding to it costs as much as the blocks that become full. */
export function createChainBuilder({ seed, expectedTokens = 0 }: ChainBuilderOptions): ChainBuilder {
  let words = new Uint32Array(2 * Math.max(firstBlocks, Math.floor(expectedTokens / blockTokens)));
  let blocks = 0;
  /** Tokens in the block that is not yet full, and the two lanes of the chain up to them. */
  let open = 0;
  const rootLow = finish(seed ^ 0x6a09e667);
  const rootHigh = finish(seed + 0x3c6ef372);
  let low = rootLow;
  let high = rootHigh;

  const makeRoom = (wanted: number): void => {
    if (2 * wanted <= words.length) return;
    const grown = new Uint32Array(Math.max(2 * wanted, 2 * words.length));
    grown.set(words.subarray(0, 2 * blocks));
    words = grown;
  };
  const mixPieces = (segmentLow: number, segmentHigh: number, tokens: number): void => {
    let offset = 0;
    while (offset < tokens) {
      const length = Math.min(tokens - offset, blockTokens - open);
      const piece = offset * blockTokens + (length - 1);
      low = Math.imul(low ^ segmentLow ^ piece, 0x9e3779b1);
      low ^= low >>> 15;
      high = Math.imul((high + segmentHigh) ^ ((piece << 16) | (piece >>> 16)), 0x85ebca77);
      high ^= high >>> 13;
      offset += length;
      open += length;
      if (open < blockTokens) return;
      // Crossing the lanes makes the pair one 64-bit hash instead of two of 32 bits.
      const crossed = finish(low ^ Math.imul(high, 0xc2b2ae3d));
      high = finish(high + low);
      low = crossed;
      words[2 * blocks] = low;
      words[2 * blocks + 1] = high;
      blocks += 1;
      open = 0;
    }
  };
  return {
    get tokens() {
      return blocks * blockTokens + open;
    },
    get blocks() {
      return blocks;
    },
    append(segment, tokens) {
      checkSegment(segment, tokens);
      makeRoom(blocks + Math.floor((open + tokens) / blockTokens));
      const upper = Math.floor(segment / 2 ** 32);
      const segmentLow = finish(finish(segment >>> 0) ^ upper);
      mixPieces(segmentLow, finish(Math.imul(upper, 0x27d4eb2f) + segmentLow + (segment >>> 0)), tokens);
    },
    cut(kept) {
      if (!(Number.isInteger(kept) && kept >= 0 && kept <= blocks)) {
        throw new RangeError(`there are ${blocks} full blocks, not ${kept}`);
      }
      // Views of the old buffer stay as they are.
      words = words.slice();
      blocks = kept;
      open = 0;
      low = kept === 0 ? rootLow : words[2 * kept - 2]!;
      high = kept === 0 ? rootHigh : words[2 * kept - 1]!;
    },
    view: () => words.subarray(0, 2 * blocks),
  };
}

function checkSegment(segment: number, tokens: number): void {
  if (!Number.isSafeInteger(segment)) throw new RangeError(`segment ${segment} is not a safe integer`);
  if (Number.isInteger(tokens) && tokens >= 0 && tokens <= maxSegmentTokens) return;
  throw new RangeError(`a segment has 0 to ${maxSegmentTokens} tokens, not ${tokens}`);
}

/** The 32-bit finaliser "lowbias32" (Wellons, "Prospecting for Hash Functions", 2018). */
function finish(lane: number): number {
  let mixed = lane ^ (lane >>> 16);
  mixed = Math.imul(mixed, 0x7feb352d);
  mixed ^= mixed >>> 15;
  mixed = Math.imul(mixed, 0x846ca68b);
  return (mixed ^ (mixed >>> 16)) >>> 0;
}
