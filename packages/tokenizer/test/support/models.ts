import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { JsonObject } from "@espalier/core";
import { sharedPath } from "@espalier/testing";
import { Tokenizer } from "tokenizers";
import { createTextTokenizer, type TextTokenizer } from "../../src/text/text-tokenizer.ts";
import { shippedModelFolder } from "../../src/tokenizer-files.ts";

/** Folders of models by name: those of this package, and the captured engines' own where they are at hand. */
export const modelFolders: Readonly<Record<string, string>> = {
  "espalier-tiny": shippedModelFolder(),
  ...Object.fromEntries(
    ["gpt2-like", "spm-bpe", "unigram"].map((name) => [
      name,
      fileURLToPath(new URL(`../models/${name}`, import.meta.url)),
    ]),
  ),
  ...Object.fromEntries(
    ["qwen2-tiny", "llama3-tiny", "gemma3-tiny"].flatMap((name) => {
      const folder = sharedPath("fixtures", "models", name);
      return folder === undefined ? [] : [[name, folder]];
    }),
  ),
};

/** A tokenizer.json, free to be changed. */
export type TokenizerJson = { [key: string]: unknown };

export const readModel = (name: string): TokenizerJson =>
  JSON.parse(readFileSync(join(modelFolders[name]!, "tokenizer.json"), "utf8")) as TokenizerJson;

/** Ours and the reference implementation, from the same definition. */
export interface Pair {
  readonly ours: TextTokenizer;
  readonly reference: Tokenizer;
  readonly tokens: readonly string[];
}

export function pairOf(definition: TokenizerJson, config: JsonObject = {}): Pair {
  const added = definition.added_tokens as readonly { readonly content: string }[];
  return {
    ours: createTextTokenizer({ tokenizer: definition, config }),
    reference: Tokenizer.fromString(JSON.stringify(definition)),
    tokens: added.map(({ content }) => content),
  };
}

/** Texts of which the two make different tokens, as lines for a failing test to print. */
export async function mismatches(
  { ours, reference }: Pair,
  texts: readonly { readonly name: string; readonly text: string }[],
  addSpecialTokens = false,
): Promise<readonly string[]> {
  const found: string[] = [];
  for (const { name, text } of texts) {
    const wanted = (await reference.encode(text, null, { addSpecialTokens })).getIds();
    const got = [...ours.encode(text, { addSpecialTokens })];
    let at = 0;
    while (at < Math.max(wanted.length, got.length) && wanted[at] === got[at]) at++;
    if (at === wanted.length && at === got.length) continue;
    found.push(`${name}: at ${at} wanted ${wanted.slice(at, at + 4)}, got ${got.slice(at, at + 4)}: ${shown(text)}`);
  }
  return found;
}

const shown = (text: string): string => JSON.stringify(text.length > 120 ? `${text.slice(0, 120)}...` : text);
