import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { EspalierError } from "@espalier/common";
import { readBoundedText } from "./bounded-text.ts";
import { type JsonObject, parseJsonObject } from "./json-object.ts";

/** The largest vocabularies in use (262,144 tokens with merges as pairs) take 35 MB. */
const maxTokenizerBytes = 128 * 1024 * 1024;
/** The largest configurations list some thousand added tokens in 2 MB. */
const maxConfigBytes = 16 * 1024 * 1024;

/** What a model's folder says about its tokens, parsed but not yet checked. */
export interface TokenizerFiles {
  /** Where the files were read from, for messages. */
  readonly folder: string;
  /** `tokenizer.json`. */
  readonly tokenizer: JsonObject;
  /** `tokenizer_config.json`; empty when absent. */
  readonly config: JsonObject;
  /** `chat_template.jinja`, or the template that `chat_template.json` holds; it comes before one in `config`. */
  readonly chatTemplate: string | undefined;
  /** Texts of `additional_chat_templates/NAME.jinja` by name. */
  readonly additionalTemplates: Readonly<Record<string, string>>;
  /** `generation_config.json`; empty when absent. */
  readonly generationConfig: JsonObject;
  /** `special_tokens_map.json`; empty when absent. */
  readonly specialTokensMap: JsonObject;
}

/**
 * Reads a model's tokenizer and chat template from a folder as Hugging Face lays it out.
 *
 * @param folder holds at least `tokenizer.json`
 * @throws EspalierError `config_unreadable` when a file is missing, unreadable or beyond its bound (128 MiB for the
 * tokenizer, 16 MiB for others), `config_invalid` when one is not a JSON object
 */
export async function loadTokenizerFiles(folder: string): Promise<TokenizerFiles> {
  const tokenizer = await readObject(folder, "tokenizer.json", maxTokenizerBytes);
  if (!tokenizer) {
    const message = `${join(folder, "tokenizer.json")} does not exist: name a folder with the model's tokenizer, or set tokenize to engine or bytes`;
    throw new EspalierError("config_unreadable", message);
  }
  const read = (name: string): Promise<JsonObject | undefined> => readObject(folder, name, maxConfigBytes);
  const [config, generationConfig, specialTokensMap, templateObject, templateText] = await Promise.all([
    read("tokenizer_config.json"),
    read("generation_config.json"),
    read("special_tokens_map.json"),
    read("chat_template.json"),
    readBoundedText(join(folder, "chat_template.jinja"), maxConfigBytes),
  ]);
  const additionalTemplates = await readTemplates(join(folder, "additional_chat_templates"));
  const inObject = templateObject?.chat_template;
  return {
    folder,
    tokenizer,
    config: config ?? {},
    chatTemplate: templateText ?? (typeof inObject === "string" ? inObject : undefined),
    additionalTemplates,
    generationConfig: generationConfig ?? {},
    specialTokensMap: specialTokensMap ?? {},
  };
}

/** Files of a folder of templates that are read; models have one or two. */
const maxTemplates = 32;

async function readTemplates(folder: string): Promise<Readonly<Record<string, string>>> {
  // Most models have no such folder.
  const names = await readdir(folder).catch((): string[] => []);
  const files = names.filter((name) => name.endsWith(".jinja")).sort();
  if (files.length > maxTemplates) {
    throw new EspalierError("config_invalid", `${folder} has more than ${maxTemplates} templates`);
  }
  const entries = files.map(async (name): Promise<readonly [string, string]> => {
    return [name.slice(0, -".jinja".length), (await readBoundedText(join(folder, name), maxConfigBytes)) ?? ""];
  });
  return Object.fromEntries(await Promise.all(entries));
}

async function readObject(folder: string, name: string, maxBytes: number): Promise<JsonObject | undefined> {
  const path = join(folder, name);
  const text = await readBoundedText(path, maxBytes);
  return text === undefined ? undefined : parseJsonObject(text, path);
}
