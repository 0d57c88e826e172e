import type { Hash64 } from "@espalier/prefix-index";
import type { TextTokenizer } from "../text/text-tokenizer.ts";
import { createHashedCache, type TextKey } from "./hashed-cache.ts";
import { createBlockBuilder, noBlocks, type PromptBlocks, type PromptHasher } from "./prompt-blocks.ts";

export interface PromptEncoderOptions {
  readonly tokenizer: TextTokenizer;
  readonly hasher: PromptHasher;
  /** Tokens in a block. */
  readonly blockSize: number;
  /** Bound of the prefix states, in bytes (64 MiB). A state takes about half a byte for each token before it, and 640 bytes more. */
  readonly stateBytes?: number;
  /** Bound of the tokens of pieces of text, in bytes (64 MiB): four for each token, and 400 for each piece. */
  readonly pieceBytes?: number;
}

const defaultStateBytes = 64 * 1024 * 1024;
const defaultPieceBytes = 64 * 1024 * 1024;
/** What a typed array takes in addition to its contents, in bytes: two objects and memory of its own (measured in V8 11.3). */
const arrayBytes = 240;
/** Cuts of one text that count. Only a text of little but special tokens has more. */
export const maxCuts = 16_384;
/**
 * A cut counts when it is that many characters after the one before. Chats have two special tokens between messages,
 * and a second cut there would cost as much as a message and gain nothing. Whether a cut counts depends only on the text
 * before it, so a longer text has the same ones.
 */
const minPieceLength = 32;

/** The text between two cuts, with its tokens once they are known. */
export interface PromptPiece {
  readonly text: string;
  /** Whether it starts the text. */
  readonly isFirst: boolean;
  readonly key: TextKey;
  tokens: Uint32Array | undefined;
}

/** What is known of a prompt, and what is left to tokenise. */
export interface PromptPlan {
  /** The prompt up to the deepest cut that was seen before. */
  readonly known: PromptBlocks;
  /** Where in the text that is, in characters. */
  readonly knownLength: number;
  /** What follows up to the last cut. The tokens of a piece are written there. */
  readonly pieces: readonly PromptPiece[];
  /** What follows the last cut. */
  readonly tail: PromptPiece | undefined;
  /** Identifies the text up to its last cut; undefined when it has none, or the text before it is not at hand. */
  readonly lastCut: TextKey | undefined;
  readonly addSpecialTokens: boolean;
}

/** A prompt up to a cut. */
export interface PromptBeginning {
  readonly blocks: PromptBlocks;
  /** Where the cut is, in characters of the plan's text. */
  readonly length: number;
}

/**
 * From text to blocks of tokens. What a prompt has in common with an earlier one up to a cut is recognised by its hash,
 * and only what is new is tokenised; of that, pieces that other prompts had (system prompts, shared documents) come from
 * a second cache. A cut is the end of a special token, where the tokens before depend on nothing that follows.
 */
export interface PromptEncoder {
  /** Looks up what is known of a text. `addSpecialTokens` as for the tokenizer. */
  plan(text: string, addSpecialTokens: boolean): PromptPlan;
  /**
   * The same for a prompt of which the beginning is known and only the rest of the text at hand.
   *
   * @param known up to a cut
   */
  planAfter(known: PromptBlocks, text: string): PromptPlan;
  /** Tokenises here what a plan lacks, then finishes it. */
  encode(plan: PromptPlan): PromptBlocks;
  /**
   * Joins a plan whose pieces have all their tokens, and remembers what it learned.
   *
   * @throws TypeError when a piece has none
   */
  finish(plan: PromptPlan): PromptBlocks;
  /** What is known without tokenising: the prompt up to the first piece that has no tokens. */
  beginning(plan: PromptPlan): PromptBlocks;
  /**
   * The beginning of a prompt up to the last cut within the first `length` characters of its plan's text.
   *
   * @param whole what the plan came to
   * @returns and where that cut is; undefined when it is before what was known
   */
  until(plan: PromptPlan, whole: PromptBlocks, length: number): PromptBeginning | undefined;
  /** The last cut within the first `length` characters of a text, or 0. */
  cutWithin(text: string, length: number): number;
  /** A prompt that came as tokens. */
  fromTokens(tokens: Uint32Array): PromptBlocks;
  /** The chain of a prompt's full blocks from a root, two words for each block. */
  chain(prompt: PromptBlocks, root: Hash64): Uint32Array;
  /** What the caches hold, in bytes. */
  readonly cachedBytes: number;
}

/**
 * Makes an encoder with empty caches.
 *
 * @throws RangeError when the block size is not a positive whole number
 */
