import { isJsonObject } from "@espalier/core";
import { createPairTable, type PairTable } from "./pair-table.ts";
import {
  byteAlphabet,
  byteTokenName,
  createTokenBuffer,
  createWordCache,
  inByteAlphabet,
  maxCachedWordLength,
  type TokenBuffer,
  type TokenModel,
} from "./token-model.ts";
import type { TokenizerPart } from "./tokenizer-part.ts";

/** Splits a word into its symbols before any merge. */
type FirstSymbols = (word: string, row: SymbolRow) => void;

/**
 * A BPE model (Sennrich et al., "Neural machine translation of rare words with subword units", 2016).
 *
 * @param bytes whether the symbols are the UTF-8 bytes of a piece, as after the pre-tokenizer `ByteLevel`
 * @throws EspalierError `config_invalid`
 */
export function readBpeModel(part: TokenizerPart, bytes: boolean): TokenModel {
  if (part.raw.dropout !== null && part.raw.dropout !== undefined && part.raw.dropout !== 0) {
    throw part.wrong("has a dropout, so that the same text gives different tokens");
  }
  const vocabulary = readVocabulary(part);
  const { table, splitsAt } = readMerges(part, vocabulary);
  const alphabet = bytes ? byteAlphabet.map((character) => vocabulary.get(character)) : [];
  const isWholeAlphabet = bytes && alphabet.every((id) => id !== undefined) && !hasAffixes(part);
  const first = isWholeAlphabet ? byteSymbols(alphabet as readonly number[]) : characterSymbols(part, vocabulary);
  const written = bytes ? inByteAlphabet : (piece: string): string => piece;
  const row = createSymbolRow(table);
  const words = createWordCache();
  const word = createTokenBuffer();
  const ignoresMerges = part.flag("ignore_merges", false);
  const encodeAnew = (piece: string, buffer: TokenBuffer): void => {
    const whole = ignoresMerges ? vocabulary.get(written(piece)) : undefined;
    if (whole !== undefined) {
      buffer.push(whole);
      return;
    }
    row.clear();
    first(isWholeAlphabet ? piece : written(piece), row);
    row.mergeInto(buffer);
  };
  const encodeWord = (piece: string, buffer: TokenBuffer): void => {
    if (piece.length > maxCachedWordLength) {
      encodeAnew(piece, buffer);
      return;
    }
    let known = words.get(piece);
    if (known === undefined) {
      encodeAnew(piece, word);
      const ids = word.takeList();
      known = ids.length === 1 ? ids[0]! : ids;
      words.set(piece, known);
    }
    if (typeof known === "number") buffer.push(known);
    else buffer.pushAll(known);
  };
  const divides = !bytes && !ignoresMerges && !hasAffixes(part) ? splitsAt : undefined;
  return {
    idOf: (token) => vocabulary.get(token),
    vocabularySize: vocabulary.size,
    encode: divides === undefined ? encodeWord : (piece, buffer) => encodeInWords(piece, divides, buffer, encodeWord),
  };
}

function readVocabulary(part: TokenizerPart): ReadonlyMap<string, number> {
  if (!isJsonObject(part.raw.vocab)) throw part.wrong("has no vocabulary");
  const vocabulary = new Map<string, number>();
  for (const [token, id] of Object.entries(part.raw.vocab)) {
    if (typeof id !== "number" || !Number.isInteger(id) || id < 0 || id > 0x7fff_ffff) {
      throw part.wrong(`has a token without a usable id: ${JSON.stringify(token)}`);
    }
    vocabulary.set(token, id);
  }
  return vocabulary;
}

/** Ranks and positions share a double (see the merge queue). */
const maxMerges = 2 ** 24;
/** SentencePiece's character for a space. */
const spaceMark = "\u2581";

interface Merges {
  /** Maps a pair of ids to (rank, merged id). */
  readonly table: PairTable;
  /**
   * The code unit of the space mark, if no merge joins another character with a mark after it. Cutting a text there
   * then does not change its tokens, and the cache sees the same words again.
   */
  readonly splitsAt: number | undefined;
}

