import { Tokenizer } from "tokenizers";
import type { TokenizerJson } from "./models.ts";

/** The reference implementation's tokenizer of some parts, with a model of no tokens where none is given. */
export function referenceOf(parts: TokenizerJson): Tokenizer {
  const definition = {
    version: "1.0",
    truncation: null,
    padding: null,
    added_tokens: [],
    normalizer: null,
    pre_tokenizer: null,
    post_processor: null,
    decoder: null,
    model: { type: "BPE", vocab: {}, merges: [] },
    ...parts,
  };
  return Tokenizer.fromString(JSON.stringify(definition));
}

/** A text as the reference's normalizer rewrites it. */
export function referenceNormalizer(normalizer: object): (text: string) => string {
  const made = referenceOf({ normalizer }).getNormalizer();
  if (!made) throw new Error("the reference has no normalizer");
  return (text) => made.normalizeString(text);
}

/** The pieces into which the reference's pre-tokenizer divides the start of a prompt. */
export function referencePieces(preTokenizer: object): (text: string) => readonly string[] {
  const made = referenceOf({ pre_tokenizer: preTokenizer }).getPreTokenizer();
  if (!made) throw new Error("the reference has no pre-tokenizer");
  return (text) => made.preTokenizeString(text).map(([piece]) => piece);
}
