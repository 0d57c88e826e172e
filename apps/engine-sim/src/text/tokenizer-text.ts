import {
  type Clock,
  EspalierError,
  isJsonObject,
  type JsonBody,
  type JsonObject,
  type Logger,
  scanBody,
} from "@espalier/core";
import {
  type ChatDialect,
  createChatRenderer,
  createTextTokenizer,
  loadTokenizerFiles,
  shippedModelFolder,
  type TextTokenizer,
  type TokenizerFiles,
} from "@espalier/tokenizer";
import { sourceOf } from "../http/body-fields.ts";
import { ApiError } from "../http/exchange.ts";
import { chooseWords } from "./generated-text.ts";
import { createMediaPlaceholders } from "./media-placeholders.ts";
import { type ChatMessage, type ChatPrompt, type ChatTokens, type ModelText, shippedModelName } from "./model-text.ts";

interface TokenizerTextOptions {
  readonly clock: Clock;
  /** The engine whose rules render chats. */
  readonly dialect: ChatDialect;
  /** Placeholders of an image, audio or video; 0 for a model that takes none. */
  readonly mediaTokens: number;
  /** Warns when answers have other tokens when they return in a prompt. */
  readonly logger: Logger;
}

/**
 * Tokens and templates of a real model.
 *
 * @param folder of its files, or `shippedModelName`
 * @throws RangeError when they cannot be used
 */
export async function loadTokenizerText(folder: string, options: TokenizerTextOptions): Promise<ModelText> {
  try {
    const files = await loadTokenizerFiles(folder === shippedModelName ? shippedModelFolder() : folder);
    return createTokenizerText(files, folder, options);
  } catch (error) {
    if (error instanceof EspalierError) throw new RangeError(`tokenizer: ${error.message}`, { cause: error });
    throw error;
  }
}

function createTokenizerText(files: TokenizerFiles, model: string, options: TokenizerTextOptions): ModelText {
  const { clock, dialect, mediaTokens, logger } = options;
  const tokenizer = createTextTokenizer(files);
  const renderer = createChatRenderer(files, clock);
  const pieces = createPieceCache(tokenizer);
  const names = readTokenNames(files);
  const media = createMediaPlaceholders({ encode: pieces.encode, cuts: tokenizer.cuts, model, perPart: mediaTokens });

  const render = (prompt: ChatPrompt, openTurn: boolean) => {
    const { body, endpoint = "chat" } = prompt;
    const chat = body && renderer.asChat({ endpoint, fields: body, body: scannedBody(body), dialect });
    return renderer.render(chat ?? { endpoint: "chat", fields: chatFields(prompt, openTurn), dialect });
  };
  const chat = (prompt: ChatPrompt, openTurn = true): ChatTokens => {
    const { body } = prompt;
    try {
      const rendered = render(prompt, openTurn);
      if (rendered.textUntil !== undefined) return media.tokens(rendered, body ?? {});
      const tokens = pieces.encode(rendered.text);
      return { tokens: body?.add_special_tokens === true ? surrounded(tokens, tokenizer) : tokens, media: [] };
    } catch (error) {
      if (error instanceof ApiError || !(error instanceof Error) || error.name !== "TemplateError") throw error;
      throw new ApiError(400, error.message);
    }
  };
  const text = (source: string, addSpecialTokens = true): Uint32Array =>
    addSpecialTokens ? surrounded(pieces.encode(source), tokenizer) : pieces.encode(source);
  const decode = createTokenDecoder(files.tokenizer.decoder, names);
  const probe = {
    decode,
    text: (source: string) => pieces.encode(source),
    chat: (...turns: readonly string[]) => chat(conversationOf(turns), turns.length % 2 === 1).tokens,
  };
  const { words, isRoundTrip } = chooseWords(names.values(), probe);
  if (!isRoundTrip)
    logger.warn("the chat template changes answers: their tokens differ when sent back as an assistant turn");
  return {
    chat,
    text,
    pair: (first, second) => Uint32Array.of(...text(first), ...text(second, false)),
    decode,
    words,
  };
}

/** Deeper bodies are rendered as `JSON.parse` reads them. */
const maxDepth = 500;

function scannedBody(body: JsonObject): JsonBody | undefined {
  const text = sourceOf(body);
  const scanned = text === undefined ? "no text" : scanBody(Buffer.from(text), maxDepth);
  return typeof scanned === "string" ? undefined : scanned;
}

const conversationOf = (turns: readonly string[]): ChatPrompt => ({
  messages: turns.map((text, at) => ({ role: at % 2 === 0 ? "user" : "assistant", parts: [{ text }] })),
});

function surrounded(tokens: Uint32Array, { surroundings }: TextTokenizer): Uint32Array {
  const { before, after } = surroundings;
  if (before.length === 0 && after.length === 0) return tokens;
  const all = new Uint32Array(before.length + tokens.length + after.length);
  all.set(before);
  all.set(tokens, before.length);
  all.set(after, before.length + tokens.length);
  return all;
}

