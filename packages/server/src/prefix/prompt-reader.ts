import type { Cancel, Clock, HttpClient, JsonBody, Logger, Scheduler, Startable } from "@espalier/core";
import { chainRoot } from "@espalier/core";
import type { CacheMeters, PromptBlocks } from "@espalier/routing";
import {
  type ChatDialect,
  cacheShares,
  chatDialectOf,
  createModelTokenizer,
  createPromptHasher,
  type ModelTokenizer,
  type ModelTokenizerOptions,
  type PromptRequest,
  type PromptView,
  type TokenizerPool,
  withinBudget,
} from "@espalier/tokenizer";
import type { TokenizerConfig } from "../config/index.ts";
import type { ReadPrompt } from "../large-bodies/large-bodies.ts";
import { BodyRequest } from "../large-bodies/read-large-body.ts";
import { globPattern } from "../routing/pools.ts";
import type { MediaLearner, ReadMedia } from "./media/media-learner.ts";

/** The source of a prompt. */
export interface PromptSource {
  /** The served model's name. */
  readonly model: string;
  /** The base model of an adapter. */
  readonly parent: string | undefined;
  readonly endpoint: string;
  readonly body: JsonBody;
  /** Tokens estimated from the size of the prompt. */
  readonly estimatedTokens: number;
}

/** A body that the worker thread reads; the source has only its outline. */
export interface LargePrompt {
  readonly readPrompt: ReadPrompt;
  readonly sizeBytes: number;
}

export interface PromptReaderOptions {
  readonly tokenizers: readonly TokenizerConfig[];
  readonly budgetMs: number;
  readonly cacheBytes: number;
  readonly pool: TokenizerPool;
  readonly seed: string;
  /** Tokens per block. */
  readonly blockSize: number;
  /** The base URL of an engine that is up and serves the model. */
  readonly engineUrl: (model: string) => string | undefined;
  /** The kind of a model's engines, when known. */
  readonly engineKind: (model: string) => "vllm" | "sglang" | undefined;
  readonly http: HttpClient;
  readonly meters: CacheMeters;
  /** Knows images, audio and video of chats; undefined where they are matched by bytes. */
  readonly media?: Pick<MediaLearner, "read"> | undefined;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly logger: Logger;
}

/** In English, current models' tokenizers average about four bytes per token. */
const bytesPerToken = 4;
/**
 * Most models whose prompts engines tokenize, each with its own cache. Prompts of further models are hashed by bytes.
 */
export const maxEngineTokenizers = 256;

/** Most milliseconds that loading delays readiness. */
export const maxWarmUpMs = 15_000;

/** The budget applies once per this many bytes of a large body, since the prefill that a hit saves grows as well. */
const budgetedBytes = 1_048_576;

/** The request's `cache_salt`; undefined for none. */
export function saltOf(body: JsonBody): string | undefined {
  const node = body.member("cache_salt");
  if (node === undefined || body.kindOf(node) !== "string") return undefined;
  return body.textOf(node) || undefined;
}

interface Entry {
  readonly patterns: readonly RegExp[];
  readonly engine: TokenizerConfig["engine"];
  /** Folder of the model's files, when prompts are tokenized locally. */
  readonly folder: string | undefined;
  readonly tokenizerOf: (model: string) => ModelTokenizer | Promise<ModelTokenizer> | undefined;
}

/** The view with the blocks of parts that are known; the rest is matched by bytes as before. */
function withMedia(view: PromptView, { contents, tokens, isWhole }: ReadMedia): PromptView {
  const textUntil = contents.length / 2;
  if (isWhole) return { ...view, contents, blocks: textUntil, textUntil, count: tokens };
  const rest = view.contents.subarray(2 * view.textUntil);
  const all = new Uint32Array(contents.length + rest.length);
  all.set(contents);
  all.set(rest, contents.length);
  return { ...view, contents: all, blocks: all.length / 2, textUntil, count: Math.max(view.count, tokens) };
}

/** Splits prompts into hashed blocks. */
export class PromptReader implements Startable {
  readonly #options: PromptReaderOptions;
  readonly #hasher = createPromptHasher();
  readonly #entries: Entry[] = [];
  /** A promise while it is being created. */
  readonly #byEngine = new Map<string, ModelTokenizer | Promise<ModelTokenizer>>();
  #bytes: ModelTokenizer | undefined;
  #isWarm = false;
  #isStopped = false;

  constructor(options: PromptReaderOptions) {
    this.#options = options;
  }

