import { isJsonObject, type JsonObject } from "../files/json-object.ts";
import { type TokenizerPart, tokenizerPart } from "./tokenizer-part.ts";

/** A token that is looked for in the text itself, before the model sees what is left. */
export interface AddedToken {
  readonly content: string;
  readonly id: number;
  /** Matches only where no word character stands beside it. */
  readonly singleWord: boolean;
  /** Takes the white space on its left or right with it. */
  readonly lstrip: boolean;
  readonly rstrip: boolean;
  /** Looked for in the normalized text, in normalized form. */
  readonly normalized: boolean;
  readonly special: boolean;
}

/** One added token costs a few hundred bytes; no tokenizer has more of them than some ten thousand. */
const maxAddedTokens = 262_144;

export interface AddedTokenSources {
  /** `tokenizer.json`. */
  readonly tokenizer: JsonObject;
  /** `tokenizer_config.json`; its `added_tokens_decoder` comes before what the other file says. */
  readonly config: JsonObject;
  /** Ids of the model's own vocabulary. */
  readonly idOf: (content: string) => number | undefined;
  readonly vocabularySize: number;
}

/**
 * The added tokens of both files. As in the reference, a token's id is that of the model's vocabulary when it has one,
 * else the next free one; what the files say orders them.
 *
 * @throws EspalierError `config_invalid`
 */
export function readAddedTokens({ tokenizer, config, idOf, vocabularySize }: AddedTokenSources): readonly AddedToken[] {
  const listed = tokenizer.added_tokens ?? [];
  if (!Array.isArray(listed)) throw tokenizerPart(tokenizer, "the file").wrong("has no list under added_tokens");
  const inFile = listed.map((entry, index) => writtenToken(tokenizerPart(entry, `added_tokens[${index}]`)));
  const inConfig = Object.entries(isJsonObject(config.added_tokens_decoder) ? config.added_tokens_decoder : {}).map(
    ([id, entry]) => writtenToken(tokenizerPart(entry, `added_tokens_decoder of tokenizer_config.json, ${id}`), id),
  );
  const byContent = new Map<string, Written>();
  for (const group of [inFile, inConfig]) {
    for (const token of group.sort((a, b) => a.writtenId - b.writtenId)) {
      if (token.content !== "") byContent.set(token.content, token);
    }
  }
  if (byContent.size > maxAddedTokens) {
    throw tokenizerPart(tokenizer, "added_tokens").wrong(`has more than ${maxAddedTokens} entries`);
  }
  let nextId = vocabularySize;
  return [...byContent.values()].map(({ writtenId: _, ...token }) => ({
    ...token,
    id: idOf(token.content) ?? nextId++,
  }));
}

type Written = Omit<AddedToken, "id"> & { readonly writtenId: number };

function writtenToken(part: TokenizerPart, key?: string): Written {
  const special = part.flag("special", false);
  return {
    content: part.text("content"),
    singleWord: part.flag("single_word", false),
    lstrip: part.flag("lstrip", false),
    rstrip: part.flag("rstrip", false),
    normalized: part.flag("normalized", !special),
    special,
    writtenId: Number(key ?? part.raw.id),
  };
}
