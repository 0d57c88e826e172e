import type { Clock, HttpClient, Logger, Scheduler, Startable } from "@espalier/common";
import type { TokenizerConfig } from "@espalier/config";
import { chainRoot } from "@espalier/prefix-index";
import type { CacheMeters, PromptBlocks } from "@espalier/routing";
import {
  createModelTokenizer,
  createPromptHasher,
  type ModelTokenizer,
  type ModelTokenizerOptions,
  type PromptView,
  type TokenizerPool,
} from "@espalier/tokenizer";
import { globPattern } from "../routing/glob-pattern.ts";

/** What a prompt is read from. */
export interface PromptSource {
  /** The served model's name. */
  readonly model: string;
  /** The model that it is an adapter of. */
  readonly parent: string | undefined;
  readonly endpoint: string;
  /** The parsed body. */
  readonly fields: Readonly<Record<string, unknown>>;
  /** Tokens of the prompt as far as its size tells. */
  readonly estimatedTokens: number;
}

/** Cuts prompts into blocks. */
export interface PromptReader extends Startable {
  /** At once when nearly everything is known, else within the budget. It never fails. */
  read(source: PromptSource): PromptBlocks | Promise<PromptBlocks>;
}

export interface PromptReaderOptions {
  readonly tokenizers: readonly TokenizerConfig[];
  readonly budgetMs: number;
  readonly cacheBytes: number;
  readonly pool: TokenizerPool;
  readonly seed: string;
  /** Tokens in a block. */
  readonly blockSize: number;
  /** The base URL of an engine that serves a model and is up. */
  readonly engineUrl: (model: string) => string | undefined;
  readonly http: HttpClient;
  readonly meters: CacheMeters;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly logger: Logger;
}

/** Text is about four bytes a token in English for the tokenizers of current models. */
const bytesPerToken = 4;
/** Models whose prompts an engine tokenizes, each with a cache of its own. Further ones are cut over their bytes. */
export const maxEngineTokenizers = 256;

/** How much of a cache is for the beginnings of prompts; the rest is for pieces that different prompts share. */
const stateShare = 0.5;

export function createPromptReader(options: PromptReaderOptions): PromptReader {
  return new ConfiguredReader(options);
}

interface Entry {
  readonly patterns: readonly RegExp[];
  readonly tokenizerOf: (model: string) => ModelTokenizer | undefined;
}

class ConfiguredReader implements PromptReader {
  readonly #options: PromptReaderOptions;
  readonly #hasher = createPromptHasher();
  readonly #entries: Entry[] = [];
  /** Undefined while it is being made. */
  readonly #byEngine = new Map<string, ModelTokenizer | undefined>();
  #bytes: ModelTokenizer | undefined;

  constructor(options: PromptReaderOptions) {
    this.#options = options;
  }

  async start(): Promise<void> {
    const { pool, tokenizers } = this.#options;
    if (tokenizers.some(({ mode }) => mode === "local")) await pool.start();
    this.#bytes = await this.#create({ model: "*", mode: "bytes" });
    for (const { models, mode, path } of tokenizers) {
      const local =
        mode === "local" ? await this.#create({ model: models.join(" "), mode, folder: path ?? "" }) : undefined;
      this.#entries.push({
        patterns: models.map(globPattern),
        tokenizerOf: mode === "engine" ? (model) => this.#engineTokenizer(model) : () => local,
      });
    }
  }

  stop(): Promise<void> {
    return this.#options.pool.stop();
  }

  read(source: PromptSource): PromptBlocks | Promise<PromptBlocks> {
    const { model, parent = model, endpoint, fields } = source;
    const known = this.#entries.find(({ patterns }) => patterns.some((pattern) => pattern.test(parent)));
    const tokenizer = known?.tokenizerOf(parent) ?? this.#bytes;
    if (!tokenizer) throw new TypeError("the reader has not been started");
    const view = tokenizer.view({ endpoint, fields });
    return view instanceof Promise
      ? view.then((seen) => this.#blocksOf(tokenizer, seen, source))
      : this.#blocksOf(tokenizer, view, source);
  }

  #blocksOf(tokenizer: ModelTokenizer, view: PromptView, source: PromptSource): PromptBlocks {
    const { seed, blockSize } = this.#options;
    const { unit, count, complete, contents, blocks, textUntil } = view;
    const salt = source.fields.cache_salt;
    const root = chainRoot({
      seed,
      adapter: source.parent === undefined ? undefined : source.model,
      cacheSalt: typeof salt === "string" && salt !== "" ? salt : undefined,
      blockSize,
      unit,
    });
    const size = { chain: tokenizer.chain(view, root), contents, blockCount: blocks, blockSize };
    const from = unit === "bytes" ? "bytes" : complete && textUntil === blocks ? "tokens" : "partial";
    this.#options.meters.read(from);
    if (unit === "bytes") return { ...size, tokens: Math.ceil(count / bytesPerToken), from };
    return { ...size, tokens: complete ? count : Math.max(count, source.estimatedTokens), from };
  }

  /** One for each model: made when the model is first asked for, seen as bytes until then. */
  #engineTokenizer(model: string): ModelTokenizer | undefined {
    if (this.#byEngine.has(model) || this.#byEngine.size >= maxEngineTokenizers) return this.#byEngine.get(model);
    this.#byEngine.set(model, undefined);
    void this.#create({ model, mode: "engine", engineUrl: () => this.#options.engineUrl(model) }).then((made) =>
      this.#byEngine.set(model, made),
    );
    return undefined;
  }

  #create(of: Pick<ModelTokenizerOptions, "model" | "mode"> & Partial<ModelTokenizerOptions>): Promise<ModelTokenizer> {
    const { cacheBytes, blockSize, budgetMs, pool, http, clock, scheduler, logger } = this.#options;
    const stateBytes = Math.floor(cacheBytes * stateShare);
    return createModelTokenizer({
      blockSize,
      budgetMs,
      pool,
      http,
      clock,
      scheduler,
      logger,
      hasher: this.#hasher,
      stateBytes,
      pieceBytes: cacheBytes - stateBytes,
      ...of,
    });
  }
}
