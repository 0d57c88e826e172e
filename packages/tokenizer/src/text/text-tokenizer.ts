import { isJsonObject } from "@espalier/core";
import type { TokenizerFiles } from "../tokenizer-files.ts";
import { createTokenFinder, findCutTokens, readAddedTokens } from "./added-tokens.ts";
import { readBpeModel } from "./bpe-model.ts";
import { readNormalizer } from "./normalizer.ts";
import { readPreTokenizer } from "./pre-tokenizer.ts";
import { createTokenBuffer, type TokenBuffer, type TokenModel } from "./token-model.ts";
import { type TokenizerPart, tokenizerPart } from "./tokenizer-part.ts";
import { readUnigramModel } from "./unigram-model.ts";

/** Most UTF-16 code units of a text; longer ones are refused. A request's body is limited to far less. */
export const maxTextLength = 32 * 1024 * 1024;

interface EncodeOptions {
  /** Adds the special tokens that the model wants around the text: for completions, not for rendered chats. */
  readonly addSpecialTokens: boolean;
}

/** A model's tokenizer, equal token for token to the reference implementation (Hugging Face tokenizers). */
export interface TextTokenizer {
  /**
   * The tokens of a text. Special tokens spelled out in the text become those tokens, as in engines. A lone surrogate
   * counts as U+FFFD.
   *
   * @throws RangeError for a text beyond `maxTextLength`
   */
  encode(text: string, options: EncodeOptions): Uint32Array;
  /**
   * The tokens of a piece between two cuts, without special tokens around it.
   *
   * @param isFirst whether the piece starts the text
   */
  encodePiece(piece: string, isFirst: boolean): Uint32Array;
  /**
   * Ends of the special tokens at which the text can be cut exactly: a text's tokens are those of its pieces, and later
   * text does not change earlier tokens. Ascending.
   */
  cuts(text: string): readonly number[];
  readonly surroundings: Surroundings;
}

/** Ids before and after a single text when special tokens are added. */
interface Surroundings {
  readonly before: readonly number[];
  readonly after: readonly number[];
}

/**
 * Creates a tokenizer from a model's files. Refuses whatever it could not do exactly.
 *
 * @throws EspalierError `config_invalid` naming the part of tokenizer.json that is malformed or not supported
 */
export function createTextTokenizer({
  tokenizer,
  config,
}: Pick<TokenizerFiles, "tokenizer" | "config">): TextTokenizer {
  const normalize = readNormalizer(tokenizer.normalizer);
  const preTokenizer = readPreTokenizer(tokenizer.pre_tokenizer);
  const model = readModel(tokenizer.model, preTokenizer.bytes);
  const added = readAddedTokens({ tokenizer, config, idOf: model.idOf, vocabularySize: model.vocabularySize });
  const splitSpecial = config.split_special_tokens === true;
  const raw = added.filter(({ normalized }) => !normalized);
  const normalized = added.filter((token) => token.normalized);
  const inText = createTokenFinder({ tokens: raw, written: ({ content }) => content, splitSpecial });
  const inNormalized =
    normalized.length > 0
      ? createTokenFinder({
          tokens: normalized,
          written: ({ content }) => normalize?.(content) ?? content,
          splitSpecial,
        })
      : undefined;
  const buffer = createTokenBuffer();

  const encodeNormalized = (text: string, isFirst: boolean): void => {
    if (text === "") return;
    for (const piece of preTokenizer.split(text, isFirst)) if (piece !== "") model.encode(piece, buffer);
  };
  const encodeBetween = (text: string, isFirst: boolean): void => {
    const rewritten = normalize ? normalize(text) : text;
    if (!inNormalized) {
      encodeNormalized(rewritten, isFirst);
      return;
    }
    for (const { start, end, id } of inNormalized.find(rewritten)) {
      if (id >= 0) buffer.push(id);
      else encodeNormalized(rewritten.slice(start, end), isFirst && start === 0);
    }
  };
  const encodePiece = (piece: string, isFirst: boolean): void => {
    if (piece.length > maxTextLength) throw new RangeError(`a text of more than ${maxTextLength} characters`);
    const text = wellFormed(piece);
    for (const { start, end, id } of inText.find(text)) {
      if (id >= 0) buffer.push(id);
      else encodeBetween(start === 0 && end === text.length ? text : text.slice(start, end), isFirst && start === 0);
    }
  };
  const surroundings = readSurroundings(tokenizer.post_processor);
  return {
    encode: (text, { addSpecialTokens }) =>
      guarded(buffer, () => {
        if (addSpecialTokens) buffer.pushAll(surroundings.before);
        encodePiece(text, true);
        if (addSpecialTokens) buffer.pushAll(surroundings.after);
      }),
    encodePiece: (piece, isFirst) => guarded(buffer, () => encodePiece(piece, isFirst)),
    cuts: findCutTokens(added, splitSpecial),
    surroundings,
  };
}

