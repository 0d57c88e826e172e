import { EspalierError, isJsonObject, type JsonObject } from "@espalier/core";

/**
 * One part of a `tokenizer.json` with its path, so that errors can name it. This package refuses what it cannot do
 * exactly like the reference implementation, and never approximates.
 */
export interface TokenizerPart {
  /** Path in the file, such as `pre_tokenizer.pretokenizers[1]`. */
  readonly path: string;
  readonly type: string;
  readonly text: (key: string, fallback?: string) => string;
  readonly flag: (key: string, fallback: boolean) => boolean;
  /** Parts of the list at `key`. */
  readonly parts: (key: string) => readonly TokenizerPart[];
  readonly raw: JsonObject;
  /** The error that this part is not as expected. */
  readonly wrong: (problem: string) => EspalierError;
}

/** @throws EspalierError `config_invalid` when the value is no object */
export function tokenizerPart(value: unknown, path: string): TokenizerPart {
  const wrong = (problem: string): EspalierError =>
    new EspalierError("config_invalid", `tokenizer.json: ${path} ${problem}; set tokenize to engine or bytes instead`);
  if (!isJsonObject(value)) throw wrong("is not an object");
  return {
    path,
    type: typeof value.type === "string" ? value.type : "",
    raw: value,
    wrong,
    text(key, fallback) {
      const found = value[key] ?? fallback;
      if (typeof found !== "string") throw wrong(`has no text under ${key}`);
      return found;
    },
    flag(key, fallback) {
      const found = value[key] ?? fallback;
      if (typeof found !== "boolean") throw wrong(`has a non-boolean ${key}`);
      return found;
    },
    parts(key) {
      const list = value[key];
      if (!Array.isArray(list)) throw wrong(`has no list under ${key}`);
      return list.map((entry, index) => tokenizerPart(entry, `${path}.${key}[${index}]`));
    },
  };
}