/**
 * The body of a chat completion with a conversation in it, for chats of another API.
 *
 * @param openTurn whether the assistant's next turn is opened at the end
 */
function chatFields({ endpoint, messages, tools, documents }: ChatPrompt, openTurn: boolean): JsonObject {
  const given: unknown = tools === undefined ? undefined : JSON.parse(tools);
  const described = endpoint === "responses" && Array.isArray(given) ? given.flatMap(asFunctions) : given;
  return {
    messages: messages.map(messageFields),
    ...(described !== undefined && { tools: described }),
    ...(documents !== undefined && { documents: JSON.parse(documents) as unknown }),
    add_generation_prompt: openTurn,
  };
}

/**
 * A tool of the responses API as functions, as vLLM gives them to templates (`flat_namespace_tool_name` of
 * `vllm/tool_parsers/utils.py`); none for one that the model does not see, such as a web search. Codex sends all three kinds.
 */
function asFunctions(tool: unknown): readonly JsonObject[] {
  if (!isJsonObject(tool) || isJsonObject(tool.function)) return isJsonObject(tool) ? [tool] : [];
  const { type, name, tools } = tool;
  if (type === "namespace" && Array.isArray(tools)) {
    return tools.flatMap(asFunctions).map((nested) => {
      const described = nested.function as JsonObject;
      return { ...nested, function: { ...described, name: `${String(name)}__${String(described.name)}` } };
    });
  }
  return type === "function" || type === "custom" ? [{ type: "function", function: tool }] : [];
}

function messageFields({ role, parts, toolCalls }: ChatMessage): JsonObject {
  const content = parts.map((part) =>
    "text" in part ? { type: "text", text: part.text } : { type: "image_url", image_url: { url: part.image } },
  );
  return { role, content, ...(toolCalls !== undefined && { tool_calls: JSON.parse(toolCalls) as unknown }) };
}

const defaultCapacityBytes = 64 * 1024 * 1024;

/** Approximate overhead of an entry. */
const entryBytes = 160;

/**
 * Caches the tokens of pieces of text: turns of long conversations, shared system prompts. Texts are split after special tokens, where tokenization is independent on both sides, so that a message is tokenized
 * once.
 *
 * @param capacityBytes the least recently used pieces are evicted
 */
export function createPieceCache(tokenizer: TextTokenizer, capacityBytes = defaultCapacityBytes) {
  /** In order of use. */
  const pieces = new Map<string, Uint32Array>();
  let sizeBytes = 0;

  const costOf = (key: string, tokens: Uint32Array): number => 2 * key.length + tokens.byteLength + entryBytes;
  const remember = (key: string, tokens: Uint32Array): void => {
    const cost = costOf(key, tokens);
    if (cost > capacityBytes) return;
    pieces.set(key, tokens);
    sizeBytes += cost;
    for (const [oldest, row] of pieces) {
      if (sizeBytes <= capacityBytes) return;
      pieces.delete(oldest);
      sizeBytes -= costOf(oldest, row);
    }
  };
  const tokensOf = (piece: string, isFirst: boolean): Uint32Array => {
    // Some tokenizers treat the start of a text differently.
    const key = isFirst ? `^${piece}` : `+${piece}`;
    const known = pieces.get(key);
    if (known) {
      pieces.delete(key);
      pieces.set(key, known);
      return known;
    }
    const tokens = tokenizer.encodePiece(piece, isFirst);
    remember(key, tokens);
    return tokens;
  };
  return {
    /** Size of the cache: two bytes per character, four per token, and the overhead of each entry. */
    get sizeBytes() {
      return sizeBytes;
    },
    /** The tokens of a text, without surrounding special tokens. */
    encode(text: string): Uint32Array {
      const rows: Uint32Array[] = [];
      let start = 0;
      for (const end of [...tokenizer.cuts(text), text.length]) {
        if (end > start) rows.push(tokensOf(text.slice(start, end), start === 0));
        start = end;
      }
      return joined(rows);
    },
  };
}

function joined(rows: readonly Uint32Array[]): Uint32Array {
  const tokens = new Uint32Array(rows.reduce((sum, row) => sum + row.length, 0));
  let at = 0;
  for (const row of rows) {
    tokens.set(row, at);
    at += row.length;
  }
  return tokens;
}

/** A decoder step of Hugging Face's tokenizers, from names of tokens to text. */
type Step = (parts: readonly string[]) => readonly string[];

/** The text of token ids; ids without a name are skipped. */
export type TokenDecoder = (tokens: Iterable<number>) => string;

/**
 * Reads the `decoder` of a tokenizer.json.
 *
 * @param names of all tokens, by id
 * @throws RangeError for a decoder of another kind than byte-level and SentencePiece tokenizers have
 */
export function createTokenDecoder(decoder: unknown, names: ReadonlyMap<number, string>): TokenDecoder {
  // Without a decoder the library joins tokens as if they were words.
  const step: Step = isJsonObject(decoder) ? stepOf(decoder) : (parts) => [parts.join(" ")];
  return (tokens) => {
    const parts = Array.from(tokens, (token) => names.get(token)).filter((name) => name !== undefined);
    return step(parts).join("");
  };
}

