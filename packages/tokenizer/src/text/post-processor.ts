import { isJsonObject } from "../files/json-object.ts";
import { type TokenizerPart, tokenizerPart } from "./tokenizer-part.ts";

/** Ids that stand around a single text when special tokens are added. */
export interface Surroundings {
  readonly before: readonly number[];
  readonly after: readonly number[];
}

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
      if (!isBefore) throw part.wrong("takes the text twice");
      isBefore = false;
    } else if (isJsonObject(item) && isJsonObject(item.SpecialToken)) {
      const token = known[String(item.SpecialToken.id)];
      const ids = isJsonObject(token) && Array.isArray(token.ids) ? token.ids : undefined;
      if (!ids?.every((id) => typeof id === "number")) throw part.wrong("names a special token that it does not list");
      (isBefore ? before : after).push(...ids);
    } else throw part.wrong("has an item that is neither a text nor a special token");
  }
  if (isBefore) throw part.wrong("leaves the text out");
  return { before, after };
}
