import { blockTokens, type SimRequest } from "./workload.ts";

/** Bounds within which the private texts of sessions and turns have distinct names. */
export const maxSessions = 2 ** 28;
/** Turns of a session. */
export const maxTurns = 2 ** 20;
/** Private texts of a turn, the answer among them. */
export const maxOwnTexts = 2 ** 4;

interface ConversationOptions {
  readonly seed: number;
  /** Below `maxSessions`. */
  readonly session: number;
  /** The turn of its first request, below `maxTurns`; 0 by default. */
  readonly turn?: number;
  /** Its final length in tokens, if known. */
  readonly expectedTokens?: number;
}

/** A request with the current prompt. */
interface Asked {
  /** Index of the request, in order of sending. */
  readonly index: number;
  readonly outputTokens: number;
  readonly maxOutputTokens?: number | undefined;
  readonly className: string | undefined;
  readonly adapter?: string | undefined;
}

/** One conversation as it grows: prompt, answer, more prompt, and so on. */
export interface Conversation {
  readonly session: number;
  /** Index of the next request. */
  readonly turn: number;
  /** Prompts and answers so far. */
  readonly tokens: number;
  /** Appends shared text to the prompt. The same name gives the same text. Names are 0 and up. */
  share(name: number, tokens: number): void;
  /**
   * Appends private text that appears in no other turn and no other session.
   *
   * @throws RangeError past `maxOwnTexts` in one turn, counting the answer
   */
  own(tokens: number): void;
  /** Truncates after the last full block within the first `tokens` tokens. */
  cut(tokens: number): void;
  /** Returns the request for the current prompt, appends its answer to the conversation and starts the next turn. */
  ask(asked: Asked): SimRequest;
}

/** @throws RangeError for a session or turn beyond the bound */
export function createConversation(options: ConversationOptions): Conversation {
  const { seed, session, expectedTokens = 0 } = options;
  const chain = createChainBuilder({ seed, expectedTokens });
  let turn = options.turn ?? 0;
  let ownTexts = 0;
  requireBelow("session", session, maxSessions);

  /** Appends a private text. Its name is below 0 and used once. */
  const append = (tokens: number): void => {
    requireBelow("own text", ownTexts, maxOwnTexts);
    requireBelow("turn", turn, maxTurns);
    chain.append(-1 - ((session * maxTurns + turn) * maxOwnTexts + ownTexts), tokens);
    ownTexts += 1;
  };
  return {
    session,
    get turn() {
      return turn;
    },
    get tokens() {
      return chain.tokens;
    },
    share(name, tokens) {
      if (name < 0) throw new RangeError(`a shared text has a name from 0 up, not ${name}`);
      chain.append(name, tokens);
    },
    own: append,
    cut: (tokens) => chain.cut(Math.min(chain.blocks, Math.floor(tokens / blockTokens))),
    ask({ index, outputTokens, maxOutputTokens, className, adapter }) {
      const promptTokens = chain.tokens;
      append(outputTokens);
      const named = {
        ...(maxOutputTokens !== undefined && { maxOutputTokens }),
        ...(className !== undefined && { className }),
        ...(adapter !== undefined && { adapter }),
      };
      const request = { index, session, turn, promptTokens, outputTokens, chain: chain.view(), ...named };
      turn += 1;
      ownTexts = 0;
      return request;
    },
  };
}

function requireBelow(what: string, value: number, limit: number): void {
  if (Number.isInteger(value) && value >= 0 && value < limit) return;
  throw new RangeError(`${what} ${value} is not a whole number below ${limit}`);
}

/** The longest segment, in tokens. A position in it and a length of up to a block are mixed as one 32-bit word. */
export const maxSegmentTokens = 2 ** 28;

/** Initial capacity of a buffer in blocks, when the length is unknown. */
const firstBlocks = 32;

interface ChainBuilderOptions {
  /** Chains with different seeds share no hash. Only the low 32 bits are used. */
  readonly seed: number;
  /** Initial capacity in tokens; the chain may grow beyond it. */
  readonly expectedTokens?: number;
}

/** Builds the chain hashes of a growing text, one per full block. */
export interface ChainBuilder {
  readonly tokens: number;
  /** Full blocks. */
  readonly blocks: number;
  /**
   * Appends the first `tokens` tokens of the text that `segment` names. Two chains with the same seed share their first
   * hashes, block by block, up to where their contents differ.
   *
   * @param segment any safe integer
   * @throws RangeError for any other number, or a length that is not a whole number up to `maxSegmentTokens`
   */
  append(segment: number, tokens: number): void;
  /**
   * Truncates to the first `blocks` full blocks, which it copies.
   *
   * @throws RangeError when there are fewer
   */
  cut(blocks: number): void;
  /**
   * The hashes of all full blocks so far, two words each, low word first. This is a view whose contents never change,
   * even when the chain grows.
   */
  view(): Uint32Array;
}

/** An empty chain. Appending costs time in proportion to the blocks that become full. */
export function createChainBuilder({ seed, expectedTokens = 0 }: ChainBuilderOptions): ChainBuilder {
  let words = new Uint32Array(2 * Math.max(firstBlocks, Math.floor(expectedTokens / blockTokens)));
  let blocks = 0;
  /** Tokens in the last, partial block, and the two words of the chain up to them. */
  let open = 0;
  const rootLow = finish(seed ^ 0x6a09e667);
  const rootHigh = finish(seed + 0x3c6ef372);
  let low = rootLow;
  let high = rootHigh;

  const reserve = (wanted: number): void => {
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
      // Crossing the two words makes the pair one 64-bit hash instead of two of 32 bits.
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
      reserve(blocks + Math.floor((open + tokens) / blockTokens));
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
function finish(word: number): number {
  let mixed = word ^ (word >>> 16);
  mixed = Math.imul(mixed, 0x7feb352d);
  mixed ^= mixed >>> 15;
  mixed = Math.imul(mixed, 0x846ca68b);
  return (mixed ^ (mixed >>> 16)) >>> 0;
}
