import { createTextTrie, type TextTrie } from "./pair-table.ts";
import {
  byteTokenName,
  createTokenBuffer,
  createWordCache,
  maxCachedWordLength,
  type TokenBuffer,
  type TokenModel,
} from "./token-model.ts";
import type { TokenizerPart } from "./tokenizer-part.ts";

/** An unknown character scores this much less than the least likely token; SentencePiece's value. */
const unknownPenalty = 10;

interface Vocabulary {
  readonly ids: ReadonlyMap<string, number>;
  readonly scores: Float64Array;
  readonly trie: TextTrie;
  readonly unknown: number | undefined;
  readonly unknownScore: number;
}

/**
 * A Unigram model (Kudo, "Subword regularization", 2018): the most likely division, found by Viterbi's algorithm.
 *
 * @throws EspalierError `config_invalid`
 */
export function readUnigramModel(part: TokenizerPart): TokenModel {
  const vocabulary = readVocabulary(part);
  const { ids } = vocabulary;
  const bytes = part.flag("byte_fallback", false)
    ? Array.from({ length: 256 }, (_, byte) => ids.get(byteTokenName(byte)))
    : undefined;
  const divide = createDivider(vocabulary, part);
  const encoder = new TextEncoder();
  const write = (text: string, buffer: TokenBuffer): void => {
    const id = ids.get(text);
    if (id !== undefined) {
      buffer.push(id);
      return;
    }
    const byteIds = bytes && Array.from(encoder.encode(text), (byte) => bytes[byte]);
    if (byteIds?.every((byteId) => byteId !== undefined)) {
      for (const byteId of byteIds) buffer.push(byteId!);
      return;
    }
    if (vocabulary.unknown === undefined) throw part.wrong("has no unk_id, but the text has unknown characters");
    buffer.push(vocabulary.unknown);
  };
  const words = createWordCache();
  const word = createTokenBuffer();
  return {
    idOf: (token) => ids.get(token),
    vocabularySize: vocabulary.scores.length,
    encode(piece, buffer) {
      const known = words.get(piece);
      if (known === undefined) {
        for (const token of divide(piece)) write(token, word);
        const made = word.takeList();
        if (piece.length <= maxCachedWordLength) words.set(piece, made);
        buffer.pushAll(made);
      } else if (typeof known === "number") buffer.push(known);
      else buffer.pushAll(known);
    },
  };
}

function readVocabulary(part: TokenizerPart): Vocabulary {
  const list = part.raw.vocab;
  if (!Array.isArray(list) || list.length === 0) throw part.wrong("has no vocabulary");
  const unknown = part.raw.unk_id ?? undefined;
  if (unknown !== undefined && !(typeof unknown === "number" && unknown >= 0 && unknown < list.length)) {
    throw part.wrong("has an unk_id outside its vocabulary");
  }
  const ids = new Map<string, number>();
  const scores = new Float64Array(list.length);
  const trie = createTextTrie(list.length * 4);
  let lowest = Number.POSITIVE_INFINITY;
  for (const [id, entry] of list.entries()) {
    const [token, score]: readonly unknown[] = Array.isArray(entry) ? entry : [];
    if (typeof token !== "string" || typeof score !== "number") throw part.wrong(`has a malformed token at ${id}`);
    ids.set(token, id);
    scores[id] = score;
    if (token !== "") trie.add(token, id);
    lowest = Math.min(lowest, score);
  }
  return { ids, scores, trie, unknown, unknownScore: lowest - unknownPenalty };
}

/** Divides a text into tokens and runs of unknown characters. */
function createDivider(
  { scores, trie, unknown, unknownScore }: Vocabulary,
  part: TokenizerPart,
): (text: string) => readonly string[] {
  let best = new Float64Array(0);
  let starts = new Int32Array(0);
  let tokens = new Int32Array(0);
  const offer = (start: number, end: number, score: number, id: number): void => {
    const total = best[start]! + score;
    if (starts[end]! >= 0 && total <= best[end]!) return;
    best[end] = total;
    starts[end] = start;
    tokens[end] = id;
  };
  const forward = (text: string): void => {
    for (let start = 0; start < text.length; ) {
      const single = (text.codePointAt(start) ?? 0) > 0xffff ? 2 : 1;
      let hasSingle = false;
      let node = 0;
      for (let at = start; at < text.length; at++) {
        node = trie.child(node, text.charCodeAt(at));
        if (node < 0) break;
        const id = trie.valueAt(node);
        if (id < 0) continue;
        offer(start, at + 1, scores[id]!, id);
        hasSingle ||= at + 1 - start === single;
      }
      if (!hasSingle) {
        if (unknown === undefined) throw part.wrong("has no unk_id, but the text has unknown characters");
        offer(start, start + single, unknownScore, unknown);
      }
      start += single;
    }
  };
  return (text) => {
    const size = text.length + 1;
    if (best.length < size) {
      [best, starts, tokens] = [new Float64Array(size), new Int32Array(size), new Int32Array(size)];
    }
    best.fill(0, 0, size);
    starts.fill(-1, 0, size);
    forward(text);
    const found: string[] = [];
    for (let end = text.length; end > 0; ) {
      let start = starts[end]!;
      if (tokens[end] === unknown) {
        while (start > 0 && tokens[start] === unknown) start = starts[start]!;
      }
      found.push(text.slice(start, end));
      end = start;
    }
    return found.reverse();
  };
}