/** @throws EspalierError `config_invalid` */
function readMerges(part: TokenizerPart, vocabulary: ReadonlyMap<string, number>): Merges {
  const list = part.raw.merges;
  if (!Array.isArray(list)) throw part.wrong("has no list of merges");
  if (list.length > maxMerges) throw part.wrong(`has more than ${maxMerges} merges`);
  const prefix = part.text("continuing_subword_prefix", "");
  const table = createPairTable(list.length);
  let crosses = !vocabulary.has(spaceMark);
  for (const [rank, entry] of list.entries()) {
    const [left, right, ...rest] = Array.isArray(entry) ? entry : String(entry).split(" ");
    if (typeof left !== "string" || typeof right !== "string" || rest.length > 0) {
      throw part.wrong(`has a malformed merge at ${rank}`);
    }
    const [leftId, rightId, mergedId] = [left, right, left + right.slice(prefix.length)].map((token) =>
      vocabulary.get(token),
    );
    if (leftId === undefined || rightId === undefined || mergedId === undefined) {
      throw part.wrong(`has a merge outside its vocabulary at ${rank}`);
    }
    table.set(leftId, rightId, rank, mergedId);
    crosses ||= right.startsWith(spaceMark) && !left.endsWith(spaceMark);
  }
  return { table, splitsAt: crosses ? undefined : spaceMark.charCodeAt(0) };
}

const affix = (part: TokenizerPart, key: string): string => part.text(key, "");

const hasAffixes = (part: TokenizerPart): boolean =>
  affix(part, "continuing_subword_prefix") !== "" || affix(part, "end_of_word_suffix") !== "";

/** Every byte has a token, as in vocabularies trained on bytes. */
function byteSymbols(alphabet: readonly number[]): FirstSymbols {
  const encoder = new TextEncoder();
  let bytes = new Uint8Array(1_024);
  return (word, row) => {
    if (bytes.length < word.length * 3) bytes = new Uint8Array(word.length * 3);
    const { written } = encoder.encodeInto(word, bytes);
    for (let at = 0; at < written; at++) row.add(alphabet[bytes[at]!]!);
  };
}

/** One symbol per character. A character missing in the vocabulary becomes bytes, the unknown token, or nothing. */
function characterSymbols(part: TokenizerPart, vocabulary: ReadonlyMap<string, number>): FirstSymbols {
  const [prefix, suffix] = [affix(part, "continuing_subword_prefix"), affix(part, "end_of_word_suffix")];
  const fusesUnknown = part.flag("fuse_unk", false);
  const unknown = unknownId(part, vocabulary);
  const byteIds = part.flag("byte_fallback", false)
    ? Array.from({ length: 256 }, (_, byte) => vocabulary.get(byteTokenName(byte)))
    : undefined;
  const encoder = new TextEncoder();
  return (word, row) => {
    let pending = false;
    let at = 0;
    for (const character of word) {
      const isLast = at + character.length === word.length;
      const symbol = (at > 0 ? prefix : "") + character + (isLast ? suffix : "");
      at += character.length;
      const id = vocabulary.get(symbol);
      if (id !== undefined) {
        if (pending) row.add(unknown!);
        pending = false;
        row.add(id);
        continue;
      }
      const ids = byteIds && Array.from(encoder.encode(symbol), (byte) => byteIds[byte]);
      if (ids?.every((byteId) => byteId !== undefined)) {
        // As in the reference, an unknown character that waits to be joined with another one is written later.
        for (const byteId of ids) row.add(byteId!);
      } else if (unknown !== undefined) {
        if (pending && !fusesUnknown) row.add(unknown);
        pending = true;
      }
    }
    if (pending) row.add(unknown!);
  };
}

function unknownId(part: TokenizerPart, vocabulary: ReadonlyMap<string, number>): number | undefined {
  const token = part.text("unk_token", "");
  if (token === "") return undefined;
  const id = vocabulary.get(token);
  if (id === undefined) throw part.wrong("has an unk_token outside its vocabulary");
  return id;
}

/** Cuts before every `mark` after another character: no merge crosses such a place. */
function encodeInWords(
  piece: string,
  mark: number,
  buffer: TokenBuffer,
  encode: (word: string, buffer: TokenBuffer) => void,
): void {
  let start = 0;
  for (let at = 1; at < piece.length; at++) {
    if (piece.charCodeAt(at) !== mark || piece.charCodeAt(at - 1) === mark) continue;
    encode(piece.slice(start, at), buffer);
    start = at;
  }
  encode(start === 0 ? piece : piece.slice(start), buffer);
}

