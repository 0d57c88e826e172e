import { constants } from "node:fs";
import { open, readdir } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { EspalierError, isJsonObject, type JsonObject } from "@espalier/core";
import { parseJsonObject } from "./json-object.ts";

/** The largest vocabularies in use (262,144 tokens with merges as pairs) take 35 MB. */
const maxTokenizerBytes = 128 * 1024 * 1024;
/** The largest configurations list some thousand added tokens in 2 MB. */
const maxConfigBytes = 16 * 1024 * 1024;

/** Most template files read from a folder; models have one or two. */
const maxTemplates = 32;

/** A model's tokenizer files, parsed but not yet checked. */
export interface TokenizerFiles {
  /** The folder of the files, for messages. */
  readonly folder: string;
  /** `tokenizer.json`. */
  readonly tokenizer: JsonObject;
  /** `tokenizer_config.json`; empty when absent. */
  readonly config: JsonObject;
  /** `chat_template.jinja`, or the template in `chat_template.json`; it takes precedence over one in `config`. */
  readonly chatTemplate: string | undefined;
  /** Texts of `additional_chat_templates/NAME.jinja` by name. */
  readonly additionalTemplates: Readonly<Record<string, string>>;
  /** `generation_config.json`; empty when absent. */
  readonly generationConfig: JsonObject;
  /** `special_tokens_map.json`; empty when absent. */
  readonly specialTokensMap: JsonObject;
}

/**
 * Reads a model's tokenizer and chat template from a folder in Hugging Face's layout.
 *
 * @param folder contains at least `tokenizer.json`
 * @throws EspalierError `config_unreadable` when a file is missing, unreadable or beyond its bound (128 MiB for the
 *   tokenizer, 16 MiB for others), `config_invalid` when one is not a JSON object
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

/**
 * The folder of the small model shipped with this package: a byte-level BPE tokenizer of 4,096 tokens with a ChatML
 * template, for simulated engines and experiments.
 */
export const shippedModelFolder = (): string =>
  // Resolved by the package's name: this module may be part of a program's bundle.
  fileURLToPath(new URL("../models/espalier-tiny/", import.meta.resolve("@espalier/tokenizer")));

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

/**
 * Reads a text file of at most `maxBytes`. Reads no more even if the file grows meanwhile.
 *
 * @returns undefined when there is no such file
 * @throws EspalierError `config_unreadable` when the file cannot be read or is too large
 */
export async function readBoundedText(path: string, maxBytes: number): Promise<string | undefined> {
  try {
    // Without O_NONBLOCK, opening a pipe would wait forever for a writer.
    const handle = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      if (!(await handle.stat()).isFile())
        throw new EspalierError("config_unreadable", `${path} is not a regular file`);
      const chunks: Buffer[] = [];
      let sizeBytes = 0;
      // `end` is inclusive, so a file that is too large gives one byte more than the limit.
      for await (const chunk of handle.createReadStream({ start: 0, end: maxBytes, autoClose: false })) {
        sizeBytes += chunk.length;
        if (sizeBytes > maxBytes) {
          throw new EspalierError(
            "config_unreadable",
            `${path} is larger than ${maxBytes} bytes: is it the right file?`,
          );
        }
        chunks.push(chunk);
      }
      return Buffer.concat(chunks, sizeBytes).toString("utf8");
    } finally {
      await handle.close();
    }
  } catch (error) {
    if (error instanceof EspalierError) throw error;
    const reason = (error as NodeJS.ErrnoException).code ?? String(error);
    if (reason === "ENOENT") return undefined;
    throw new EspalierError("config_unreadable", `${path} cannot be read: ${reason}`, { cause: error });
  }
}

/**
 * Selects a model's chat template among those of its files.
 *
 * @param chatTemplate `chat_template` of tokenizer_config.json: a template, or a list of named ones; replaced by the
 *   text of chat_template.jinja or chat_template.json if there is such a file
 * @param additional templates of the folder additional_chat_templates, by name
 * @param hasTools whether the request has tools; a template named `tool_use` is then preferred
 * @returns undefined when no template fits
 */
export function selectTemplate({
  chatTemplate,
  additional = {},
  hasTools,
}: {
  readonly chatTemplate: unknown;
  readonly additional?: Readonly<Record<string, string>>;
  readonly hasTools: boolean;
}): string | undefined {
  const named = new Map(Object.entries(additional));
  if (typeof chatTemplate === "string") named.set("default", chatTemplate);
  else for (const [name, template] of namedTemplates(chatTemplate)) named.set(name, template);
  return (hasTools ? named.get("tool_use") : undefined) ?? named.get("default");
}

function namedTemplates(list: unknown): [string, string][] {
  if (!Array.isArray(list)) return [];
  return list.flatMap((entry: unknown): [string, string][] => {
    if (typeof entry !== "object" || entry === null) return [];
    const { name, template } = entry as JsonObject;
    return typeof name === "string" && typeof template === "string" ? [[name, template]] : [];
  });
}

const tokenNames = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/**
 * The special tokens that templates know by name, from tokenizer_config.json: strings, or objects with a `content`. A
 * token that is null in the file is undefined in the template.
 */
export function specialTokensOf(config: JsonObject): Record<string, unknown> {
  const tokens: Record<string, unknown> = {};
  const extra = config.extra_special_tokens;
  const named = isJsonObject(extra) ? extra : {};
  for (const name of tokenNames) {
    const token = tokenText(config[name]);
    if (token !== undefined) tokens[name] = token;
  }
  for (const [name, value] of Object.entries(named)) {
    const token = tokenText(value);
    if (token !== undefined) tokens[name] = token;
  }
  const additional = config.additional_special_tokens;
  if (Array.isArray(additional) && additional.length > 0) {
    tokens.additional_special_tokens = additional.map(tokenText).filter((token) => token !== undefined);
  }
  return tokens;
}

function tokenText(token: unknown): string | undefined {
  if (typeof token === "string") return token;
  if (typeof token !== "object" || token === null) return undefined;
  const { content } = token as JsonObject;
  return typeof content === "string" ? content : undefined;
}