/** Empties the buffer when a text cannot be encoded. */
function guarded(buffer: TokenBuffer, fill: () => void): Uint32Array {
  try {
    fill();
    return buffer.take();
  } catch (error) {
    buffer.take();
    throw error;
  }
}

function readModel(value: unknown, bytes: boolean): TokenModel {
  const part = tokenizerPart(value, "model");
  // Old files omit the type; merges mean BPE, scores in a list mean Unigram.
  const type = part.type || (Array.isArray(part.raw.vocab) ? "Unigram" : "merges" in part.raw ? "BPE" : "");
  if (type === "BPE") return readBpeModel(part, bytes);
  if (type === "Unigram" && !bytes) return readUnigramModel(part);
  throw part.wrong(`is a ${type || "model without a type"}${bytes ? " over bytes" : ""}, which is not supported`);
}

const wellFormed = (text: string): string => text.replace(/\p{Surrogate}/gu, "\uFFFD");

const nothing: Surroundings = { before: [], after: [] };

/**
 * The `post_processor` of a tokenizer.json.
 *
 * @throws EspalierError `config_invalid`
 */
export function readSurroundings(value: unknown): Surroundings {
  return value === null || value === undefined ? nothing : surroundingsOf(tokenizerPart(value, "post_processor"));
}

function surroundingsOf(part: TokenizerPart): Surroundings {
  switch (part.type) {
    case "ByteLevel":
      return nothing;
    case "Sequence":
      return part
        .parts("processors")
        .map(surroundingsOf)
        .reduce(
          (inner, outer) => ({
            before: [...outer.before, ...inner.before],
            after: [...inner.after, ...outer.after],
          }),
          nothing,
        );
    case "BertProcessing":
    case "RobertaProcessing":
      return { before: [namedId(part, "cls")], after: [namedId(part, "sep")] };
    case "TemplateProcessing":
      return template(part);
    default:
      throw part.wrong(`is a ${part.type || "part without a type"}, which is not supported`);
  }
}

function namedId(part: TokenizerPart, key: string): number {
  const pair = part.raw[key];
  const id: unknown = Array.isArray(pair) ? pair[1] : undefined;
  if (typeof id !== "number") throw part.wrong(`has no token under ${key}`);
  return id;
}

function template(part: TokenizerPart): Surroundings {
  const [before, after]: [number[], number[]] = [[], []];
  const known = isJsonObject(part.raw.special_tokens) ? part.raw.special_tokens : {};
  let isBefore = true;
  const items = Array.isArray(part.raw.single) ? part.raw.single : [];
  for (const item of items) {
    if (isJsonObject(item) && isJsonObject(item.Sequence)) {
      if (!isBefore) throw part.wrong("contains the text twice");
      isBefore = false;
    } else if (isJsonObject(item) && isJsonObject(item.SpecialToken)) {
      const token = known[String(item.SpecialToken.id)];
      const ids = isJsonObject(token) && Array.isArray(token.ids) ? token.ids : undefined;
      if (!ids?.every((id) => typeof id === "number")) throw part.wrong("uses an undeclared special token");
      (isBefore ? before : after).push(...ids);
    } else throw part.wrong("has an item that is neither a text nor a special token");
  }
  if (isBefore) throw part.wrong("does not contain the text");
  return { before, after };
}