export function createPromptEncoder(options: PromptEncoderOptions): PromptEncoder {
  const { tokenizer, hasher, blockSize } = options;
  if (!Number.isInteger(blockSize) || blockSize < 1) throw new RangeError(`blockSize is ${blockSize}`);
  const blocks = createBlockBuilder({ hasher, blockSize });
  const states = createHashedCache<PromptBlocks>(options.stateBytes ?? defaultStateBytes);
  const pieces = createHashedCache<Uint32Array>(options.pieceBytes ?? defaultPieceBytes);
  const before = blocks.append(noBlocks, [Uint32Array.from(tokenizer.surroundings.before)]);
  const after = [Uint32Array.from(tokenizer.surroundings.after)];

  const pieceOf = (text: string, start: number, end: number, isFirst: boolean): PromptPiece => {
    const piece = text.slice(start, end);
    hasher.text.reset();
    hasher.text.update(piece);
    const key = { low: hasher.text.low, high: hasher.text.high, length: variantLength(piece.length, isFirst) };
    return { text: piece, isFirst, key, tokens: pieces.get(key) };
  };

  const piecesBetween = (
    text: string,
    ends: readonly number[],
    startsPrompt: boolean,
  ): Pick<PromptPlan, "pieces" | "tail"> => {
    const piece = (start: number, end: number): PromptPiece => pieceOf(text, start, end, startsPrompt && start === 0);
    const last = ends.at(-1)!;
    return {
      pieces: ends.slice(1).map((end, index) => piece(ends[index]!, end)),
      tail: last < text.length ? piece(last, text.length) : undefined,
    };
  };

  const plan = (text: string, addSpecialTokens: boolean): PromptPlan => {
    const cuts = spacedCuts(tokenizer.cuts(text));
    const prefixes = prefixKeys(hasher, text, cuts, addSpecialTokens);
    let depth = cuts.length;
    let known: PromptBlocks | undefined;
    while (!known && depth > 0) known = states.get(prefixes[--depth]!);
    const ends = known ? cuts.slice(depth) : [0, ...cuts];
    return {
      known: known ?? (addSpecialTokens ? before : noBlocks),
      knownLength: ends[0]!,
      ...piecesBetween(text, ends, true),
      lastCut: prefixes.at(-1),
      addSpecialTokens,
    };
  };
  const planAfter = (known: PromptBlocks, text: string): PromptPlan => {
    const ends = [0, ...spacedCuts(tokenizer.cuts(text))];
    const pieced = piecesBetween(text, ends, false);
    return { known, knownLength: 0, ...pieced, lastCut: undefined, addSpecialTokens: false };
  };

  const learn = (piece: PromptPiece): Uint32Array => {
    const tokens = tokensOf(piece);
    pieces.set(piece.key, tokens, sizeOf(tokens));
    return tokens;
  };
  const finish = (planned: PromptPlan): PromptBlocks => {
    if (!planned.lastCut && !planned.addSpecialTokens) {
      const all = planned.pieces.map(learn);
      if (planned.tail) all.push(learn(planned.tail));
      return blocks.append(planned.known, all);
    }
    const atCut = blocks.append(planned.known, planned.pieces.map(learn));
    if (planned.lastCut && planned.pieces.length > 0) {
      states.set(planned.lastCut, atCut, sizeOf(atCut.contents) + sizeOf(atCut.leftover));
    }
    const rest = planned.tail ? [learn(planned.tail)] : [];
    return blocks.append(atCut, planned.addSpecialTokens ? [...rest, ...after] : rest);
  };
  const encode = (planned: PromptPlan): PromptBlocks => {
    for (const piece of unknownPieces(planned)) piece.tokens = tokenizer.encodePiece(piece.text, piece.isFirst);
    return finish(planned);
  };
  return {
    plan,
    planAfter,
    until({ known, knownLength, pieces: planned }, whole, length) {
      if (knownLength > length) return undefined;
      let [end, tokenCount] = [knownLength, known.tokenCount];
      const open = [known.leftover];
      for (const piece of planned) {
        if (end + piece.text.length > length) break;
        const tokens = tokensOf(piece);
        end += piece.text.length;
        tokenCount += tokens.length;
        open.push(tokens);
      }
      const contents = whole.contents.subarray(0, 2 * Math.floor(tokenCount / blockSize));
      return { blocks: { tokenCount, contents, leftover: lastOf(open, tokenCount % blockSize) }, length: end };
    },
    encode,
    finish,
    beginning({ known, pieces: planned }) {
      const end = planned.findIndex(({ tokens }) => !tokens);
      return blocks.append(known, planned.slice(0, end < 0 ? planned.length : end).map(learn));
    },
    cutWithin: (text, length) => tokenizer.cuts(text.slice(0, length)).at(-1) ?? 0,
    fromTokens: (tokens) => blocks.append(noBlocks, [tokens]),
    chain: blocks.chain,
    get cachedBytes() {
      return states.sizeBytes + pieces.sizeBytes;
    },
  };
}

/** Pieces without tokens, in order. */
export function unknownPieces({ pieces, tail }: PromptPlan): readonly PromptPiece[] {
  const unknown = pieces.filter(({ tokens }) => !tokens);
  return tail && !tail.tokens ? [...unknown, tail] : unknown;
}

function tokensOf({ tokens }: PromptPiece): Uint32Array {
  if (!tokens) throw new TypeError("a piece of the prompt has not been tokenised");
  return tokens;
}

/** The last tokens of some. */
function lastOf(pieces: readonly Uint32Array[], count: number): Uint32Array {
  const last = new Uint32Array(count);
  let left = count;
  for (let index = pieces.length - 1; left > 0; index--) {
    const piece = pieces[index]!;
    const taken = piece.length > left ? piece.subarray(piece.length - left) : piece;
    left -= taken.length;
    last.set(taken, left);
  }
  return last;
}

function spacedCuts(cuts: readonly number[]): readonly number[] {
  const spaced: number[] = [];
  let last = 0;
  for (const cut of cuts) {
    if (cut - last < minPieceLength) continue;
    last = cut;
    if (spaced.push(cut) === maxCuts) break;
  }
  return spaced;
}

/** Keys of the text up to each cut. */
function prefixKeys(hasher: PromptHasher, text: string, cuts: readonly number[], variant: boolean): readonly TextKey[] {
  const running = hasher.text;
  running.reset();
  let start = 0;
  return cuts.map((cut) => {
    running.update(text.slice(start, cut));
    start = cut;
    return { low: running.low, high: running.high, length: variantLength(cut, variant) };
  });
}

const sizeOf = (array: Uint32Array): number => array.byteLength + arrayBytes;

/** The same text in two variants has two keys. */
const variantLength = (length: number, variant: boolean): number => length * 2 + (variant ? 1 : 0);
