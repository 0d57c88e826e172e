import { expressionPattern, literalPattern, readPattern, type SplitPattern } from "./split-pattern.ts";
import { inByteAlphabet } from "./token-model.ts";
import { type TokenizerPart, tokenizerPart } from "./tokenizer-part.ts";
import { punctuationPattern } from "./unicode.ts";

/** Divides normalized text into the pieces that the model encodes one at a time. */
export interface PreTokenizer {
  /** @param isFirst whether the text starts the prompt */
  split(text: string, isFirst: boolean): readonly string[];
  /** Whether the model's symbols are the UTF-8 bytes of a piece instead of its characters. */
  readonly bytes: boolean;
}

type Step = (text: string, isFirst: boolean) => readonly string[];

/**
 * The `pre_tokenizer` of a tokenizer.json.
 *
 * @throws EspalierError `config_invalid`
 */
export function readPreTokenizer(value: unknown): PreTokenizer {
  if (value === null || value === undefined) return { split: (text) => [text], bytes: false };
  const leaves = leavesOf(tokenizerPart(value, "pre_tokenizer"));
  // Only steps that read them need characters that represent bytes; a last step omits them.
  const bytes = leaves.at(-1)?.type === "ByteLevel";
  const steps = leaves.map((leaf, index) => stepOf(leaf, bytes && index === leaves.length - 1));
  const only = steps.length === 1 ? steps[0] : undefined;
  return { bytes, split: only ?? ((text, isFirst) => inSequence(steps, text, isFirst)) };
}

function inSequence(steps: readonly Step[], text: string, isFirst: boolean): readonly string[] {
  let pieces: readonly string[] = [text];
  for (const step of steps) {
    if (step === keepWhole) continue;
    pieces =
      pieces.length === 1
        ? step(pieces[0]!, isFirst)
        : pieces.flatMap((piece, index) => step(piece, isFirst && index === 0 && text.startsWith(piece)));
  }
  return pieces;
}

function leavesOf(part: TokenizerPart): readonly TokenizerPart[] {
  return part.type === "Sequence" ? part.parts("pretokenizers").flatMap(leavesOf) : [part];
}

const keepWhole: Step = (text) => [text];
/** GPT-2's pattern, built into `ByteLevel`. */
const gpt2Pattern =
  /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/gu;
const wordPattern =
  /[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]+|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}\p{White_Space}]+/gu;

function stepOf(part: TokenizerPart, keepsBytes: boolean): Step {
  switch (part.type) {
    case "ByteLevel":
      return byteLevelStep(part, keepsBytes);
    case "Split":
      return splitStep(readPattern(part), part.flag("invert", false), part.text("behavior"), part);
    case "Digits": {
      const behavior = part.flag("individual_digits", false) ? "Isolated" : "Contiguous";
      return splitStep(expressionPattern(/\p{N}/gu), false, behavior, part);
    }
    case "Punctuation":
      return splitStep(expressionPattern(punctuationPattern), false, part.text("behavior", "Isolated"), part);
    case "Whitespace":
      return splitStep(expressionPattern(wordPattern), true, "Removed", part);
    case "WhitespaceSplit":
      return splitStep(expressionPattern(/\p{White_Space}/gu), false, "Removed", part);
    case "CharDelimiterSplit":
      return splitStep(literalPattern(part.text("delimiter")), false, "Removed", part);
    case "Metaspace":
      return metaspaceStep(part);
    default:
      throw part.wrong(`is a ${part.type || "part without a type"}, which is not supported`);
  }
}

function byteLevelStep(part: TokenizerPart, keepsBytes: boolean): Step {
  const prefix = part.flag("add_prefix_space", true);
  const split = part.flag("use_regex", true) ? expressionPattern(gpt2Pattern).isolate : undefined;
  if (keepsBytes && !prefix) return split ?? keepWhole;
  return (text) => {
    const whole = prefix && !text.startsWith(" ") ? ` ${text}` : text;
    const pieces = split ? split(whole) : [whole];
    return keepsBytes ? pieces : pieces.map(inByteAlphabet);
  };
}

function metaspaceStep(part: TokenizerPart): Step {
  const mark = part.text("replacement", "\u2581");
  if ([...mark].length !== 1) throw part.wrong("has a replacement that is not one character");
  const scheme = part.raw.add_prefix_space === false ? "never" : part.text("prepend_scheme", "always");
  if (!["always", "first", "never"].includes(scheme)) throw part.wrong(`has the unknown prepend_scheme ${scheme}`);
  const divide = part.flag("split", true) ? splitStep(literalPattern(mark), false, "MergedWithNext", part) : keepWhole;
  return (text, isFirst) => {
    const marked = text.replaceAll(" ", () => mark);
    const prepends = scheme === "always" || (scheme === "first" && isFirst);
    return divide(prepends && !marked.startsWith(mark) ? mark + marked : marked, isFirst);
  };
}

/**
 * @param inverted swaps matches with the text between them
 * @throws EspalierError `config_invalid` for an unknown behavior
 */
function splitStep(pattern: SplitPattern, inverted: boolean, behavior: string, part: TokenizerPart): Step {
  if (behavior === "Isolated") return pattern.isolate;
  const group = Object.hasOwn(groupings, behavior) ? groupings[behavior] : undefined;
  if (!group) throw part.wrong(`has the unknown behavior ${behavior}`);
  return (text) => {
    const pieces: Piece[] = [];
    let start = 0;
    for (const end of pattern.find(text)) {
      const to = Math.abs(end);
      pieces.push({ start, end: to, isMatch: end <= 0 !== inverted });
      start = to;
    }
    return group(pieces)
      .filter((piece) => piece.end > piece.start)
      .map((piece) => text.slice(piece.start, piece.end));
  };
}

interface Piece {
  start: number;
  end: number;
  readonly isMatch: boolean;
}

/** What happens to matches, by the reference's names. */
const groupings: Readonly<Record<string, (pieces: readonly Piece[]) => readonly Piece[]>> = {
  Removed: (pieces) => pieces.filter(({ isMatch }) => !isMatch),
  Contiguous: (pieces) => joined(pieces, (piece, previousMatch) => piece.isMatch === previousMatch),
  MergedWithPrevious: (pieces) => joined(pieces, (piece, previousMatch) => piece.isMatch && !previousMatch),
  MergedWithNext(pieces) {
    const grouped: Piece[] = [];
    let previousMatch = false;
    for (const piece of pieces.toReversed()) {
      const last = grouped.at(-1);
      if (piece.isMatch && !previousMatch && last) last.start = piece.start;
      else grouped.push(piece);
      previousMatch = piece.isMatch;
    }
    return grouped.reverse();
  },
};

function joined(pieces: readonly Piece[], joins: (piece: Piece, previousMatch: boolean) => boolean): readonly Piece[] {
  const grouped: Piece[] = [];
  let previousMatch = false;
  for (const piece of pieces) {
    const last = grouped.at(-1);
    if (last && joins(piece, previousMatch)) last.end = piece.end;
    else grouped.push(piece);
    previousMatch = piece.isMatch;
  }
  return grouped;
}
