import { type HttpClient, isJsonObject } from "@espalier/core";
import { newestDialect } from "../chat/chat-dialect.ts";
import { variablesOf } from "../chat/chat-input.ts";
import { createHashedCache, type TextKey } from "../prompt/hashed-cache.ts";
import { createBlockBuilder, noBlocks, type PromptBlocks, type PromptHasher } from "../prompt/prompt-blocks.ts";
import { firstPartMessage, type PromptRequest, type PromptSource } from "../prompt-request.ts";
import type { ModelTokenizerOptions } from "./model-tokenizer.ts";
import { defaultBudgetMs, type PromptMode, viewOfBlocks, withinBudget } from "./prompt-view.ts";

/** An engine may take longer than the budget; its answer then serves the next request. */
const timeoutMs = 10_000;

/** A prompt of a million tokens takes 8 MB in JSON. */
const maxAnswerBytes = 32 * 1024 * 1024;
const defaultCacheBytes = 16 * 1024 * 1024;

/**
 * Prompts as an engine's tokenizer and template produce them.
 *
 * @throws TypeError when `http` or `engineUrl` is absent
 */
export function createEngineMode(options: ModelTokenizerOptions): PromptMode {
  const { http, engineUrl, hasher, blockSize, model, scheduler, budgetMs = defaultBudgetMs } = options;
  if (!http || !engineUrl) throw new TypeError("the mode engine needs http and engineUrl");
  const builder = createBlockBuilder({ hasher, blockSize });
  const engine = createEngineTokenizer({
    http,
    engineUrl,
    model,
    hasher,
    timeoutMs,
    toBlocks: (tokens) => builder.append(noBlocks, [tokens]),
  });
  const view: PromptMode["view"] = (request, source) => {
    if (source.kind === "chat" && firstPartMessage(source.messages) >= 0) {
      throw new Error("the chat has parts that are not text");
    }
    const blocks = engine.encode(request, source);
    if (!(blocks instanceof Promise)) return viewOfBlocks(blocks, "engine", true);
    return withinBudget(
      blocks.then((known) => viewOfBlocks(known, "engine", true)),
      { scheduler, budgetMs, meanwhile: () => viewOfBlocks(noBlocks, "engine", false) },
    );
  };
  return { view };
}

interface EngineTokenizerOptions {
  readonly http: HttpClient;
  /** The base URL of an engine that is up and serves the model; undefined for none. */
  readonly engineUrl: () => string | undefined;
  readonly model: string;
  readonly hasher: PromptHasher;
  readonly toBlocks: (tokens: Uint32Array) => PromptBlocks;
  readonly timeoutMs: number;
  /** Most bytes of remembered answers (16 MiB). */
  readonly cacheBytes?: number;
}

/** Has an engine tokenize prompts. */
export interface EngineTokenizer {
  /** The blocks if the same prompt was asked before, else a promise, which rejects when the engine cannot answer. */
  encode(request: PromptRequest, source: PromptSource): PromptBlocks | Promise<PromptBlocks>;
}

/** Calls engines' `POST /tokenize` (vLLM, SGLang) and remembers answers by the hash of the request. */
export function createEngineTokenizer(options: EngineTokenizerOptions): EngineTokenizer {
  const { hasher } = options;
  const answers = createHashedCache<PromptBlocks>(options.cacheBytes ?? defaultCacheBytes);
  const ask = async (body: string, key: TextKey): Promise<PromptBlocks> => {
    const url = options.engineUrl();
    if (url === undefined) throw new Error("no engine of the model is up");
    const tokens = await fetchTokens({ http: options.http, url, body, timeoutMs: options.timeoutMs });
    const blocks = options.toBlocks(tokens);
    answers.set(key, blocks, blocks.contents.byteLength + blocks.leftover.byteLength);
    return blocks;
  };
  return {
    encode(request, source) {
      const body = tokenizeBody(options.model, request, source);
      hasher.text.reset();
      hasher.text.update(body);
      const key = { low: hasher.text.low, high: hasher.text.high, length: body.length };
      return answers.get(key) ?? ask(body, key);
    },
  };
}

/** Fields of a chat that its prompt depends on and that engines' `/tokenize` reads. */
const chatFields = ["messages", "tools", "documents", "add_generation_prompt", "continue_final_message"];
/**
 * Fields that SGLang reads there too. vLLM's `/tokenize` does not know the effort, so it gets the variables derived
 * from it.
 */
const sglangFields = ["tool_choice", "reasoning_effort", "chat_template_kwargs"];

/** The `POST /tokenize` body for a request's prompt. */
export function tokenizeBody(model: string, request: PromptRequest, source: PromptSource): string {
  const { fields, dialect = newestDialect } = request;
  if (source.kind !== "chat") {
    const text = source.kind === "text" ? source.text : "";
    return JSON.stringify({ model, prompt: text, add_special_tokens: fields.add_special_tokens ?? true });
  }
  const isSglang = dialect === "sglang-0.5.23";
  const names = isSglang ? [...chatFields, ...sglangFields] : chatFields;
  const given = names.filter((name) => fields[name] !== undefined).map((name) => [name, fields[name]] as const);
  const variables = isSglang ? {} : variablesOf(fields, dialect);
  const extra = Object.keys(variables).length > 0 ? { chat_template_kwargs: variables } : {};
  return JSON.stringify({ model, ...Object.fromEntries(given), ...extra });
}

interface TokenizeCall {
  readonly http: HttpClient;
  readonly url: string;
  readonly body: string;
  readonly timeoutMs: number;
}

/**
 * Asks an engine for the tokens of a prompt.
 *
 * @throws Error when the answer is no list of tokens, EspalierError when there is no answer
 */
export async function fetchTokens({ http, url, body, timeoutMs }: TokenizeCall): Promise<Uint32Array> {
  const { status, body: answer } = await http({
    url: `${url}/tokenize`,
    method: "POST",
    headers: { "content-type": "application/json" },
    body,
    timeoutMs,
    maxBytes: maxAnswerBytes,
  });
  if (status !== 200) throw new Error(`${url}/tokenize answered ${status}`);
  const parsed: unknown = JSON.parse(answer);
  const tokens = isJsonObject(parsed) ? parsed.tokens : undefined;
  if (!Array.isArray(tokens) || !tokens.every(isTokenId)) {
    throw new Error(`${url}/tokenize answered without tokens`);
  }
  return Uint32Array.from(tokens);
}

const isTokenId = (id: unknown): boolean =>
  typeof id === "number" && Number.isInteger(id) && id >= 0 && id <= 0xffff_ffff;
