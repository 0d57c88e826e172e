import { isJsonObject } from "../files/json-object.ts";
import { readMerges } from "./bpe-merges.ts";
import { byteAlphabet, inByteAlphabet } from "./byte-alphabet.ts";
import { createSymbolRow, type SymbolRow } from "./merge-symbols.ts";
import { createTokenBuffer, type TokenBuffer } from "./token-buffer.ts";
import { byteTokenName, type TokenModel } from "./token-model.ts";
import type { TokenizerPart } from "./tokenizer-part.ts";
import { createWordCache, maxCachedWordLength } from "./word-cache.ts";

/** The symbols that a word starts from, before any merge. */
type FirstSymbols = (word: string, row: SymbolRow) => void;

/**
 * A BPE model (Sennrich et al., "Neural machine translation of rare words with subword units", 2016).
 *
 * @param bytes pieces are text whose UTF-8 bytes are the symbols, as after the pre-tokenizer `ByteLevel`
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

/** One symbol per character; what the vocabulary lacks becomes bytes, or the unknown token, or nothing. */
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
  if (id === undefined) throw part.wrong("has an unk_token that the vocabulary lacks");
  return id;
}

/** Cuts before every `mark` that follows another character: no merge reaches across such a place. */
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