function stepOf(decoder: JsonObject): Step {
  switch (decoder.type) {
    case "ByteLevel":
      return (parts) => [fromByteAlphabet(parts)];
    case "Metaspace": {
      const replacement = String(decoder.replacement ?? "▁");
      const dropsFirst = decoder.prepend_scheme !== "never" && decoder.add_prefix_space !== false;
      return (parts) =>
        parts.map((part, at) => {
          const rest = at === 0 && dropsFirst && part.startsWith(replacement) ? part.slice(replacement.length) : part;
          return rest.replaceAll(replacement, " ");
        });
    }
    case "Replace":
      return replacing(decoder);
    case "ByteFallback":
      return fromBytePieces;
    case "Fuse":
      return (parts) => [parts.join("")];
    case "Strip":
      return stripping(decoder);
    case "Sequence": {
      const steps = (Array.isArray(decoder.decoders) ? decoder.decoders : []).map(stepOf);
      return (parts) => steps.reduce((found, step) => step(found), parts);
    }
    default:
      throw new RangeError(`the decoder ${decoder.type} of the tokenizer is not supported`);
  }
}

function replacing({ pattern, content }: JsonObject): Step {
  const { String: text, Regex: source } = isJsonObject(pattern) ? pattern : {};
  const search = typeof source === "string" ? new RegExp(source, "gu") : String(text);
  return (parts) => parts.map((part) => part.replaceAll(search, () => String(content)));
}

function stripping({ content, start, stop }: JsonObject): Step {
  const mark = String(content);
  return (parts) =>
    parts.map((part) => {
      let [from, to] = [0, part.length];
      while (from < Number(start) && part.startsWith(mark, from)) from += mark.length;
      for (let cut = 0; cut < Number(stop) && to > from && part.endsWith(mark, to); cut++) to -= mark.length;
      return part.slice(from, to);
    });
}

/** Runs of pieces like `<0xE2>` are bytes; each becomes U+FFFD if they are not valid UTF-8. */
function fromBytePieces(parts: readonly string[]): readonly string[] {
  const found: string[] = [];
  let bytes: number[] = [];
  const flush = (): void => {
    const text = Buffer.from(bytes).toString("utf8");
    if (bytes.length > 0) found.push(text.includes("\uFFFD") ? "\uFFFD".repeat(bytes.length) : text);
    bytes = [];
  };
  for (const part of parts) {
    const [, digits] = /^<0x([0-9A-Fa-f]{2})>$/.exec(part) ?? [];
    if (digits !== undefined) bytes.push(Number.parseInt(digits, 16));
    else {
      flush();
      found.push(part);
    }
  }
  flush();
  return found;
}

/** The byte of each character in a byte-level vocabulary (Radford et al., GPT-2, `bytes_to_unicode`). */
const byteOf: ReadonlyMap<string, number> = (() => {
  const bytes = new Map<string, number>();
  let next = 0x100;
  for (let byte = 0; byte < 0x100; byte++) {
    const isPrinted = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    bytes.set(String.fromCharCode(isPrinted ? byte : next++), byte);
  }
  return bytes;
})();

/** A part with a character outside the alphabet is an added token, which is text already. */
function fromByteAlphabet(parts: readonly string[]): string {
  const rows = parts.map((part) => {
    const bytes = Array.from(part, (character) => byteOf.get(character));
    return bytes.includes(undefined) ? Buffer.from(part, "utf8") : Buffer.from(bytes as number[]);
  });
  return Buffer.concat(rows).toString("utf8");
}

interface TokenFiles {
  /** `tokenizer.json` */
  readonly tokenizer: JsonObject;
  /** `tokenizer_config.json` */
  readonly config: JsonObject;
}

/** The names of all tokens of a model, by id, as its files spell them. */
export function readTokenNames({ tokenizer, config }: TokenFiles): Map<number, string> {
  const names = new Map<number, string>();
  const vocabulary = isJsonObject(tokenizer.model) ? tokenizer.model.vocab : undefined;
  if (Array.isArray(vocabulary)) {
    // Unigram models list pairs of name and score.
    for (const [id, entry] of vocabulary.entries()) if (Array.isArray(entry)) names.set(id, String(entry[0]));
  } else if (isJsonObject(vocabulary)) {
    for (const [name, id] of Object.entries(vocabulary)) names.set(Number(id), name);
  }
  const added = isJsonObject(config.added_tokens_decoder) ? Object.entries(config.added_tokens_decoder) : [];
  const listed = Array.isArray(tokenizer.added_tokens) ? tokenizer.added_tokens : [];
  for (const [id, token] of [...listed.filter(isJsonObject).map((token) => [token.id, token] as const), ...added]) {
    if (isJsonObject(token) && typeof token.content === "string") names.set(Number(id), token.content);
  }
  return names;
}
