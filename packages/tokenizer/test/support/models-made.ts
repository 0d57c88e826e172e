import type { JsonObject } from "@espalier/core";
import { createTextTokenizer } from "../../src/text/text-tokenizer.ts";

/** Ids of a text by a tokenizer of nothing but a model. */
export type EncodeIds = (text: string) => readonly number[];

export function encoderOf(model: JsonObject, parts: JsonObject = {}): EncodeIds {
  const tokenizer = createTextTokenizer({ tokenizer: { model, ...parts }, config: {} });
  return (text) => [...tokenizer.encode(text, { addSpecialTokens: false })];
}

/** Ids from 0 in the order of the list. */
export const vocabularyOf = (tokens: Iterable<string>): Readonly<Record<string, number>> =>
  Object.fromEntries([...new Set(tokens)].map((token, id) => [token, id]));
