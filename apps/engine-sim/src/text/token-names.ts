import { isObject, type JsonObject } from "../api/body-fields.ts";

interface TokenFiles {
  /** `tokenizer.json` */
  readonly tokenizer: JsonObject;
  /** `tokenizer_config.json` */
  readonly config: JsonObject;
}

/** The names of all tokens of a model, by id, as its files spell them. */
export function readTokenNames({ tokenizer, config }: TokenFiles): Map<number, string> {
  const names = new Map<number, string>();
  const vocabulary = isObject(tokenizer.model) ? tokenizer.model.vocab : undefined;
  if (Array.isArray(vocabulary)) {
    // Unigram models list pairs of name and score.
    for (const [id, entry] of vocabulary.entries()) if (Array.isArray(entry)) names.set(id, String(entry[0]));
  } else if (isObject(vocabulary)) {
    for (const [name, id] of Object.entries(vocabulary)) names.set(Number(id), name);
  }
  const added = isObject(config.added_tokens_decoder) ? Object.entries(config.added_tokens_decoder) : [];
  const listed = Array.isArray(tokenizer.added_tokens) ? tokenizer.added_tokens : [];
  for (const [id, token] of [...listed.filter(isObject).map((token) => [token.id, token] as const), ...added]) {
    if (isObject(token) && typeof token.content === "string") names.set(Number(id), token.content);
  }
  return names;
}
