import type { TextTokenizer } from "../text/text-tokenizer.ts";
import { createHashedCache, type TextKey } from "./hashed-cache.ts";
import { createBlockBuilder, noBlocks, type PromptBlocks, type PromptHasher } from "./prompt-blocks.ts";

export interface PromptEncoderOptions {
  readonly tokenizer: TextTokenizer;
  readonly hasher: PromptHasher;
  /** Tokens per block. */
  readonly blockSize: number;
  /** Most bytes of prefix states (64 MiB). A state takes about half a byte per token before it, plus 640 bytes. */
  readonly stateBytes?: number;
  /** Most bytes of tokens of text pieces (64 MiB): four per token, plus 400 per piece. */
  readonly pieceBytes?: number;
}

const defaultStateBytes = 64 * 1024 * 1024;
const defaultPieceBytes = 64 * 1024 * 1024;
/** Size of a typed array besides its contents, in bytes: two objects and memory of its own (measured in V8 11.3). */
const arrayBytes = 240;
/** Most cuts used in one text. Only a text of little but special tokens has more. */
export const maxCuts = 16_384;
/**
 * A cut is used only if it is at least this many characters after the one before. Chats have two special tokens between
 * messages, and a second cut there would cost as much as a message and gain nothing. Whether a cut is used depends only
 * on the text before it, so a longer text has the same cuts.
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

/** The known part of a prompt, and what is left to tokenize. */
export interface PromptPlan {
  /** The prompt up to the deepest cut seen before. */
  readonly known: PromptBlocks;
  /** Position of that cut in the text, in characters. */
  readonly knownLength: number;
  /** The pieces from there to the last cut. The caller writes their tokens here. */
  readonly pieces: readonly PromptPiece[];
  /** The text after the last cut. */
  readonly tail: PromptPiece | undefined;
  /** Identifies the text up to its last cut; undefined without a cut, or when the text before it is not available. */
  readonly lastCut: TextKey | undefined;
  readonly addSpecialTokens: boolean;
}

/** A prompt up to a cut. */
export interface PromptBeginning {
  readonly blocks: PromptBlocks;
  /** Position of the cut in the plan's text, in characters. */
  readonly length: number;
}

/**
 * Encodes text to blocks of tokens. A hash recognises what a prompt shares with an earlier one up to a cut, and only
 * the rest is tokenized. A second cache provides pieces of that rest that other prompts had (system prompts, shared
 * documents). A cut is the end of a special token, where the tokens before it do not depend on the text after it.
 */
export type PromptEncoder = ReturnType<typeof createPromptEncoder>;

/**
 * Creates an encoder with empty caches.
 *
 * @throws RangeError when the block size is not a positive whole number
 */
export function createPromptEncoder(options: PromptEncoderOptions) {
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

  const planPieces = (known: PromptBlocks, texts: readonly string[]): PromptPlan => ({
    known,
    knownLength: 0,
    pieces: texts.map((text) => pieceOf(text, 0, text.length, false)),
    tail: undefined,
    lastCut: undefined,
    addSpecialTokens: false,
  });

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
    /** Looks up the known part of a text. `addSpecialTokens` as for the tokenizer. */
    plan,
    /**
     * Plans a prompt with a known beginning, when only the rest of the text is available.
     *
     * @param known up to a cut
     */
    planAfter,
    /** Like `planAfter`, for a rest that is divided at cuts. */
    planPieces,
    /** The ends of the special tokens in a text, in characters. */
    cuts: (text: string): readonly number[] => tokenizer.cuts(text),
    /**
     * The beginning of a prompt up to the last cut within the first `length` characters of its plan's text.
     *
     * @param whole the finished prompt of the plan
     * @returns with that cut's position; undefined when the cut is before the known part
     */
    until(
      { known, knownLength, pieces: planned }: PromptPlan,
      whole: PromptBlocks,
      length: number,
    ): PromptBeginning | undefined {
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
    /** Tokenizes what a plan lacks on this thread, then finishes it. */
    encode,
    /**
     * Joins a plan whose pieces all have tokens, and remembers the result.
     *
     * @throws TypeError when a piece has none
     */
    finish,
    /** The prompt without further tokenizing: up to the first piece without tokens. */
    beginning({ known, pieces: planned }: PromptPlan): PromptBlocks {
      const end = planned.findIndex(({ tokens }) => !tokens);
      return blocks.append(known, planned.slice(0, end < 0 ? planned.length : end).map(learn));
    },
    /** The last cut within the first `length` characters of a text, or 0. */
    cutWithin: (text: string, length: number): number => tokenizer.cuts(text.slice(0, length)).at(-1) ?? 0,
    /** A prompt given as tokens. */
    fromTokens: (tokens: Uint32Array): PromptBlocks => blocks.append(noBlocks, [tokens]),
    /** The chain of a prompt's full blocks from a root, two words per block. */
    chain: blocks.chain,
    /** Current size of the caches, in bytes. */
    get cachedBytes(): number {
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
  if (!tokens) throw new TypeError("a piece of the prompt is not tokenized");
  return tokens;
}

/** The last `count` tokens. */
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

/** Distinguishes the keys of the same text in two variants. */
const variantLength = (length: number, variant: boolean): number => length * 2 + (variant ? 1 : 0);