  async start(): Promise<void> {
    const { pool, tokenizers } = this.#options;
    if (tokenizers.some(({ mode }) => mode === "local")) await pool.start();
    this.#bytes = await this.#create({ model: "*", mode: "bytes" });
    const folders = new Set<string>();
    for (const { models, mode, engine, path } of tokenizers) {
      const local =
        mode === "local" ? await this.#create({ model: models.join(" "), mode, folder: path ?? "" }) : undefined;
      if (local?.mode === "local" && path !== undefined) folders.add(path);
      this.#entries.push({
        patterns: models.map(globPattern),
        engine,
        folder: local?.mode === "local" ? path : undefined,
        tokenizerOf: mode === "engine" ? (model) => this.#engineTokenizer(model) : () => local,
      });
    }
    void this.#warmUp([...folders]);
  }

  stop(): Promise<void> {
    this.#isStopped = true;
    return this.#options.pool.stop();
  }

  /** What readiness waits for, as sentences; empty once the tokenizer threads are loaded. */
  get waitingFor(): readonly string[] {
    return this.#isWarm ? [] : ["loading the tokenizers"];
  }

  /** Returns no promise when nearly all of it is cached, else resolves within the budget. Never fails. */
  read(source: PromptSource): PromptBlocks | Promise<PromptBlocks> {
    const { model, parent = model } = source;
    const known = this.#entryOf(parent);
    const tokenizer = known?.tokenizerOf(parent) ?? this.#bytes;
    if (!tokenizer) throw new TypeError("the reader has not been started");
    const request = new BodyRequest(source.endpoint, source.body, this.#dialectOf(parent, known));
    if (tokenizer instanceof Promise) return tokenizer.then((made) => this.#readBy(made, request, source));
    return this.#readBy(tokenizer, request, source);
  }

  /** Resolves to undefined when the thread exceeds the budget, which applies per MiB of the body. Never fails. */
  async readLarge(source: PromptSource, { readPrompt, sizeBytes }: LargePrompt): Promise<PromptBlocks | undefined> {
    const { blockSize, cacheBytes, scheduler, logger } = this.#options;
    const { model, parent = model } = source;
    const known = this.#entryOf(parent);
    const dialect = this.#dialectOf(parent, known);
    const work = readPrompt({ folder: known?.folder, dialect, blockSize, cacheBytes }).catch((error: Error) => {
      logger.warn("the prompt of a large body was not read", { reason: error.message });
      return undefined;
    });
    const budgetMs = this.#options.budgetMs * Math.ceil(sizeBytes / budgetedBytes);
    const view = await withinBudget(work, { scheduler, budgetMs, meanwhile: () => undefined });
    return view && this.#blocksOf(this.#bytes!, view, source);
  }

  #entryOf(model: string): Entry | undefined {
    return this.#entries.find(({ patterns }) => patterns.some((pattern) => pattern.test(model)));
  }

  #dialectOf(model: string, entry: Entry | undefined): ChatDialect {
    if (entry && entry.engine !== "auto") return entry.engine;
    return chatDialectOf(this.#options.engineKind(model));
  }

  #readBy(
    tokenizer: ModelTokenizer,
    request: PromptRequest,
    source: PromptSource,
  ): PromptBlocks | Promise<PromptBlocks> {
    const view = tokenizer.view(request);
    return view instanceof Promise
      ? view.then((seen) => this.#blocksOf(tokenizer, seen, source))
      : this.#blocksOf(tokenizer, view, source);
  }

  #blocksOf(tokenizer: ModelTokenizer, view: PromptView, source: PromptSource): PromptBlocks {
    const { seed, blockSize } = this.#options;
    const salt = saltOf(source.body);
    const root = chainRoot({
      seed,
      adapter: source.parent === undefined ? undefined : source.model,
      cacheSalt: salt,
      blockSize,
      unit: view.unit,
    });
    const media = view.media && this.#options.media?.read(source.parent ?? source.model, view.media, root);
    const seen = media ? withMedia(view, media) : view;
    const { unit, count, complete, contents, blocks, textUntil } = seen;
    const chain = tokenizer.chain(seen, root);
    const from = unit === "bytes" ? "bytes" : complete && textUntil === blocks ? "tokens" : "partial";
    this.#options.meters.read(from);
    const known = complete ? count : Math.max(count, source.estimatedTokens);
    const tokens = unit === "bytes" ? Math.ceil(count / bytesPerToken) : known;
    return { chain, contents, blockCount: blocks, blockSize, tokens, from, ...(media && { learning: media.learning }) };
  }

  /** One per model, created on first use. */
  #engineTokenizer(model: string): ModelTokenizer | Promise<ModelTokenizer> | undefined {
    const known = this.#byEngine.get(model);
    if (known !== undefined || this.#byEngine.size >= maxEngineTokenizers) return known;
    const making = this.#create({ model, mode: "engine", engineUrl: () => this.#options.engineUrl(model) });
    this.#byEngine.set(model, making);
    making.then(
      (made) => this.#byEngine.set(model, made),
      () => this.#byEngine.delete(model),
    );
    return making;
  }

  /** Loads the models in the threads. Failures and delays are logged; the model's first request then loads it. */
  async #warmUp(folders: readonly string[]): Promise<void> {
    const { pool, scheduler, logger } = this.#options;
    let cancel: Cancel = () => {};
    const late = new Promise<readonly string[]>((resolve) => {
      cancel = scheduler.after(maxWarmUpMs, () => resolve([`it takes longer than ${maxWarmUpMs} ms`]));
    });
    const ends = folders.map((folder) =>
      pool.warm(folder).then(
        () => undefined,
        (error: Error) => error.message,
      ),
    );
    const reasons = await Promise.race([late, Promise.all(ends)]);
    cancel();
    this.#isWarm = true;
    if (this.#isStopped) return;
    for (const reason of reasons.filter((each) => each !== undefined)) {
      logger.warn("tokenizer threads not loaded yet: the first prompts may miss their token deadline", { reason });
    }
  }

  #create(of: Pick<ModelTokenizerOptions, "model" | "mode"> & Partial<ModelTokenizerOptions>): Promise<ModelTokenizer> {
    const { cacheBytes, blockSize, budgetMs, pool, http, clock, scheduler, logger } = this.#options;
    return createModelTokenizer({
      blockSize,
      budgetMs,
      pool,
      http,
      clock,
      scheduler,
      logger,
      hasher: this.#hasher,
      ...cacheShares(cacheBytes),
      ...of,
    });
  }
}