const none = -1;

/** A word while its symbols are being merged. */
type SymbolRow = ReturnType<typeof createSymbolRow>;

/**
 * The reference's algorithm, step by step, including its treatment of stale queue entries: one is dropped unless the
 * pair now at its position merges to the same symbol.
 *
 * @param merges maps a pair of ids to (rank, merged id)
 */
function createSymbolRow(merges: PairTable) {
  let ids = new Int32Array(256);
  let next = new Int32Array(256);
  let previous = new Int32Array(256);
  let length = 0;
  const queue = createMergeQueue();

  const grow = (): void => {
    const copies = [ids, next, previous].map((row) => {
      const larger = new Int32Array(length * 2);
      larger.set(row);
      return larger;
    });
    [ids, next, previous] = [copies[0]!, copies[1]!, copies[2]!];
  };
  const offer = (left: number, right: number): void => {
    const slot = merges.find(ids[left]!, ids[right]!);
    if (slot >= 0) queue.push(merges.valueAt(slot), left, merges.extraAt(slot));
  };
  const mergeAt = (at: number): void => {
    const right = next[at]!;
    // A symbol merged into its left neighbour no longer has an id.
    if (ids[at] === none || right === none) return;
    const slot = merges.find(ids[at]!, ids[right]!);
    if (slot < 0 || merges.extraAt(slot) !== queue.merged) return;
    ids[at] = queue.merged;
    ids[right] = none;
    const following = next[right]!;
    next[at] = following;
    if (following !== none) previous[following] = at;
    if (previous[at] !== none) offer(previous[at]!, at);
    if (following !== none) offer(at, following);
  };

  return {
    clear(): void {
      length = 0;
    },
    add(id: number): void {
      if (length === ids.length) grow();
      ids[length] = id;
      previous[length] = length - 1;
      next[length] = none;
      if (length > 0) next[length - 1] = length;
      length++;
    },
    /** Merges what the table allows, lowest rank first, and appends the result. Takes n log n for n symbols. */
    mergeInto(buffer: TokenBuffer): void {
      for (let at = 0; at + 1 < length; at++) offer(at, at + 1);
      for (let at = queue.pop(); at >= 0; at = queue.pop()) mergeAt(at);
      for (let at = 0; at !== none && at < length; at = next[at]!) buffer.push(ids[at]!);
    },
  };
}

/** Exceeds any position in a key; the longest text, in bytes, stays below it. */
const positions = 2 ** 27;

/**
 * The pairs of a word that can merge, lowest rank first and leftmost among equals. Keys combine rank and position in
 * one number, which a double represents exactly.
 */
export function createMergeQueue() {
  let keys = new Float64Array(256);
  let results = new Uint32Array(256);
  let size = 0;
  let merged = 0;

  const grow = (): void => {
    const [moreKeys, moreResults] = [new Float64Array(size * 2), new Uint32Array(size * 2)];
    moreKeys.set(keys);
    moreResults.set(results);
    [keys, results] = [moreKeys, moreResults];
  };

  return {
    push(rank: number, position: number, result: number): void {
      if (size === keys.length) grow();
      const key = rank * positions + position;
      let at = size++;
      while (at > 0) {
        const parent = (at - 1) >> 1;
        if (keys[parent]! <= key) break;
        keys[at] = keys[parent]!;
        results[at] = results[parent]!;
        at = parent;
      }
      keys[at] = key;
      results[at] = result;
    },
    /** Removes the first pair. @returns its position, or -1 when there is none; its merge result is `merged` */
    pop(): number {
      if (size === 0) return -1;
      const first = keys[0]!;
      merged = results[0]!;
      size--;
      const key = keys[size]!;
      const result = results[size]!;
      let at = 0;
      for (;;) {
        let child = at * 2 + 1;
        if (child >= size) break;
        if (child + 1 < size && keys[child + 1]! < keys[child]!) child++;
        if (keys[child]! >= key) break;
        keys[at] = keys[child]!;
        results[at] = results[child]!;
        at = child;
      }
      keys[at] = key;
      results[at] = result;
      return first % positions;
    },
    get merged(): number {
      return merged;
    },
  };
}
